"""What one liar among ten parties does to a study on real data, with `[robust] liars = 1` and without.

The sets, splits and hold-outs are those of real.py, in the mode `typical`; all parties are neighbours. Parameters are those that `undertone plan` finds for the study with
[robust], from public facts. The error is the root of the regret on all training records: 0 is the pooled model without privacy, 1 the best constant. For every
set it is averaged over the hold-outs; printed are

  error      without a liar and without the rule
  cost       the rule without a liar, over that
  worst      the worst of the seven attacks under the rule, over that, and which
  unbound    a constant shift without the rule, over that
  skill      as in real.py, on the held-out records: without a liar and without the rule; the rule without a liar; the least under an attack
"""
import argparse
import json
import math
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import real
from sets import SETS

ATTACKS = ["shift", "huge", "last-round", "flip", "noise", "little", "inner"]
PARTIES = 10
EPSILON = 2.0
USUAL = ["diabetes-squared", "tumours-logistic", "students-squared", "young-men-absolute", "births-squared", "computers-squared"]


def without(text, *tables):
    """The study without these tables."""
    kept, skipped = [], False
    for line in text.split("\n"):
        if line.strip().startswith("["):
            skipped = line.strip() in tables
        if not skipped:
            kept.append(line)
    return "\n".join(kept)


def planned(case, program):
    """The study as `plan` completes it, without [robust]."""
    text = without(real.study(case, EPSILON, "typical"), "[graph]")
    text += f'[graph]\nkind = "complete"\n[plan]\nclients = {PARTIES}\n[robust]\nliars = 1\n'
    with tempfile.TemporaryDirectory() as folder:
        study, out = Path(folder, "study.toml"), Path(folder, "planned.toml")
        study.write_text(text)
        real.call(program, "plan", study, "--out", out, "--quick")
        return without(out.read_text(), "[robust]")


def learned(case, text, data, program):
    """The weights of the model."""
    with tempfile.TemporaryDirectory() as folder:
        study, out = Path(folder, "study.toml"), Path(folder, "run")
        study.write_text(text)
        real.call(program, "simulate", study, "--data", data, "--out", out, "--threads", 1, "--set", f"seed={case.seed}")
        model = json.loads((out / "model.json").read_text())
    return np.array([model["intercept"], *(model["coefficients"][name] for name in case.names[1:])])


def measure(name, loss, split, options):
    """(noise, what was done): error and skill, one for each hold-out."""
    found, base = {}, None
    for seed in range(options.seeds):
        case = real.Case(name, loss, seed)
        case.clients = PARTIES
        base = base or planned(case, options.program)
        parts, frame = case.split(split)
        with tempfile.TemporaryDirectory() as data:
            for k, rows in enumerate(parts):
                frame.iloc[rows].to_csv(Path(data, f"{real.party(k)}.csv"), index=False)
            for noise in True, False:
                study = base if noise else 'privacy = "off"\n' + without(base, "[privacy]")
                robust = study + "\n[robust]\nliars = 1\n"
                # With [robust] there is no acceleration.
                trusting = study.replace('"metropolis"', '"chebyshev"')
                def lying(text, attack):
                    return text.replace("[simulation]\n", f'[simulation]\nliars = 1\nattack = "{attack}"\n', 1)
                texts = {"honest": trusting, "rule": robust, "unbound": lying(trusting, "shift")}
                texts |= {attack: lying(robust, attack) for attack in ATTACKS}
                for what, text in texts.items():
                    judged = case.judge(learned(case, text, data, options.program), "typical")
                    found.setdefault((noise, what), []).append((math.sqrt(max(0, judged["regret_training"])), judged["skill"]))
    return {key: np.mean(values, axis=0) for key, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=real.HERE / "../../target/release/undertone", type=Path)
    parser.add_argument("--sets", nargs="+", default=USUAL, metavar="SET-LOSS")
    parser.add_argument("--splits", nargs="+", default=["even", "uneven"], choices=real.SPLITS)
    parser.add_argument("--seeds", type=int, default=5, help="hold-outs")
    options = parser.parse_args()
    options.program = options.program.resolve()
    pairs = [(name, loss) for name, chosen in SETS.items() for loss in chosen.losses if f"{name}-{loss}" in options.sets]
    jobs = [(name, loss, split) for split in options.splits for name, loss in pairs]
    print(f"{'set':<12} {'loss':<10} {'split':<7} {'epsilon':<8} {'error':>6} {'cost':>6} {'worst':>17} {'unbound':>8}  skill")
    with ThreadPoolExecutor(2) as pool:
        for (name, loss, split), found in zip(jobs, pool.map(lambda job: measure(*job, options), jobs)):
            for noise in True, False:
                error, skill = ({what: value[i] for (n, what), value in found.items() if n == noise} for i in (0, 1))
                worst = max(ATTACKS, key=error.get)
                ratio = {what: value / error["honest"] for what, value in error.items()}
                least = min(skill[attack] for attack in ATTACKS)
                print(f"{name:<12} {loss:<10} {split:<7} {EPSILON if noise else 'off':<8} {error['honest']:6.3f} {ratio['rule']:6.2f} "
                      f"{ratio[worst]:6.2f} {worst:>10} {ratio['unbound']:8.1f}  {skill['honest']:.3f} {skill['rule']:.3f} {least:.3f}", flush=True)


if __name__ == "__main__":
    main()
