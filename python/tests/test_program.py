"""The program that the package brings along: the same words and exit codes."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import undertone as ut
from conftest import REPOSITORY
from undertone.__main__ import main


def script():
    found = shutil.which("undertone", path=os.path.dirname(sys.executable))
    return [found] if found else [sys.executable, "-m", "undertone"]


def run(*words, **more):
    return subprocess.run([*script(), *map(str, words)], capture_output=True, text=True, **more)


def test_it_is_installed():
    if not (pathlib.Path(sys.prefix) / "pyvenv.cfg").exists() or "UNDERTONE_INSTALLED" not in os.environ:
        pytest.skip("only where the wheel is installed")
    assert len(script()) == 1


def test_exit_codes_and_output(tmp_path):
    told = run("account", "--epsilon", 1, "--delta", 1e-6, "--rounds", 200)
    assert told.returncode == 0 and "0.00008734452" in told.stdout
    assert run("--version").stdout.strip() == f"undertone {ut.__version__}"
    wrong = run("account", "--epsilon", "none", "--delta", 1e-6)
    assert wrong.returncode == 2 and "invalid value" in wrong.stderr
    missing = run("check", tmp_path / "none.toml")
    assert missing.returncode == 2 and missing.stderr.startswith("error:")
    assert run().returncode == 2
    assert run("--help").returncode == 0


def test_it_is_the_program(tmp_path):
    binary = os.environ.get("UNDERTONE_PROGRAM")
    if not binary or not os.path.exists(binary):
        pytest.skip("no binary to compare with")
    for words in (["--help"], ["account", "--epsilon", "1", "--delta", "1e-6"], ["peer"], ["check", "none.toml"], ["simulate", "--help"]):
        own, other = run(*words), subprocess.run([binary, *words], capture_output=True, text=True)
        assert (own.returncode, own.stdout, own.stderr) == (other.returncode, other.stdout, other.stderr), words


def test_an_interrupt_ends_it(tmp_path):
    (tmp_path / "study.toml").write_text("")
    running = subprocess.Popen(
        [*script(), "simulate", "--set", "simulation.trials=100000", "--set", "simulation.metrics_every=200", "--out", tmp_path / "run"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(1.5)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert running.wait(10) in (-signal.SIGINT, 128 + signal.SIGINT)


def test_it_starts_itself_again(tmp_path):
    """The audit of peers starts other processes of the program."""
    from test_study import TOML

    (tmp_path / "study.toml").write_text(TOML)
    told = run("audit", tmp_path / "study.toml", "--quick", "--peers", "--trials", 20, "--out", tmp_path / "audit", timeout=300)
    assert told.returncode == 0, told.stderr


def test_main_returns_the_code(capfd):
    assert main(["account", "--epsilon", "1", "--delta", "1e-6"]) == 0
    assert main(["account"]) == 2
    capfd.readouterr()


def test_the_example_of_the_readme_runs(tmp_path):
    for readme in (REPOSITORY / "README.md", REPOSITORY / "python" / "README.md", REPOSITORY / "docs" / "python.md"):
        blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.S)
        assert blocks, readme
        # Each page is one program, from top to bottom.
        ran = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert ran.returncode == 0, f"{readme}: {ran.stderr}"
