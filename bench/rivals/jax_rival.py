"""The paper's network in JAX: one compiled loop over rounds, vmapped over trials, in double precision.

Prints client-rounds per second, compilation not counted.
"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from numpy_rival import CLIP, ETA, K, M, P, PHI, RHO, ROUNDS, data, network

jax.config.update("jax_enable_x64", True)


def build(x, y, adjacency):
    degree = jnp.asarray(adjacency.sum(1))
    laplacian = jnp.diag(degree) - adjacency
    weight = jnp.minimum(1.0, CLIP / jnp.linalg.norm(x, axis=2)) / M

    def trial(key):
        def step(state, n):
            public, gamma, key = state
            slope = jnp.sign(jnp.einsum("kmp,kp->km", x, public) - y) * weight
            gradient = jnp.einsum("kmp,km->kp", x, slope)
            pull = RHO * (laplacian @ public)
            gamma = gamma + pull
            a = (2 * RHO * degree + jnp.sqrt(n) / ETA)[:, None]
            w = public - (gradient + gamma + pull) / a
            key, sub = jax.random.split(key)
            sigma = 2 * CLIP / (M * a) / jnp.sqrt(2 * PHI)
            return (w + sigma * jax.random.normal(sub, (K, P)), gamma, key), None

        zero = jnp.zeros((K, P))
        rounds = jnp.arange(1.0, ROUNDS + 1)
        (public, _, _), _ = jax.lax.scan(step, (zero, zero, key), rounds)
        return public

    return jax.jit(jax.vmap(trial))


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rng = np.random.default_rng(1)
    x, y = data(rng)
    run = build(jnp.asarray(x), jnp.asarray(y), network(rng))
    keys = jax.random.split(jax.random.key(1), trials)
    run(keys).block_until_ready()
    start = time.perf_counter()
    result = run(keys).block_until_ready()
    seconds = time.perf_counter() - start
    assert bool(jnp.isfinite(result).all())
    print(f"{K * ROUNDS * trials / seconds:.6e}")
