"""Undertone on real data: how much of what pooled data without privacy would give is left, and was it foreseen?

For every data set and loss of sets.py, every split, epsilon, mode and seed, 30% of the records are held out by a seeded
permutation, the same for all methods. The others are split among K parties:

  even     at random, equal sizes
  uneven   sorted by the first feature, sizes growing geometrically from 1 to 10: parties differ in size and in features
  tiny     as even, but one party has 5 records

Modes, that is what is publicly known: `bounds` only the bounds of the columns; `typical` also a mean and a spread of every
column of numbers, rounded as in sets.typical. In the mode `typical`, numbers are clamped to the mean +- 3 spreads.

Methods:

  undertone    algorithm = "auto"
  masks        the same with colluders = a fifth of the parties, at least one
  zcdp-nfl     the paper's algorithm with the parameters that the planner finds for it, exact accounting, clients weighted
               equally, no typical values
  before       an older program (--before), with the keys of its time. It knows no typical values: in that mode it gets the
               mean +- 3 spreads as bounds
  diffprivlib  trusted centre with all records: LinearRegression and LogisticRegression of diffprivlib, pure epsilon
  adassp       trusted centre: AdaSSP (Wang 2018, Algorithm 2), for the same neighbours (one record replaced) and delta as
               Undertone, and exact composition of its three Gaussian releases
  alone        the party of median size by itself, not private, with a ridge penalty of 1 (l1 for losses with linear pieces)

Metrics on the held-out records, beside those of the best constant of the training records (null):

  squared               R^2, with the training mean as the null (0)
  absolute, huber       1 - MAE/MAE of the training median (0)
  quantile              1 - pinball loss/that of the training quantile (0)
  logistic, hinge       AUC (0.5)

Skill is (metric - null)/(pooled - null). Pooled is the same loss fitted without privacy to all training records, with the
features and the target clamped as in the mode. The metric uses the target as it is within its public bounds. Regret is
(L - L_pooled)/(L_null - L_pooled) with L the mean of the study's own loss, with the target clamped as in the study, once
on the held-out and once on the training records. The planner's range is one of regret.

Planning reads no data, so one plan serves all seeds and all splits, which have the same number of records in the mean.
Results are appended to OUT/results.csv. A run that was interrupted continues where it stopped; start with a new folder
when the program has changed.
"""
import argparse
import csv
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import cache
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # two processes run at a time

import numpy as np
import pandas as pd
from scipy import optimize, sparse, special, stats
from sklearn.metrics import roc_auc_score

from sets import QUICK, SETS, YES, bounds, load, typical

HERE = Path(__file__).parent
DELTA = 1e-5
HELD_OUT = 0.3
ROUNDS = 200
EPSILONS = [0.5, 1.0, 2.0, 10.0]
SPLITS = ["even", "uneven", "tiny"]
MODES = ["typical", "bounds"]
METHODS = {  # with their modes
    "undertone": MODES, "masks": MODES, "before": MODES, "zcdp-nfl": ["bounds"], "diffprivlib": MODES, "adassp": MODES, "alone": ["bounds"],
}
CENTRAL = {"diffprivlib": ["squared", "logistic"], "adassp": ["squared"]}  # their losses
KEY = ["set", "loss", "split", "epsilon", "mode", "method", "seed"]
FIELDS = [*KEY, "metric", "null", "pooled", "skill", "planned_low", "planned_high", "planned_median", "regret_held_out", "regret_training"]


# Losses, and models without privacy

def losses(loss, z, y, threshold=None):
    """The loss of every record at the score z; classes are y = -1 and 1."""
    kind, _, level = loss.partition("-")
    r = z - y
    match kind:
        case "squared": return r * r
        case "absolute": return np.abs(r)
        case "huber": return np.where(np.abs(r) <= threshold, r * r / 2, threshold * (np.abs(r) - threshold / 2))
        case "quantile": return np.maximum(-float(level) * r, (1 - float(level)) * r)
        case "logistic": return np.logaddexp(0, -y * z)
        case "hinge": return np.maximum(0, 1 - y * z)


def fit(loss, x, y, threshold=None, penalty=1e-6):
    """Intercept and weights of the least sum of losses plus a penalty on the weights of the standardised features:
    penalty/2 ||w||^2, or penalty ||w||_1 for losses with linear pieces, which are a linear programme."""
    kind, _, level = loss.partition("-")
    centre, spread = x.mean(0), x.std(0)
    spread[spread < 1e-12] = np.inf  # a column that does not vary here gets no weight
    a = np.column_stack([np.ones(len(x)), (x - centre) / spread])
    unit = 1.0 if kind in ("logistic", "hinge") else max(y.std(), 1e-12)
    y, penalised = y / unit, np.r_[0, np.ones(x.shape[1])]
    if kind in ("absolute", "quantile", "hinge"):
        rows, aim = (a * y[:, None], np.ones(len(y))) if kind == "hinge" else (a, y)
        above, below = {"absolute": (1, 1), "hinge": (1, 0)}.get(kind) or (float(level), 1 - float(level))
        each = np.ones(len(y))
        cost = np.concatenate([penalty * penalised, penalty * penalised, above * each, below * each])
        rows, eye = sparse.csr_array(rows), sparse.eye_array(len(y))
        found = optimize.linprog(cost, A_eq=sparse.hstack([rows, -rows, eye, -eye]), b_eq=aim, method="highs").x
        w = found[:a.shape[1]] - found[a.shape[1]:2 * a.shape[1]]
    else:
        slope = {
            "squared": lambda z: 2 * (z - y), "logistic": lambda z: -y * special.expit(-y * z),
            "huber": lambda z: np.clip(z - y, -threshold / unit, threshold / unit),
        }[kind]
        def objective(w):
            z, pull = a @ w, penalty * penalised * w
            total = losses(kind, z, y, threshold and threshold / unit).sum() + pull @ w / 2
            return total / len(y), (slope(z) @ a + pull) / len(y)
        w = optimize.minimize(objective, np.zeros(a.shape[1]), jac=True, method="L-BFGS-B",
                              options=dict(maxiter=20_000, maxfun=40_000, maxcor=50, ftol=1e-15, gtol=1e-9)).x
    w = unit * w
    weights = w[1:] / spread
    return np.r_[w[0] - weights @ centre, weights]


def score(w, x):
    return w[0] + x @ w[1:]


# The records of one hold-out

def limits(name, mode):
    """The range to which every column of numbers is clamped."""
    ranges = dict(bounds(SETS[name]))
    if mode == "typical":
        for column, (mean, spread) in typical(name).items():
            low, high = ranges[column]
            ranges[column] = (max(low, mean - 3 * spread), min(high, mean + 3 * spread))
    return ranges


class Case:
    """A data set with a loss, divided by a seed, and what the pooled and the constant model reach in every mode."""

    def __init__(self, name, loss, seed):
        self.name, self.loss, self.seed, self.set = name, loss, seed, SETS[name]
        frame = load(name)
        order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(len(frame))
        held = round(HELD_OUT * len(frame))
        self.test, self.train = frame.iloc[order[:held]], frame.iloc[order[held:]]
        self.clients = 5 if len(frame) < 1000 else 10 if len(frame) < 2500 else 20
        self.names = ["intercept", *self.set.numbers, *(f"{c}={w}" for c, words in self.set.words.items() for w in words[1:])]
        self.pooled = cache(self.pooled)

    def features(self, frame, mode):
        ranges = limits(self.name, mode)
        numbers = [frame[c].clip(*ranges[c]) for c in self.set.numbers]
        words = [(frame[c] == word).astype(float) for c, listed in self.set.words.items() for word in listed[1:]]
        return np.column_stack([*numbers, *words]).astype(float)

    def target(self, frame, mode):
        values = frame[self.set.target]
        if self.set.range == YES:
            return np.where(values == YES[1], 1.0, -1.0)
        return values.clip(*limits(self.name, mode)[self.set.target]).to_numpy(float)

    def pooled(self, mode):
        """The weights of the pooled model, its metric, and the best constant."""
        x, y = self.features(self.train, mode), self.target(self.train, mode)
        w, null = (fit(self.loss, columns, y, self.set.threshold) for columns in (x, x[:, :0]))
        return w, self.metric(w, mode), null[0]

    def metric(self, w, mode):
        z, y = score(w, self.features(self.test, mode)), self.target(self.test, "bounds")
        if self.set.range == YES:
            return roc_auc_score(y, np.nan_to_num(z))
        measure = "absolute" if self.loss == "huber" else self.loss
        known = self.target(self.train, "bounds")
        constant = known.mean() if measure == "squared" else np.quantile(known, float(measure.partition("-")[2] or 0.5))
        return 1 - losses(measure, z, y).mean() / losses(measure, constant, y).mean()

    def regret(self, w, mode, frame):
        x, y = self.features(frame, mode), self.target(frame, mode)
        pooled, _, null = self.pooled(mode)
        reached = [losses(self.loss, z, y, self.set.threshold).mean() for z in (score(w, x), score(pooled, x), null)]
        return (reached[0] - reached[1]) / (reached[2] - reached[1])

    def judge(self, w, mode):
        """What is known of a model with these weights."""
        metric, pooled, null = self.metric(w, mode), self.pooled(mode)[1], 0.5 if self.set.range == YES else 0.0
        return dict(metric=metric, null=null, pooled=pooled, skill=(metric - null) / (pooled - null),
                    regret_held_out=self.regret(w, mode, self.test), regret_training=self.regret(w, mode, self.train))

    def split(self, kind):
        """The training records of every party."""
        frame, k = self.train, self.clients
        shares = np.ones(k)
        if kind == "uneven":
            shares = np.geomspace(1, 10, k)
            frame = frame.sort_values([*self.set.numbers, *self.set.words][0], kind="stable")
        sizes = np.diff(np.rint(np.r_[0, np.cumsum(shares)] / shares.sum() * len(frame)).astype(int))
        if kind == "tiny":
            others = np.linspace(0, len(frame) - 5, k).round().astype(int)
            sizes = np.r_[5, np.diff(others)]
        return np.split(np.arange(len(frame)), np.cumsum(sizes)[:-1]), frame


# Undertone

def party(k):
    return f"p{k:02}"


@cache
def edges(clients):
    """A ring of 5, else a random connected graph of mean degree 3. It is listed so that plan and runs share it."""
    if clients == 5:
        return [(k, (k + 1) % 5) for k in range(5)]
    random = np.random.default_rng(clients)
    found = {(int(random.integers(k)), k) for k in range(1, clients)}
    while len(found) < 3 * clients // 2:
        found.add(tuple(sorted(map(int, random.choice(clients, 2, replace=False)))))
    return sorted(found)


def study(case, epsilon, mode, weights="records", old=False, chosen=None, masks=False):
    """The text of a study; `chosen` are the parameters of an algorithm, by dotted key, in place of "auto"."""
    kind, _, level = case.loss.partition("-")
    ranges = limits(case.name, mode) if old else bounds(case.set)
    known = typical(case.name) if mode == "typical" and not old else {}
    problem, data, privacy, algorithm = [f'loss = "{kind}"'], [], [], []
    if kind == "quantile":
        problem.append(f"level = {level}")
    if kind == "huber":  # the study's unit of the target
        low, high = ranges[case.set.target]
        unit = known[case.set.target][1] if known else (high - low) / 2
        problem.append(f"threshold = {case.set.threshold / unit}")
    records = round(len(case.train) / case.clients)
    if not old:
        problem.append(f'weights = "{weights}"')
        data.append(f"records = {records}")
    data += [f"bounds.{c} = {[float(v) for v in r]}" for c, r in ranges.items()]
    data += [f"typical.{c} = {list(pair)}" for c, pair in known.items()]
    words = {**case.set.words, **({case.set.target: YES} if case.set.range == YES else {})}
    data += [f"categories.{c} = {json.dumps(listed)}" for c, listed in words.items()]
    if masks:
        privacy.append(f"colluders = {max(1, case.clients // 5)}")
    for key, value in (chosen or {}).items():
        table, _, key = key.partition(".")
        try:
            float(value)
        except ValueError:
            value = json.dumps(value)
        {"algorithm": algorithm, "privacy": privacy}[table].append(f"{key} = {value}")
    lines = [
        f'name = "{case.name}"', f"rounds = {ROUNDS}", *([] if chosen else ['algorithm = "auto"']),
        "[problem]", *problem,
        "[data]", 'source = "folder"', f"features = {json.dumps([*case.set.numbers, *case.set.words])}",
        f'target = "{case.set.target}"', "intercept = true", 'outside = "clamp"', *data,
        "[graph]", 'kind = "edges"', f"edges = {json.dumps([[party(k) for k in pair] for pair in edges(case.clients)])}",
        "[privacy]", f"epsilon = {epsilon}", f"delta = {DELTA}", 'noise = "fast"', *privacy,
        "[simulation]", "central = false", f"metrics_every = {ROUNDS}",
        *(["[plan]", f"records = {records}"] if old else []), *(["[algorithm]", *algorithm] if chosen else []),
    ]
    return "\n".join(lines) + "\n"


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
    return done.stdout


def plan_files(text, program, out):
    """Where the plan of a study is kept: the study as planned and the planner's report."""
    digest = hashlib.sha256(f"{program}\n{text}".encode()).hexdigest()[:16]
    return out / "plans" / f"{digest}.toml", out / "plans" / f"{digest}.json"


def make_plan(text, program, out):
    planned, report = plan_files(text, program, out)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "study.toml").write_text(text)
        quick = ["--quick"] if "colluders" in text else []  # an older program does not know it
        found = json.loads(call(program, "plan", folder / "study.toml", "--json", "--out", folder / "planned.toml", *quick))
        for row in found["algorithms"]:
            row.pop("noised_rounds", None)  # long
        planned.write_text((folder / "planned.toml").read_text())
        report.write_text(json.dumps(found, indent=1))


def study_to_plan(case, epsilon, mode, method, options):
    """The study of a method, before planning, and the program that plans and runs it."""
    if method == "before":
        return study(case, epsilon, mode, old=True), options.before
    weights = "clients" if method == "zcdp-nfl" else "records"
    return study(case, epsilon, mode, weights, options.old_keys, masks=method == "masks"), options.program


def simulate(case, folder, epsilon, mode, method, options):
    """The weights of the model that the parties learn, and the planned range of the regret."""
    text, program = study_to_plan(case, epsilon, mode, method, options)
    planned, report = plan_files(text, program, options.out)
    rows, foreseen = json.loads(report.read_text())["algorithms"], {}
    if method == "zcdp-nfl":
        row = next(row for row in rows if row["algorithm"] == "zcdp-nfl")
        chosen = {"algorithm.name": "zcdp-nfl", **row["parameters"]}
        planned = folder / "zcdp-nfl.toml"
        planned.write_text(study(case, epsilon, mode, "clients", options.old_keys, chosen))
    elif "regret" in rows[0]:
        regret = rows[0]["regret"]
        foreseen = dict(planned_low=regret["q10"], planned_high=regret["q90"], planned_median=regret["median"])
    with tempfile.TemporaryDirectory() as out:
        call(program, "simulate", planned, "--data", folder / "data", "--out", f"{out}/run", "--threads", 1, "--set", f"seed={case.seed}")
        model = json.loads(Path(out, "run", "model.json").read_text())
    return np.array([model["intercept"], *(model["coefficients"][c] for c in case.names[1:])]), foreseen


# Trusted centres

def for_centre(case, mode):
    """Training features for a mechanism that needs a bound on the norm: in the mode `bounds` every column is scaled to
    [-1, 1]; typical values become 0 and 1, and a record is at most sqrt(2) times as long as a typical one."""
    x, ranges, known = case.features(case.train, mode), limits(case.name, mode), typical(case.name) if mode == "typical" else {}
    middle, unit = np.full(x.shape[1], 0.5), np.full(x.shape[1], 0.5)
    for i, c in enumerate(case.set.numbers):
        low, high = ranges[c]
        middle[i], unit[i] = known.get(c, ((low + high) / 2, (high - low) / 2))
    return (x - middle) / unit, middle, unit, math.sqrt(x.shape[1] * (2 if known else 1))


def original(intercept, weights, middle, unit):
    return np.r_[intercept - (weights / unit) @ middle, weights / unit]


def diffprivlib(case, epsilon, mode):
    from diffprivlib.models import LinearRegression, LogisticRegression
    x, middle, unit, norm = for_centre(case, mode)
    y = case.target(case.train, mode)
    random = np.random.RandomState(case.seed)
    if case.loss == "squared":
        ranges = limits(case.name, mode)
        low = (np.array([ranges[c][0] if c in ranges else 0 for c in case.names[1:]]) - middle) / unit
        high = (np.array([ranges[c][1] if c in ranges else 1 for c in case.names[1:]]) - middle) / unit
        model = LinearRegression(epsilon=epsilon, bounds_X=(low, high), bounds_y=ranges[case.set.target], random_state=random)
    else:
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=random)
    model.fit(x, y)
    return original(float(np.ravel(model.intercept_)[0]), np.ravel(model.coef_), middle, unit)


def gaussian_mu(epsilon, delta):
    """The sensitivity over the standard deviation with which a Gaussian release is exactly (epsilon, delta)-private."""
    def exceeds(mu):
        tail = stats.norm.logcdf(-epsilon / mu - mu / 2)
        return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + tail) - delta
    return optimize.brentq(exceeds, 1e-4, 20)


def adassp(case, epsilon, mode):
    """The sums x x^T and x y with noise and a ridge penalty that depends on the noise. A third of the (zCDP) budget goes
    to each of the least eigenvalue and the two sums. Replacing a record of norm up to b and target up to top changes
    them by at most b^2, sqrt(2) b^2 and 2 b top."""
    x, middle, unit, norm = for_centre(case, mode)
    random = np.random.default_rng([case.seed, 77])
    low, high = limits(case.name, mode)[case.set.target]
    centre = typical(case.name)[case.set.target][0] if mode == "typical" else (low + high) / 2
    half = max(high - centre, centre - low)
    y = (case.target(case.train, mode) - centre) / half
    x, b, top = np.column_stack([np.ones(len(x)), x]), math.sqrt(1 + norm**2), 1.0
    shrink = np.minimum(1, b / np.linalg.norm(x, axis=1))
    x, y, d = x * shrink[:, None], y * shrink, x.shape[1]
    sigma = math.sqrt(3) / gaussian_mu(epsilon, DELTA)
    gram = x.T @ x
    least = np.linalg.eigvalsh(gram)[0] + sigma * b**2 * (random.normal() - math.sqrt(math.log(6 / DELTA)))
    noise = np.triu(random.normal(size=(d, d)))
    gram = gram + math.sqrt(2) * sigma * b**2 * (noise + np.triu(noise, 1).T)
    moment = x.T @ y + 2 * sigma * b * top * random.normal(size=d)
    size = math.sqrt(2) * sigma * b**2 * math.sqrt(d * math.log(2 * d * d / 0.05))  # of the noise in gram, at 95%
    w = half * np.linalg.solve(gram + max(0.0, size - max(least, 0.0)) * np.eye(d), moment)
    return original(w[0] + centre, w[1:], middle, unit)


# The runs

def alone(case, parts, frame):
    own = frame.iloc[sorted(parts, key=len)[len(parts) // 2]]
    x, y = case.features(own, "bounds"), case.target(own, "bounds")
    return fit(case.loss, x, y, case.set.threshold, penalty=1.0)


def run_case(name, loss, seed, wanted, options):
    """The rows of results.csv for one data set, loss and seed; wanted are (split, epsilon, mode, method)."""
    warnings.filterwarnings("ignore")
    case, rows = Case(name, loss, seed), []
    for split in dict.fromkeys(w[0] for w in wanted):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "data").mkdir()
            parts, frame = case.split(split)
            for k, part in enumerate(parts):
                frame.iloc[part].to_csv(folder / "data" / f"{party(k)}.csv", index=False)
            for _, epsilon, mode, method in (w for w in wanted if w[0] == split):
                foreseen = {}
                try:
                    match method:
                        case "diffprivlib": w = diffprivlib(case, epsilon, mode)
                        case "adassp": w = adassp(case, epsilon, mode)
                        case "alone": w = alone(case, parts, frame)
                        case _: w, foreseen = simulate(case, folder, epsilon, mode, method, options)
                except (RuntimeError, OSError) as error:
                    print(f"{name} {loss} {split} {epsilon} {mode} {method} {seed}: {error}", file=sys.stderr)
                    continue
                key = dict(zip(KEY, [name, loss, split, epsilon, mode, method, seed]))
                rows.append(key | foreseen | case.judge(w, mode))
    return rows


def wanted_runs(options):
    """(set, loss, seed): list of (split, epsilon, mode, method)."""
    runs = {}
    for name, seed in product(options.sets, range(1, options.seeds + 1)):
        for loss, method in product(SETS[name].losses, options.methods):
            if loss not in CENTRAL.get(method, [loss]):
                continue
            splits = ["all"] if method in CENTRAL else options.splits  # a centre has all records, however they are split
            epsilons = [math.inf] if method == "alone" else options.epsilons
            modes = [mode for mode in METHODS[method] if mode in options.modes]
            runs.setdefault((name, loss, seed), []).extend((*w, method) for w in product(splits, epsilons, modes))
    return runs


def main():
    options = parse()
    (options.out / "plans").mkdir(parents=True, exist_ok=True)
    results = options.out / "results.csv"
    if not results.exists():
        results.write_text(",".join(FIELDS) + "\n")
    with results.open() as file:
        done = {tuple(row[c] for c in KEY) for row in csv.DictReader(file)}
    runs = {}
    for (name, loss, seed), listed in wanted_runs(options).items():
        rest = [w for w in listed if tuple(map(str, (name, loss, *w, seed))) not in done]
        if rest:
            runs[name, loss, seed] = rest
    plans = {}
    for (name, loss, seed), listed in runs.items():
        for _, epsilon, mode, method in listed:
            if method in ("undertone", "masks", "before", "zcdp-nfl"):
                text, program = study_to_plan(Case(name, loss, seed), epsilon, mode, method, options)
                if not plan_files(text, program, options.out)[1].exists():
                    plans[text, program] = f"{name} {loss} {epsilon} {mode}"
    with ThreadPoolExecutor(options.processes) as pool:
        started = {pool.submit(make_plan, *study, options.out): what for study, what in plans.items()}
        for count, future in enumerate(as_completed(started), 1):
            error = future.exception()
            print(f"plan {count} of {len(started)}: {started[future]}{f': {error}' if error else ''}", flush=True)
    missing = 0
    with ProcessPoolExecutor(options.processes) as pool, results.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        started = {pool.submit(run_case, *key, listed, options): key for key, listed in runs.items()}
        for count, future in enumerate(as_completed(started), 1):
            rows = future.result()
            writer.writerows(rows)
            file.flush()
            missing += len(runs[started[future]]) - len(rows)
            print(f"case {count} of {len(started)}: {' '.join(map(str, started[future]))}", flush=True)
    from summary import summarise
    summarise(options.out)
    if missing:
        sys.exit(f"{missing} runs failed; the same command tries them again")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    several = dict(nargs="+", metavar="X")
    parser.add_argument("--sets", choices=SETS, default=list(SETS), **several)
    parser.add_argument("--epsilons", type=float, default=EPSILONS, **several)
    parser.add_argument("--splits", choices=SPLITS, default=SPLITS, **several)
    parser.add_argument("--modes", choices=MODES, default=MODES, **several)
    parser.add_argument("--methods", choices=METHODS, default=list(METHODS), **several)
    parser.add_argument("--seeds", type=int, default=3, help="number of hold-outs")
    parser.add_argument("--quick", action="store_true", help="four sets, one seed, epsilon 1, the splits even and tiny")
    parser.add_argument("--out", type=Path, default=HERE / "out")
    parser.add_argument("--program", type=Path, default=HERE.parent.parent / "target" / "release" / "undertone")
    parser.add_argument("--before", type=Path, help="an older program, run with the keys of its time")
    parser.add_argument("--old-keys", action="store_true", help="--program is an older one too")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.quick:
        options.sets, options.seeds, options.epsilons, options.splits = list(QUICK), 1, [1.0], ["even", "tiny"]
    if not options.before:
        options.methods = [method for method in options.methods if method != "before"]
    return options


def chosen_pairs(seeds=5):
    """Prints the sets with their sizes, losses and pooled metrics."""
    print("set           records  features  parties  loss            null  pooled: bounds  typical")
    for name, chosen in SETS.items():
        for loss in chosen.losses:
            cases = [Case(name, loss, seed) for seed in range(1, seeds + 1)]
            pooled = [statistics.mean(c.pooled(mode)[1] for c in cases) for mode in ("bounds", "typical")]
            null = 0.5 if chosen.range == YES else 0
            print(f"{name:<13} {len(load(name)):>7}  {len(cases[0].names) - 1:>8}  {cases[0].clients:>7}  {loss:<14} {null:>5}  {pooled[0]:>14.3f}  {pooled[1]:>7.3f}")


if __name__ == "__main__":
    main()
