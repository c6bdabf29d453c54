"""What the Python package adds to the time of a simulation: the paper's study, by `Study.simulate` and by the program, in turn.

    target/python-venv/bin/python bench/python.py target/release/undertone

The program says how long the run itself took, without its start and its files; of the package the whole call is measured. Medians of eleven."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import undertone as ut

SETTINGS = ["simulation.trials=400", "simulation.metrics_every=200"]
ROUNDS = 11


def program(binary: str, study: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "simulate", study, "--json", "--out", f"{folder}/run"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout)["seconds"])


def package(study: ut.Study) -> float:
    started = time.perf_counter()
    study.simulate()
    return time.perf_counter() - started


def main() -> None:
    warnings.simplefilter("ignore")
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "new", f"{folder}/paper.toml"], check=True, capture_output=True)
        study = ut.Study(f"{folder}/paper.toml", set=SETTINGS)
        study.save(f"{folder}/study.toml")
        program(binary, f"{folder}/study.toml"), package(study)
        pairs = [(program(binary, f"{folder}/study.toml"), package(study)) for _ in range(ROUNDS)]
    own, other = (statistics.median(times) for times in zip(*((b, a) for a, b in pairs)))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"program {other:.3f} s, package {own:.3f} s; median of the ratios {ratio:.4f}")


if __name__ == "__main__":
    main()
