"""Makes solutions.json and trajectories.json, against which the tests compare.

Run it with:  python3 -m venv venv && venv/bin/pip install numpy scipy scikit-learn statsmodels && venv/bin/python make.py
It shares no code with Undertone: solutions come from scikit-learn and statsmodels, trajectories from the plain loops below.
"""
import json
import warnings
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from sklearn.linear_model import ElasticNet, LogisticRegression, QuantileRegressor, Ridge
from sklearn.svm import LinearSVC

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent


# ---- central solutions -----------------------------------------------------------------------------------------------

def problem_data(rng, sizes, features, labels=False):
    truth = rng.standard_normal(features)
    clients = []
    for size in sizes:
        x = rng.standard_normal((size, features))
        y = x @ truth + 0.5 * rng.standard_normal(size)
        clients.append((x, np.where(y > 0, 1.0, -1.0) if labels else y))
    return clients


def pooled(clients):
    x = np.concatenate([x for x, _ in clients])
    y = np.concatenate([y for _, y in clients])
    weight = np.concatenate([np.full(len(y), 1.0 / len(y)) for _, y in clients])
    return x, y, weight


def solutions():
    rng = np.random.default_rng(2024)
    cases = []

    def case(name, oracle, loss, regularizer, clients, w, tolerance):
        cases.append({
            "name": name, "oracle": oracle, "loss": loss, "regularizer": regularizer, "tolerance": tolerance,
            "clients": [{"x": x.tolist(), "y": y.tolist()} for x, y in clients], "w": np.asarray(w).tolist(),
        })

    uneven = problem_data(rng, [17, 23, 31], 4)
    x, y, weight = pooled(uneven)
    lam = 2.5
    # sum_j weight_j r_j^2 + lam |w|^2
    ridge = Ridge(alpha=lam, fit_intercept=False, solver="cholesky").fit(x, y, sample_weight=weight)
    case("ridge", "scikit-learn Ridge", {"loss": "squared"}, {"regularizer": "l2", "lambda": lam}, uneven, ridge.coef_, 1e-9)

    # scikit-learn divides the squares by twice the sum of the weights.
    total, l1, l2, lam = weight.sum(), 0.7, 0.4, 1.5
    one, two = lam * l1 / (2 * total), lam * l2 / (2 * total)
    alpha = one + 2 * two
    net = ElasticNet(alpha=alpha, l1_ratio=one / alpha, fit_intercept=False, tol=1e-14, max_iter=10**6)
    net.fit(x, y, sample_weight=weight)
    case("elastic net", "scikit-learn ElasticNet", {"loss": "squared"},
         {"regularizer": "elastic-net", "lambda": lam, "lambda1": l1, "lambda2": l2}, uneven, net.coef_, 1e-7)

    lam = 3.0
    one = lam / (2 * total)
    lasso = ElasticNet(alpha=one, l1_ratio=1.0, fit_intercept=False, tol=1e-14, max_iter=10**6)
    lasso.fit(x, y, sample_weight=weight)
    case("lasso", "scikit-learn ElasticNet with l1_ratio 1", {"loss": "squared"}, {"regularizer": "l1", "lambda": lam},
         uneven, lasso.coef_, 1e-7)

    quantile = QuantileRegressor(quantile=0.3, alpha=0.0, fit_intercept=False, solver="highs").fit(x, y, sample_weight=weight)
    case("quantile, uneven clients", "scikit-learn QuantileRegressor", {"loss": "quantile", "level": 0.3},
         {"regularizer": "none"}, uneven, quantile.coef_, 1e-7)

    even = problem_data(rng, [25, 25, 25, 25], 3)
    x, y, _ = pooled(even)
    lad = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False, solver="highs").fit(x, y)
    case("least absolute deviations", "scikit-learn QuantileRegressor", {"loss": "absolute"}, {"regularizer": "none"},
         even, lad.coef_, 1e-7)
    median = sm.QuantReg(y, x).fit(q=0.5, p_tol=1e-12, max_iter=100000).params
    case("least absolute deviations again", "statsmodels QuantReg", {"loss": "absolute"}, {"regularizer": "none"},
         even, median, 1e-4)
    huber = sm.RLM(y, x, M=sm.robust.norms.HuberT(t=0.4)).fit(scale_est=lambda model, resid: 1.0, tol=1e-14, maxiter=10000)
    case("huber", "statsmodels RLM with unit scale", {"loss": "huber", "threshold": 0.4}, {"regularizer": "none"},
         even, huber.params, 1e-7)

    labelled = problem_data(rng, [30, 30, 30], 3, labels=True)
    x, y, weight = pooled(labelled)
    lam = 0.5
    # scikit-learn: C sum_j loss_j + |w|^2/2; here sum_j loss_j/M + lam |w|^2.
    logistic = LogisticRegression(C=weight[0] / (2 * lam), fit_intercept=False, tol=1e-12, max_iter=100000, solver="newton-cholesky")
    case("logistic", "scikit-learn LogisticRegression", {"loss": "logistic"}, {"regularizer": "l2", "lambda": lam},
         labelled, logistic.fit(x, y).coef_[0], 1e-7)
    svm = LinearSVC(loss="hinge", C=weight[0] / (2 * lam), fit_intercept=False, tol=1e-12, max_iter=10**7, dual=True)
    case("hinge", "scikit-learn LinearSVC", {"loss": "hinge"}, {"regularizer": "l2", "lambda": lam},
         labelled, svm.fit(x, y).coef_[0], 1e-5)
    return cases


# ---- trajectories ----------------------------------------------------------------------------------------------------

def slope(loss, z, y):
    kind = loss["loss"]
    if kind == "squared":
        return 2 * (z - y)
    if kind == "absolute":
        return np.sign(z - y)
    if kind == "huber":
        return np.clip(z - y, -loss["threshold"], loss["threshold"])
    if kind == "quantile":
        return (1 - loss["level"]) * (z > y) - loss["level"] * (z < y)
    if kind == "logistic":
        return -y / (1 + np.exp(y * z))
    return -y * (y * z < 1)


def loss_gradient(loss, x, y, w, clip):
    """The mean of per-sample gradients, each clipped to norm `clip`."""
    total = np.zeros_like(w)
    for xj, yj in zip(x, y):
        g = slope(loss, xj @ w, yj) * xj
        norm = np.linalg.norm(g)
        total += g if clip is None or norm <= clip else g * (clip / norm)
    return total / len(y)


def regularizer_gradient(reg, w, clients):
    l1 = {"l1": 1.0, "elastic-net": reg.get("lambda1", 0.0)}.get(reg["regularizer"], 0.0)
    l2 = {"l2": 1.0, "elastic-net": reg.get("lambda2", 0.0)}.get(reg["regularizer"], 0.0)
    return reg.get("lambda", 1.0) / clients * (l1 * np.sign(w) + 2 * l2 * w)


def step_size(eta, decay, n):
    return {"constant": eta, "sqrt": eta / np.sqrt(n), "inverse": eta / n}[decay]


def trajectory(case, clients, neighbours, noise):
    """w_k(n) for all rounds, from Algorithm 1 of the paper and the papers of its rivals, with the noise given."""
    count, features = len(clients), clients[0][0].shape[1]
    algorithm = case["algorithm"]
    public = np.zeros((count, features))
    gamma = np.zeros((count, features))
    history = []
    for n, xi in enumerate(noise, start=1):
        w = np.zeros_like(public)
        for k, (x, y) in enumerate(clients):
            around = neighbours[k]
            g = loss_gradient(case["loss"], x, y, public[k], case["clip"])
            g = g + regularizer_gradient(case["regularizer"], public[k], count)
            if algorithm["name"] in ("zcdp-nfl", "dp-nfl"):
                rho, eta = algorithm["rho"], step_size(algorithm["eta"], algorithm["decay"], n)
                # argmin of <g, w> + |w - public|^2/(2 eta) + <gamma, w> + rho sum_l |w - (public_k + public_l)/2|^2
                right = public[k] / eta - g - gamma[k] + rho * sum(public[k] + public[l] for l in around)
                w[k] = right / (1 / eta + 2 * rho * len(around))
            elif algorithm["name"] == "zcdp-grad-nfl":
                eta = step_size(algorithm["eta"], algorithm["decay"], n)
                weights = {l: 1 / (1 + max(len(around), len(neighbours[l]))) for l in around}
                mixed = (1 - sum(weights.values())) * public[k] + sum(a * public[l] for l, a in weights.items())
                w[k] = mixed - eta * g
            else:
                w[k] = p_admm(case, x, y, k, public, gamma, around, count)
        history.append(w)
        public = w + xi
        if "rho" in algorithm:
            for k, around in enumerate(neighbours):
                gamma[k] = gamma[k] + algorithm["rho"] * sum(public[k] - public[l] for l in around)
    return history


def p_admm(case, x, y, k, public, gamma, around, count):
    """The exact primal minimiser by plain gradient descent."""
    rho = case["algorithm"]["rho"]
    middle = [(public[k] + public[l]) / 2 for l in around]
    w = public[k].copy()
    smooth = 2 * np.linalg.norm(x, 2) ** 2 / len(y) + 2 * case["regularizer"].get("lambda", 0.0) / count + 2 * rho * len(around)
    for _ in range(200000):
        g = loss_gradient(case["loss"], x, y, w, case["clip"]) + regularizer_gradient(case["regularizer"], w, count)
        g = g + gamma[k] + 2 * rho * sum(w - m for m in middle)
        if np.linalg.norm(g) < 1e-13:
            break
        w = w - g / smooth
    return w


def trajectories():
    rng = np.random.default_rng(7)
    neighbours = [[1, 2, 4], [0, 2], [0, 1, 3], [2, 4], [0, 3]]
    sizes = [3, 4, 9, 6, 5]
    zcdp = {"name": "zcdp-nfl", "rho": 0.7, "eta": 0.4, "decay": "sqrt"}
    net = {"regularizer": "elastic-net", "lambda": 1.5, "lambda1": 0.3, "lambda2": 0.2}
    none = {"regularizer": "none"}
    wanted = [
        ({"loss": "squared"}, net, zcdp, 1.5, 3),
        ({"loss": "absolute"}, none, zcdp, 1.2, 8),
        ({"loss": "absolute"}, none, {**zcdp, "decay": "inverse"}, None, 11),
        ({"loss": "huber", "threshold": 0.5}, {"regularizer": "l1", "lambda": 0.4}, {**zcdp, "decay": "constant"}, 0.6, 5),
        ({"loss": "quantile", "level": 0.25}, {"regularizer": "l2", "lambda": 0.4}, zcdp, 0.4, 2),
        ({"loss": "logistic"}, {"regularizer": "l2", "lambda": 0.4}, zcdp, 0.8, 1),
        ({"loss": "hinge"}, none, zcdp, 1.0, 4),
        ({"loss": "absolute"}, net, {**zcdp, "name": "dp-nfl"}, 1.0, 3),
        ({"loss": "squared"}, net, {"name": "zcdp-grad-nfl", "eta": 0.1, "decay": "constant"}, 1.5, 3),
        ({"loss": "absolute"}, none, {"name": "zcdp-grad-nfl", "eta": 0.3, "decay": "sqrt"}, 1.0, 9),
        ({"loss": "squared"}, {"regularizer": "l2", "lambda": 2.0}, {"name": "p-admm", "rho": 0.5}, 1.0, 3),
        ({"loss": "logistic"}, {"regularizer": "l2", "lambda": 2.0}, {"name": "p-admm", "rho": 0.5}, 0.5, 3),
        ({"loss": "squared"}, {"regularizer": "l2", "lambda": 2.0}, {"name": "p-admm-unclipped", "rho": 0.5}, None, 3),
    ]
    cases = []
    for loss, regularizer, algorithm, clip, features in wanted:
        labels = loss["loss"] in ("logistic", "hinge")
        clients = problem_data(rng, sizes, features, labels)
        noise = 0.2 * rng.standard_normal((12, len(sizes), features))
        case = {"loss": loss, "regularizer": regularizer, "algorithm": algorithm, "clip": clip}
        w = trajectory(case, clients, neighbours, noise)
        cases.append({
            **case,
            "neighbours": neighbours,
            "clients": [{"x": x.tolist(), "y": y.tolist()} for x, y in clients],
            "noise": noise.tolist(),
            "w": np.array(w).tolist(),
        })
    return cases


if __name__ == "__main__":
    for name, cases in [("solutions", solutions()), ("trajectories", trajectories())]:
        (HERE / f"{name}.json").write_text(json.dumps(cases, indent=0).replace("\n", "") + "\n")
        print(name, len(cases))
