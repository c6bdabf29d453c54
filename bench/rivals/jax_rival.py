"""The paper's network in JAX: one compiled loop over rounds, vmapped over trials, in double precision.

usage: jax_rival.py shared|own [TRIALS]

Prints client-rounds per second; compilation is not counted. `shared` and `own` as in numpy_rival.py.
"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from numpy_rival import CLIP, ETA, K, M, P, PHI, RHO, ROUNDS, inputs

jax.config.update("jax_enable_x64", True)


def trial(key, x, y, lap):
    degree = jnp.diag(lap)
    weight = jnp.minimum(1.0, CLIP / jnp.linalg.norm(x, axis=2)) / M

    def step(state, n):
        public, gamma, key = state
        slope = jnp.sign(jnp.einsum("kmp,kp->km", x, public) - y) * weight
        gradient = jnp.einsum("kmp,km->kp", x, slope)
        pull = RHO * (lap @ public)
        gamma = gamma + pull
        a = (2 * RHO * degree + jnp.sqrt(n) / ETA)[:, None]
        w = public - (gradient + gamma + pull) / a
        key, sub = jax.random.split(key)
        sigma = 2 * CLIP / (M * a) / jnp.sqrt(2 * PHI)
        return (w + sigma * jax.random.normal(sub, (K, P)), gamma, key), None

    zero = jnp.zeros((K, P))
    (public, _, _), _ = jax.lax.scan(step, (zero, zero, key), jnp.arange(1.0, ROUNDS + 1))
    return public


if __name__ == "__main__":
    kind = sys.argv[1]
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    given = [jnp.asarray(part) for part in inputs(kind, trials, np.random.default_rng(1))]
    axis = None if kind == "shared" else 0
    run = jax.jit(jax.vmap(trial, in_axes=(0, axis, axis, axis)))
    keys = jax.random.split(jax.random.key(1), trials)
    run(keys, *given).block_until_ready()
    start = time.perf_counter()
    result = run(keys, *given).block_until_ready()
    seconds = time.perf_counter() - start
    assert bool(jnp.isfinite(result).all())
    print(f"{K * ROUNDS * trials / seconds:.6e}")
