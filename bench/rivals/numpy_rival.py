"""The paper's network in NumPy, vectorised over trials and clients. Prints client-rounds per second.

usage: numpy_rival.py shared|own [TRIALS]

shared: all trials run on the same data. The trials of a client sit side by side, so that the two products with its data are
        matrix-matrix products: the best case for NumPy.
own:    every trial has data and a graph of its own. Batched matmul was the fastest of batched matmul, einsum, and einsum with the
        batch as the last axis.
"""
import sys
import time

import numpy as np

K, M, P, ROUNDS = 50, 50, 8, 200
RHO, ETA, CLIP, PHI = 0.5, 0.5, 3.0, 1e-4


def laplacian(rng):
    """A random spanning tree plus random edges up to mean degree 3."""
    order = rng.permutation(K)
    edges = {tuple(sorted((order[i], order[rng.integers(i)]))) for i in range(1, K)}
    while len(edges) < 75:
        a, b = rng.integers(K, size=2)
        if a != b:
            edges.add((min(a, b), max(a, b)))
    adjacency = np.zeros((K, K))
    for a, b in edges:
        adjacency[a, b] = adjacency[b, a] = 1.0
    return np.diag(adjacency.sum(1)) - adjacency


def data(rng):
    x = rng.standard_normal((K, M, P))
    truth = rng.standard_normal(P)
    return x, x @ truth + 0.1 * rng.standard_normal((K, M))


def slope_weights(x):
    """What clipping leaves of the slopes -1 and 1, divided by M."""
    return np.minimum(1.0, CLIP / np.linalg.norm(x, axis=-1)) / M


def run_shared(x, y, lap, trials, rng):
    degree = np.diag(lap)
    weight = slope_weights(x)[:, :, None]
    xt = np.ascontiguousarray(x.transpose(0, 2, 1))
    y = y[:, :, None]
    public = np.zeros((K, P, trials))
    gamma = np.zeros((K, P, trials))
    for n in range(1, ROUNDS + 1):
        slope = np.matmul(x, public)
        slope -= y
        np.sign(slope, out=slope)
        slope *= weight
        step = np.matmul(xt, slope)
        pull = RHO * (lap @ public.reshape(K, -1)).reshape(K, P, trials)
        gamma += pull
        a = (2 * RHO * degree + np.sqrt(n) / ETA)[:, None, None]
        step += gamma
        step += pull
        step /= a
        public -= step
        noise = rng.standard_normal((K, P, trials))
        noise *= 2 * CLIP / (M * a) / np.sqrt(2 * PHI)
        public += noise
    return public


def run_own(x, y, lap, trials, rng):
    degree = np.diagonal(lap, axis1=1, axis2=2)
    weight = slope_weights(x)
    xt = np.ascontiguousarray(x.transpose(0, 1, 3, 2))
    public = np.zeros((trials, K, P))
    gamma = np.zeros((trials, K, P))
    for n in range(1, ROUNDS + 1):
        slope = np.matmul(x, public[..., None])[..., 0]
        slope -= y
        np.sign(slope, out=slope)
        slope *= weight
        step = np.matmul(xt, slope[..., None])[..., 0]
        pull = RHO * (lap @ public)
        gamma += pull
        a = (2 * RHO * degree + np.sqrt(n) / ETA)[:, :, None]
        step += gamma
        step += pull
        step /= a
        public -= step
        noise = rng.standard_normal((trials, K, P))
        noise *= 2 * CLIP / (M * a) / np.sqrt(2 * PHI)
        public += noise
    return public


def inputs(kind, trials, rng):
    if kind == "shared":
        return (*data(rng), laplacian(rng))
    drawn = [(*data(rng), laplacian(rng)) for _ in range(trials)]
    return tuple(np.stack(part) for part in zip(*drawn))


if __name__ == "__main__":
    kind = sys.argv[1]
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    rng = np.random.default_rng(1)
    given = inputs(kind, trials, rng)
    run = {"shared": run_shared, "own": run_own}[kind]
    run(*given, trials, rng)
    start = time.perf_counter()
    result = run(*given, trials, rng)
    seconds = time.perf_counter() - start
    assert np.isfinite(result).all()
    print(f"{K * ROUNDS * trials / seconds:.6e}")
