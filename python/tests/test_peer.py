"""Real peers on loopback: in threads, interrupted, forked, and refused."""

import json
import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import undertone as ut
from conftest import free_port


def takes_interrupts():
    """Undoes what a shell does to programs in the background, whose children ignore Ctrl-C as they do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def play(peers, progress=None):
    """Runs peers in threads."""
    results, errors = {}, []

    def one(name, peer):
        try:
            results[name] = peer.run(progress)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=item) for item in peers.items()]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    if errors:
        raise errors[0]
    return results


def make(network, **options):
    study, keys, tables, folder = network
    options = {"yes": True, **options}
    return {name: ut.Peer(study, keys[name], tables[name], folder / f"{name}-state", **options) for name in keys}


def test_three_peers_learn_one_model(network, columns, caplog):
    caplog.set_level(logging.INFO, logger="undertone")
    news = []
    results = play(make(network), news.append)
    models = [json.dumps(result.model.json["coefficients"]) for result in results.values()]
    assert len(models) == 3 and len(set(models)) == 1
    result = results["lakeside"]
    assert 3.9 < result.epsilon <= 4.0 and result.statement["rounds"]["done"] == 30
    assert result.model.predict(columns[0]).shape == (180,) and "<table" in result._repr_html_() and "<html" in result.report
    assert {one["round"] for one in news} >= {30} and news[-1]["neighbours"] == 2
    logged = [record for record in caplog.records if record.name.startswith("undertone")]
    assert any("started with a new ledger" in record.getMessage() and record.levelno == logging.INFO for record in logged)
    # The ledger knows of it, so nothing is released anew.
    again = play(make(network))
    assert again["lakeside"].statement["epsilon"] == result.statement["epsilon"]
    assert np.array_equal(again["lakeside"].model.predict(columns[0]), result.model.predict(columns[0]))


def test_the_program_and_the_package_meet(network):
    study, keys, tables, folder = network
    study.save(folder / "study.toml")
    lines = zip(*tables["riverside"].values())
    text = "\n".join([",".join(tables["riverside"]), *(",".join(map(str, line)) for line in lines)])
    (folder / "riverside.csv").write_text(text)
    command = [sys.executable, "-m", "undertone", "peer", "--yes", "--study", folder / "study.toml", "--key", keys["riverside"]]
    command += ["--data", folder / "riverside.csv", "--state", folder / "riverside-state"]
    other = subprocess.Popen(list(map(os.fspath, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peers = make((folder / "study.toml", *network[1:]))
    del peers["riverside"]
    results = play(peers)
    told, _ = other.communicate(timeout=60)
    assert other.returncode == 0 and "privacy spent" in told
    model = next(pathlib.Path(folder, "riverside-state").glob("*/model.json")).read_text()
    assert json.loads(model)["coefficients"] == results["lakeside"].model.json["coefficients"]


def test_a_peer_that_is_stopped_goes_on(network):
    peers = make(network, pace=0.05)
    stopped = []

    def halfway(news):
        if news["round"] >= 8 and not stopped:
            stopped.append(news["round"])
            peers["lakeside"].stop()

    def lakeside():
        with pytest.raises(ut.Interrupted, match="interrupted after round .* of 30; nothing is lost"):
            peers["lakeside"].run(halfway)
        done.append(peers["lakeside"].run())

    done = []
    first = threading.Thread(target=lakeside)
    first.start()
    others = play({name: peers[name] for name in ("northfield", "riverside")})
    first.join(120)
    assert stopped and done[0].statement["rounds"]["done"] == 30
    # Every round is in the ledger once, whatever was interrupted.
    assert done[0].statement["rho"] == pytest.approx(others["riverside"].statement["rho"], rel=1e-12)
    assert done[0].model.json["coefficients"] == others["riverside"].model.json["coefficients"]


def test_a_stop_is_never_lost(network):
    peer = make(network)["lakeside"]
    # Before it begins; once.
    peer.stop()
    with pytest.raises(ut.Interrupted):
        peer.run()
    # The others never come. A second run is refused, and the first one still hears.
    refused = []

    def again(news):
        if not refused:
            with pytest.raises(RuntimeError, match="running already") as error:
                peer.run()
            refused.append(error)
            peer.stop()

    with pytest.raises(ut.Interrupted):
        peer.run(again)
    assert refused


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_keeps_no_lock(network):
    # It keeps the port, which is why each run has another.
    peer = make(network, listen="127.0.0.1:0")["lakeside"]
    children = []

    def fork(news):
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                time.sleep(20)
                os._exit(0)
            peer.stop()

    try:
        for _ in range(2):
            with pytest.raises(ut.Interrupted):
                peer.run(fork if not children else lambda news: peer.stop())
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


SCRIPT = """
    import sys, threading, undertone as ut
    study, key, data, state = sys.argv[1:]
    peer = ut.Peer(study, key, data, state, yes=True, pace=0.05)
    def tell(news):
        print(news["round"], flush=True)
    try:
        result = peer.run(tell)
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
        sys.exit(42)
    print("done", result.statement["rho"], result.statement["rounds"]["done"], flush=True)
"""


def test_an_interrupt_is_a_keyboard_interrupt_and_the_ledger_resumes(network):
    study, keys, tables, folder = network
    study.save(folder / "study.toml")
    lines = zip(*tables["lakeside"].values())
    (folder / "lakeside.csv").write_text("\n".join([",".join(tables["lakeside"]), *(",".join(map(str, line)) for line in lines)]))
    arguments = [folder / "study.toml", keys["lakeside"], folder / "lakeside.csv", folder / "lakeside-state"]
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(os.fspath, arguments)]
    peers = make(network, pace=0.05)
    del peers["lakeside"]
    others = {}
    rest = threading.Thread(target=lambda: others.update(play(peers)))
    rest.start()
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=takes_interrupts)
    for line in first.stdout:
        if line.strip().isdigit() and int(line) >= 5:
            break
    first.send_signal(signal.SIGINT)
    told, _ = first.communicate(timeout=60)
    assert first.returncode == 42 and "KeyboardInterrupt" in told
    second = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    rest.join(120)
    word, rho, done = second.stdout.strip().splitlines()[-1].split()
    assert (word, int(done)) == ("done", 30)
    assert float(rho) == pytest.approx(others["riverside"].statement["rho"], rel=1e-12)


def test_owners_limits(network):
    study, keys, tables, folder = network
    peer = ut.Peer(study, keys["lakeside"], tables["lakeside"], folder / "state", max_epsilon=1.0)
    with pytest.raises(ut.LimitError, match="--max-epsilon 1"):
        peer.run()
    assert "epsilon = 2.0" in ut.policy(folder / "policed", epsilon=2.0, delta=1e-6)
    with pytest.raises(ut.LimitError, match="policy.toml: epsilon = 2"):
        ut.Peer(study, keys["lakeside"], tables["lakeside"], folder / "policed").run()
    with pytest.raises(ut.LimitError, match="would relax"):
        ut.policy(folder / "policed", epsilon=3.0)
    assert "epsilon = 3.0" in ut.policy(folder / "policed", epsilon=3.0, yes=True)


def test_what_is_unusual_has_to_be_confirmed(network):
    study, keys, tables, folder = network
    large = study.with_set({"privacy.epsilon": 40.0})
    with pytest.raises(ut.LimitError, match="unusual.*--yes"):
        ut.Peer(large, keys["lakeside"], tables["lakeside"], folder / "state").run()


def test_wrong_options(network):
    study, keys, tables, folder = network
    for options, error in [
        ({"on_loss": "maybe"}, ValueError),
        ({"on_conflict": "maybe"}, ValueError),
        ({"listen": "somewhere"}, ValueError),
        ({"page_token": "token"}, TypeError),
        ({"on_loss": "drop", "patience": 0}, ValueError),
        ({"on_loss": "drop", "patience": -3.0}, ValueError),
        ({"on_loss": "drop", "patience": float("nan")}, ValueError),
    ]:
        with pytest.raises(error):
            ut.Peer(study, keys["lakeside"], tables["lakeside"], folder / "state", **options)
    with pytest.raises(ut.PeerError, match="cannot be read"):
        ut.Peer(study, folder / "no.key", tables["lakeside"], folder / "state").run()
    with pytest.raises(ut.DataError, match="lakeside: has no column"):
        ut.Peer(study, keys["lakeside"], {"age": [1.0]}, folder / "state").run()
    other = ut.keygen(folder / "other.key")
    assert len(other) == 64 and ut.keygen(folder / "other.key", show=True) == other
    with pytest.raises(ut.StudyError, match=other):
        ut.Peer(study, folder / "other.key", tables["lakeside"], folder / "state").run()
    with pytest.raises(ut.PeerError, match="exists already"):
        ut.keygen(folder / "other.key")


def test_the_page_and_the_metrics_are_served(network):
    from urllib.request import urlopen

    port, page = free_port(), free_port()
    peers = make(network)
    study, keys, tables, folder = network
    peers["lakeside"] = ut.Peer(
        study, keys["lakeside"], tables["lakeside"], folder / "lakeside-state", yes=True, metrics=f"127.0.0.1:{port}", page=f"127.0.0.1:{page}", pace=0.03
    )
    seen = {}

    def look(news):
        if news["page"] and "page" not in seen:
            seen["page"] = urlopen(news["page"]).read()
            seen["metrics"] = urlopen(f"http://127.0.0.1:{port}/metrics").read()

    threads = threading.Thread(target=lambda: play({name: peers[name] for name in ("northfield", "riverside")}))
    threads.start()
    peers["lakeside"].run(look)
    threads.join(60)
    assert b"<html" in seen["page"] and b"undertone_round" in seen["metrics"]


FORK = """
    import os, pickle, sys, warnings, undertone as ut
    warnings.simplefilter("ignore")
    study = ut.Study(sys.argv[1], set={"privacy.noise": "secure", "simulation.central": False})
    if sys.argv[2] == "used":
        study.simulate()
    def released():
        return study.simulate(threads=2).text("clients.csv")
    ends = []
    for _ in range(3):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, released().encode()[:60000])
            os._exit(0)
        os.close(write)
        ends.append(read)
    texts = [released()]
    for end in ends:
        chunks = []
        while chunk := os.read(end, 65536):
            chunks.append(chunk)
        texts.append(b"".join(chunks).decode())
    for _ in ends:
        assert os.wait()[1] == 0
    assert all(text.startswith("client,") for text in texts), texts
    print(len(set(texts)))
"""


@pytest.mark.parametrize("before", ["fresh", "used"])
def test_processes_that_were_forked_do_not_repeat_noise(tmp_path, before):
    from test_study import TOML

    (tmp_path / "study.toml").write_text(TOML)
    command = [sys.executable, "-c", textwrap.dedent(FORK), os.fspath(tmp_path / "study.toml"), before]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "4", ran.stderr


def test_interrupts_end_simulations():
    script = """
        import sys, undertone as ut
        from test_study import TOML
        study = ut.Study(TOML, set={"simulation.trials": 1000000, "rounds": 20, "simulation.metrics_every": 20, "simulation.central": False})
        print("begun", flush=True)
        try:
            study.simulate()
        except KeyboardInterrupt:
            print("KeyboardInterrupt")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    here = pathlib.Path(__file__).parent
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here, preexec_fn=takes_interrupts)
    assert running.stdout.readline().strip() == "begun"
    time.sleep(0.7)
    running.send_signal(signal.SIGINT)
    told, _ = running.communicate(timeout=20)
    assert told.strip() == "KeyboardInterrupt"


def test_models_can_be_pickled(spec, columns):
    model = spec.simulate(columns[0], groups=columns[1]).model
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(columns[0]), model.predict(columns[0]))
