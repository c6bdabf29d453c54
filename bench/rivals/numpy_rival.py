"""The paper's network in NumPy, vectorised over trials and clients. Prints client-rounds per second.

All trials of a client sit side by side, so that the two products with its data are matrix-matrix products.
"""
import sys
import time

import numpy as np

K, M, P, ROUNDS = 50, 50, 8, 200
RHO, ETA, CLIP, PHI = 0.5, 0.5, 3.0, 1e-4


def network(rng):
    order = rng.permutation(K)
    edges = {tuple(sorted((order[i], order[rng.integers(i)]))) for i in range(1, K)}
    while len(edges) < 75:
        a, b = rng.integers(K, size=2)
        if a != b:
            edges.add((min(a, b), max(a, b)))
    adjacency = np.zeros((K, K))
    for a, b in edges:
        adjacency[a, b] = adjacency[b, a] = 1.0
    return adjacency


def data(rng):
    x = rng.standard_normal((K, M, P))
    truth = rng.standard_normal(P)
    return x, x @ truth + 0.1 * rng.standard_normal((K, M))


def run(x, y, adjacency, trials, rng):
    degree = adjacency.sum(1)
    weight = np.minimum(1.0, CLIP / np.linalg.norm(x, axis=2))[:, :, None] / M
    xt = np.ascontiguousarray(x.transpose(0, 2, 1))
    y = y[:, :, None]
    public = np.zeros((K, P, trials))
    gamma = np.zeros((K, P, trials))
    laplacian = np.diag(degree) - adjacency
    for n in range(1, ROUNDS + 1):
        slope = np.matmul(x, public)
        slope -= y
        np.sign(slope, out=slope)
        slope *= weight
        step = np.matmul(xt, slope)
        pull = RHO * (laplacian @ public.reshape(K, -1)).reshape(K, P, trials)
        gamma += pull
        a = (2 * RHO * degree + np.sqrt(n) / ETA)[:, None, None]
        step += gamma
        step += pull
        step /= a
        w = public - step
        sigma = 2 * CLIP / (M * a) / np.sqrt(2 * PHI)
        public = rng.standard_normal((K, P, trials))
        public *= sigma
        public += w
    return w


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rng = np.random.default_rng(1)
    x, y = data(rng)
    adjacency = network(rng)
    run(x, y, adjacency, trials, rng)
    start = time.perf_counter()
    w = run(x, y, adjacency, trials, rng)
    assert np.isfinite(w).all()
    print(f"{K * ROUNDS * trials / (time.perf_counter() - start):.6e}")
