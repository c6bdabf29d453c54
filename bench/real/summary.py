"""The tables and the plot of a benchmark's results.csv; see real.py for the terms."""
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WORST = -1.0  # in means, a worse skill counts as this


def table(frame, form="{:.2f}"):
    """A Markdown table of a frame with its index."""
    frame = frame.reset_index()
    cell = lambda v: ("" if np.isnan(v) else form.format(v)) if isinstance(v, float) else str(v)
    lines = [[str(c) for c in frame.columns], ["---"] * len(frame.columns), *([cell(v) for v in row] for row in frame.itertuples(index=False))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def calibration(rows, regret):
    """How often the regret lay inside the planned range, by mode and epsilon."""
    rows = rows.dropna(subset=["planned_low", "planned_high", "planned_median"])
    if rows.empty:
        return None
    actual = rows[regret]
    rows = rows.assign(inside=(actual >= rows.planned_low) & (actual <= rows.planned_high), above=actual > rows.planned_high,
                       ratio=actual / rows.planned_median)
    def line(group):
        return pd.Series({"cases": str(len(group)), "inside": group.inside.mean(), "above": group.above.mean(),
                          "actual/planned, median": group.ratio.median()})
    parts = [rows.groupby(by)[["inside", "above", "ratio"]].apply(line).rename(lambda v: f"{by} {v}") for by in ("mode", "epsilon", "split", "loss")]
    everything = line(rows).to_frame("all").T
    return pd.concat([everything, *parts]).rename_axis("")


def plot(rows, path):
    figure, axes = plt.subplots(figsize=(7, 4.5))
    low = rows[rows.method == "alone"].floored.mean()
    if not np.isnan(low):
        axes.axhline(low, color="grey", linestyle=":", label="alone, not private")
    for (method, mode), group in rows[np.isfinite(rows.epsilon)].groupby(["method", "mode"]):
        curve, covered = group.groupby("epsilon").floored.mean(), group.loss.unique()
        only = "" if len(covered) == rows.loss.nunique() else f" (only {', '.join(covered)})"
        axes.plot(curve.index, curve, marker="o", linestyle="-" if mode == "typical" else "--", label=f"{method}, {mode}{only}",
                  color=f"C{['undertone', 'masks', 'before', 'zcdp-nfl', 'diffprivlib', 'adassp'].index(method)}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="epsilon", ylabel=f"mean skill (at least {WORST:g} each)", ylim=(WORST, 1.05))
    axes.set_xticks(sorted(rows.epsilon[np.isfinite(rows.epsilon)].unique()))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize=7)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def summarise(out):
    rows = pd.read_csv(out / "results.csv")
    if rows.empty:
        return
    rows["floored"] = rows.skill.fillna(WORST).clip(lower=WORST)
    by = ["method", "mode"]
    small = rows[(rows.epsilon <= 2) | np.isinf(rows.epsilon)]

    def by_loss(rows):
        mean = lambda rows: rows.groupby(by).floored.mean()
        wide = pd.DataFrame({"all": mean(rows), **{loss: mean(rows[rows.loss == loss]) for loss in sorted(rows.loss.unique())}})
        worse = rows.groupby(by).skill.apply(lambda s: (s < 0).mean())
        return table(wide.assign(**{"share below 0": worse, "runs": rows.groupby(by).size().astype(str)}))

    wide = small.pivot_table(index=["set", "loss"], columns=by, values="floored")
    wide.columns = [" ".join(c) for c in wide.columns]
    pooled = small.groupby(["set", "loss"])[["null", "pooled"]].mean()
    splits = small.pivot_table(index=["set", "loss", "epsilon", "seed", *by], columns="split", values="floored")
    differences = pd.DataFrame({f"{split} - even": (splits[split] - splits["even"]).groupby(level=by).mean()
                                for split in ("uneven", "tiny") if {split, "even"} <= set(splits.columns)}).dropna(how="all")
    text = [
        "# Undertone on real data\n",
        f"{rows.set.nunique()} data sets, {len(rows.groupby(['set', 'loss']))} pairs of set and loss, {rows.seed.nunique()} hold-outs. Skill: 1 is the "
        f"model of pooled data without privacy, 0 the best constant. In means a skill below {WORST:g} counts as {WORST:g}. real.py explains methods and modes. "
        "diffprivlib and AdaSSP hold all records in one place and support only the losses that have a number.\n",
        "## Mean skill, epsilon 0.5 to 2\n", by_loss(small),
        "## By set, epsilon 0.5 to 2\n", table(pooled.join(wide)),
        "## Skill in other splits less that in the even split, epsilon 0.5 to 2\n", table(differences) if len(differences.columns) else "no such runs\n",
    ]
    ten = rows[(rows.epsilon == 10) | np.isinf(rows.epsilon)]
    if (rows.epsilon == 10).any():
        text += ["## Mean skill, epsilon 10\n", by_loss(ten)]
    text.append("## Was it foreseen?\n\nThe regret of Undertone beside the planner's range from 10 to 90%: the shares of cases inside and above it.\n")
    for method in [method for method in ("undertone", "masks") if (rows.method == method).any()]:
        for title, regret in [("on the training records", "regret_training"), ("on the held-out records", "regret_held_out")]:
            found = calibration(rows[rows.method == method], regret)
            text.append(f"Regret of {method} {title}:\n\n{table(found) if found is not None else 'the plans contain no range'}\n")
    text.append("![Mean skill by epsilon](skill.svg)\n")
    (out / "summary.md").write_text("\n".join(text))
    plot(rows, out / "skill.svg")
    print(f"written: {out / 'summary.md'}, {out / 'skill.svg'}")


if __name__ == "__main__":
    summarise(Path(sys.argv[1]))
