"""Writes real tables and their studies for `undertone-bench coverage`, and runs it: how often intervals hold the coefficients of the whole table.

    .venv/bin/python coverage.py [REPEATS]
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import sets

CHOSEN = (("workers", "squared"), ("chains", "logistic"))


def study(name, loss):
    """The study of a set as far as it does not depend on the budget; the number of records is filled in by the program."""
    chosen = sets.SETS[name]
    lines = ["[problem]", f'loss = "{loss}"', "[data]", 'source = "folder"', "records = RECORDS", 'outside = "clamp"', "intercept = true"]
    lines += [f"features = {json.dumps([*chosen.numbers, *chosen.words])}", f'target = "{chosen.target}"']
    lines += [f"bounds.{column} = [{low}, {high}]" for column, (low, high) in sets.bounds(chosen).items()]
    words = {**chosen.words, **({chosen.target: chosen.range} if chosen.range == sets.YES else {})}
    lines += [f"categories.{column} = {json.dumps(list(values))}" for column, values in words.items()]
    lines += [f"typical.{column} = [{mean}, {spread}]" for column, (mean, spread) in sets.typical(name).items()]
    return "\n".join(lines) + "\n"


def main():
    repeats = sys.argv[1] if len(sys.argv) > 1 else "1000"
    program = Path(__file__).parents[2] / "target/release/undertone-bench"
    with tempfile.TemporaryDirectory() as folder:
        arguments = []
        for name, loss in CHOSEN:
            toml, table = Path(folder) / f"{name}.toml", Path(folder) / f"{name}.csv"
            toml.write_text(study(name, loss))
            sets.load(name).to_csv(table, index=False)
            arguments += [str(toml), str(table)]
        subprocess.run([program, "coverage", repeats, *arguments], check=True)


if __name__ == "__main__":
    main()
