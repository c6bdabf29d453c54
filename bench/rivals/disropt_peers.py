"""Rounds per second of disropt 0.1.9: ten agents, each an MPI process of its own, on one machine.

usage: disropt_peers.py [ROUNDS]

In a virtual environment with peers-requirements-disropt.txt, after `apt-get install libopenmpi-dev openmpi-bin`. The script calls mpirun
on itself. One round is one step of disropt's own `Consensus`: the agent sends its P numbers to its 3 neighbours (a ring and its
diameters), waits for theirs, takes the weighted mean, and then one gradient step of least squares on 50 records of its own, in NumPy
(disropt's symbolic functions would only add to it). Timed are the rounds after a warm-up, until the slowest agent is through; starting MPI and
Python is not.

Messages go through shared memory, the fastest way MPI has; mpirun itself is kept to the loopback interface. disropt waits by asking MPI again
and again, which costs most where agents outnumber cores; mpirun is told to yield the core between two questions.
"""
import os
import subprocess
import sys
import time

PEERS, M, P = 10, 50, 8
WARMUP, ROUNDS = 100, 2000
STEP = 0.05


def neighbours(i):
    return sorted({(i + 1) % PEERS, (i - 1) % PEERS, (i + PEERS // 2) % PEERS})


def launch(rounds):
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "--oversubscribe", "-np", str(PEERS), "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    command += ["--mca", "btl", "self,vader", "--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "oob_tcp_if_include", "lo"]
    return subprocess.run([*command, sys.executable, os.path.abspath(__file__), str(rounds)], env=env).returncode


def agent(rounds):
    import numpy as np
    from disropt.agents import Agent
    from disropt.algorithms import Consensus
    from mpi4py import MPI

    class GradientStep(Consensus):
        def _update_local_solution(self, x, **kwargs):
            self.x = x - STEP / M * (features.T @ (features @ x - targets))

    comm = MPI.COMM_WORLD
    me = comm.Get_rank()
    truth = np.random.default_rng(0).standard_normal((P, 1))
    rng = np.random.default_rng(1 + me)
    features = rng.standard_normal((M, P))
    targets = features @ truth + 0.1 * rng.standard_normal((M, 1))
    near = neighbours(me)
    method = GradientStep(Agent(near, list(near), in_weights={j: 0.25 for j in near}), np.zeros((P, 1)))
    method.run(iterations=WARMUP)
    comm.Barrier()
    start = time.perf_counter()
    method.run(iterations=rounds)
    seconds = comm.reduce(time.perf_counter() - start, op=MPI.MAX)
    error = comm.reduce(float(np.abs(method.get_result() - truth).max()), op=MPI.MAX)
    if me == 0:
        assert error < 0.1, error
        print(f"{rounds / seconds:.2f}")


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        agent(rounds)
    else:
        sys.exit(launch(rounds))
