"""Studies: from files, text and keywords; plans, simulations and their tables."""

import copy
import pickle
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import undertone as ut
from conftest import SPEC, study

TOML = """
name = "small"
rounds = 20
[problem]
loss = "absolute"
[data]
source = "synthetic"
clients = 10
records = 20
features = 4
[graph]
kind = "ring"
[algorithm]
name = "free-rounds"
data_rounds = 6
eta = 1.0
[privacy]
epsilon = 5.0
delta = 1e-5
clip = 1.0
noise = "fast"
[simulation]
trials = 3
"""


def program(*arguments, **more):
    return subprocess.run([sys.executable, "-m", "undertone", *map(str, arguments)], capture_output=True, text=True, **more)


def test_the_same_bits_as_the_program(tmp_path):
    (tmp_path / "study.toml").write_text(TOML)
    ran = program("simulate", tmp_path / "study.toml", "--out", tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    outcome = ut.Study(tmp_path / "study.toml").simulate()
    for name in ("study.toml", "trace.csv", "clients.csv", "model.json"):
        assert outcome.text(name) == (tmp_path / "run" / name).read_text(), name
    # Another seed gives other bits, so the comparison can fail.
    other = ut.Study(TOML, set={"seed": 2}).simulate()
    assert other.text("clients.csv") != outcome.text("clients.csv")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_do_not_depend_on_threads(threads):
    assert ut.Study(TOML).simulate(threads=threads).text("clients.csv") == ut.Study(TOML).simulate().text("clients.csv")


def test_tables_in_memory_give_the_bits_of_files(tmp_path, columns):
    table, party = columns
    folder = tmp_path / "hospitals"
    folder.mkdir()
    for name in np.unique(party):
        rows = zip(*[values[party == name] for values in table.values()])
        lines = [",".join(table), *(",".join(repr(cell.item()) if hasattr(cell, "item") and not isinstance(cell, str) else str(cell) for cell in row) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = study(path=folder).simulate()
    memory = study().simulate(table, groups=party)
    parties = study().simulate({name: {k: v[party == name] for k, v in table.items()} for name in np.unique(party)})
    assert files.text("clients.csv") == memory.text("clients.csv") == parties.text("clients.csv")
    assert study().simulate(folder).text("clients.csv") == files.text("clients.csv")


def test_keywords_are_the_keys_of_the_file(spec):
    again = ut.Study(spec.toml)
    assert again == spec and again.toml == spec.toml
    assert pickle.loads(pickle.dumps(spec)) == spec == copy.deepcopy(spec)
    assert 'loss = "squared"' in spec.toml and spec.name == "recovery"
    assert spec.with_set({"privacy.epsilon": 1.5}).toml != spec.toml
    with pytest.raises(TypeError, match="unexpected keyword"):
        ut.Study(los="squared")
    with pytest.raises(TypeError, match="not both"):
        ut.Study(TOML, rounds=3)


def test_mistakes_are_told_in_the_words_of_the_program(tmp_path):
    wrong = TOML.replace("epsilon = 5.0", "epsilon = -1.0")
    (tmp_path / "study.toml").write_text(wrong)
    told = program("simulate", tmp_path / "study.toml")
    assert told.returncode == 2
    with pytest.raises(ut.StudyError) as caught:
        ut.Study(tmp_path / "study.toml").simulate()
    assert told.stderr.strip() == f"error: {caught.value}"
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ut.UndertoneError)
    with pytest.raises(FileNotFoundError):
        ut.Study(tmp_path / "none.toml")


def test_oddities_and_a_lack_of_privacy_are_warnings():
    with pytest.warns(ut.PrivacyWarning, match="privacy is off"):
        ut.Study(TOML.replace("[privacy]", "[ignored]").split("[ignored]")[0].replace("rounds = 20", 'rounds = 20\nprivacy = "off"'))


def test_results_are_tables(spec, columns):
    pandas = pytest.importorskip("pandas")
    run = spec.simulate(columns[0], groups=columns[1])
    trace, coefficients = pandas.DataFrame(run.trace), pandas.DataFrame(run.coefficients)
    assert list(trace["round"]) == list(range(1, 31)) and trace["epsilon"].iloc[-1] <= 4
    assert list(coefficients["feature"])[:3] == ["intercept", "age", "dose"]
    assert {"coefficient", "pooled", "noise"} <= set(coefficients)
    assert run.trace.to_pandas().equals(trace)
    assert run.epsilon <= 4 and run.skill < 1.01 and any("fast" in notice for notice in run.notices)
    for shown in (run, run.trace, run.model, spec, spec.check(), ut.account(epsilon=1, delta=1e-6)):
        assert "<" in shown._repr_html_()
    assert "<script" not in study(name="a <script> b").simulate(columns[0], groups=columns[1])._repr_html_()


def test_plots(spec, columns):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = spec.simulate(columns[0], groups=columns[1]).plot()
    assert axes.get_xlabel() == "round" and len(axes.lines) == 1


def test_run_folders(tmp_path, spec, columns):
    run = spec.simulate(columns[0], groups=columns[1])
    run.save(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").read_text() == run.report
    with pytest.raises(ut.MachineError, match="already holds files") as caught:
        run.save(tmp_path / "run")
    assert isinstance(caught.value, OSError)
    model = ut.Model.load(tmp_path / "run" / "model.json")
    assert np.array_equal(model.predict(columns[0]), run.model.predict(columns[0]))


def test_plans(columns):
    auto = study(algorithm="auto", clip=None, rounds=12, records=30)
    shares = []
    plan = auto.plan(clients=3, progress=shares.append)
    low, middle, high = plan.skill
    # On new records a model can by chance do a little better than one of pooled data.
    assert low <= middle <= high <= 1.1 and shares == sorted(shares) and shares
    assert plan.algorithms["algorithm"][0].split(",")[0] in plan.study.toml
    assert plan.noise.rows > 0
    # A study that is planned when it runs gets the same choice.
    planned = plan.study.simulate(columns[0], groups=columns[1])
    assert auto.simulate(columns[0], groups=columns[1]).text("clients.csv") == planned.text("clients.csv")


def test_check_tells_everything_at_once(spec, columns):
    assert spec.check().ok and spec.check(columns[0]).ok
    found = spec.check({**columns[0], "age": np.full(180, np.nan), "days": np.full(180, np.inf)})
    assert not found and found.records == 180
    assert found.columns["empty"][0] == 180 and found.columns["wrong"][3] == 180
    with pytest.raises(ut.StudyError):
        found.raise_if_wrong()


def test_progress_and_its_exceptions():
    shares = []
    ut.Study(TOML, set={"simulation.trials": 300}).simulate(progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0

    def stop(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ut.Study(TOML, set={"simulation.trials": 20000}).simulate(progress=stop)


def test_other_threads_run_meanwhile():
    long = ut.Study(TOML, set={"simulation.trials": 40000, "simulation.central": False})
    done, counted = threading.Event(), []

    def count():
        while not done.is_set():
            counted.append(time.perf_counter())
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    started = time.perf_counter()
    long.simulate(threads=1)
    ended = time.perf_counter()
    done.set()
    other.join()
    assert ended - started > 0.1, "too short to tell"
    during = [moment for moment in counted if started < moment < ended]
    gaps = np.diff([started, *during, ended])
    # While the lock was held the other thread would have waited for all of it.
    assert len(during) > 10 and gaps.max() < 0.5 * (ended - started)


def test_many_threads_at_once():
    wanted = ut.Study(TOML).simulate().text("clients.csv")
    results = []
    threads = [threading.Thread(target=lambda: results.append(ut.Study(TOML).simulate().text("clients.csv"))) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [wanted] * 8


def test_audits():
    findings = ut.audit(ut.Study(TOML), trials=2000)
    assert not findings.violated and findings.parts["proven"][0] < findings.parts["claimed"][0]
    assert "Verdict" in findings.report
    with warnings.catch_warnings(), pytest.raises(ut.StudyError, match="promises nothing"):
        warnings.simplefilter("ignore")
        ut.audit(study(privacy="off", epsilon=None, delta=None, clip=None, noise=None, parties=None, plan={"clients": 3}))


def test_accounts():
    answer = ut.account(epsilon=1.0, delta=1e-6, rounds=200)
    assert answer["phi_1"]["paper"] == pytest.approx(0.00008734452, rel=1e-6)
    assert list(answer.table["accountant"]) == ["paper", "cks", "exact"]
    with pytest.raises(TypeError, match="exactly one"):
        ut.account(delta=1e-6)
    with pytest.raises(ut.StudyError, match="delta"):
        ut.account(epsilon=1.0, delta=2.0)
    with pytest.raises(TypeError):
        ut.account(epsilon="much", delta=1e-6)


def test_a_panic_is_an_exception_and_prints_nothing(capfd):
    from undertone import _native

    with pytest.raises(ut.InternalError, match="on purpose.*program.rs.*report it") as caught:
        _native._panic()
    assert isinstance(caught.value, RuntimeError)
    assert capfd.readouterr().err == ""
    assert ut.Study(TOML).simulate().epsilon <= 5, "life goes on"


def test_the_spec_of_the_tests_is_whole():
    assert set(SPEC) <= set(ut.Study.__init__.__kwdefaults__)


def test_arrays_have_the_columns_in_the_order_of_the_study():
    rng = np.random.default_rng(1)
    smoker, frail = rng.integers(0, 2, 300), rng.random(300)
    los = 5 + 10.0 * smoker - 3 * frail + rng.normal(0, 0.1, 300)
    study = ut.Study(
        loss="squared", features={"smoker": ["0", "1"], "frail": (0, 1)}, target={"los": (-10, 60)}, intercept=True, records=100, epsilon=50,
        delta=1e-5, noise="fast", rounds=40, algorithm={"name": "free-rounds", "data_rounds": 20, "eta": 1.5}, clip=0.5,
    )  # fmt: skip
    model = study.simulate(np.column_stack([smoker, frail, los]), groups=np.repeat(["a", "b", "c"], 100)).model
    assert model.columns == ["smoker", "frail"]
    rows = {"smoker": ["0", "1"], "frail": [1.0, 0.0]}
    assert np.array_equal(model.predict(rows), model.predict(np.array([[0, 1.0], [1, 0.0]])))
    assert not hasattr(model.to_sklearn(), "coef_")


def test_privacy_questions_have_the_limits_of_the_program():
    for rounds in (0, -1, 10_000_001, 2**32 - 1, 2**40):
        with pytest.raises(ut.UndertoneError, match="rounds = .* whole number from 1 to 10000000"):
            ut.account(epsilon=1, delta=1e-5, rounds=rounds)
    with pytest.raises(ut.UndertoneError) as error:
        ut.account(epsilon=-1, delta=1e-5)
    assert "epsilon epsilon" not in str(error.value)


def test_a_copy_of_a_study_finds_its_files(tmp_path):
    (tmp_path / "study.toml").write_text(
        "rounds = 5\n[problem]\nloss = \"squared\"\n[data]\nsource = \"folder\"\npath = \"records\"\nfeatures = [\"x\"]\ntarget = \"y\"\nbounds.x = [0, 1]\n"
        "bounds.y = [0, 1]\n[graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-grad-nfl\"\neta = 1.0\n[privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 1\n"
    )
    (tmp_path / "records").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "records" / f"{name}.csv").write_text("x,y\n0.5,0.5\n0.1,0.2\n")
    study = ut.Study(tmp_path / "study.toml")
    copy = pickle.loads(pickle.dumps(study))
    assert copy.toml == study.toml and copy.simulate().epsilon == study.simulate().epsilon
