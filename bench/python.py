"""What the Python package adds to the time of a simulation: the paper's study, by `Study.simulate` and by the program, in turn.

    target/python-venv/bin/python bench/python.py target/release/undertone

The program says how long the run itself took, without its start, its files and the spread of coefficients that both add to the report; of the package the whole call
is measured, without that spread. The call divided by what it says of the run inside is the overhead of the binding alone, which other load disturbs less. Medians of eleven."""

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


def package(study: ut.Study) -> tuple[float, float]:
    started = time.perf_counter()
    outcome = study._native.simulate(None, None, None, False)
    whole = time.perf_counter() - started
    return whole, float(json.loads(outcome.text("summary.json") or "")["seconds"])


def main() -> None:
    warnings.simplefilter("ignore")
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "new", f"{folder}/paper.toml"], check=True, capture_output=True)
        study = ut.Study(f"{folder}/paper.toml", set=SETTINGS)
        study.save(f"{folder}/study.toml")
        program(binary, f"{folder}/study.toml"), package(study)
        pairs = [(program(binary, f"{folder}/study.toml"), package(study)) for _ in range(ROUNDS)]
    other, own = statistics.median(a for a, _ in pairs), statistics.median(b for _, (b, _) in pairs)
    ratio = statistics.median(b / a for a, (b, _) in pairs)
    binding = statistics.median(b / inside for _, (b, inside) in pairs)
    print(f"program {other:.3f} s, package {own:.3f} s; median of the ratios {ratio:.4f}; the binding alone {binding:.4f}")


if __name__ == "__main__":
    main()
