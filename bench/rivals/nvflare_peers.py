"""Rounds per second of NVFlare 2.7.2 among peers: its package `nvflare.app_opt.p2p` in its simulator, ten sites on one machine.

usage: nvflare_peers.py [ROUNDS]

In a virtual environment with peers-requirements-nvflare.txt. One round is one exchange of NVFlare's own `SyncAlgorithmExecutor`: the site
sends its P numbers to its 3 neighbours (a ring and its diameters), waits for theirs, takes the weighted mean, and then one gradient step of
least squares on 50 records of its own, in NumPy (`DGDExecutor`, in torch, would only add to it). Every site is a process of its own (as many threads as
sites, in the simulator's words). Timed are the rounds after a warm-up, until the slowest site is through; starting the simulator is not.

The sites talk over TCP, through the simulator's server, and every message waits for its reply. The simulator listens on all
interfaces and we found no setting against it, so it is started in a network namespace of its own (`unshare`, from util-linux, and `ip`) that
has nothing but the loopback interface.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import from_shareable
from nvflare.app_opt.p2p.executors.sync_executor import SyncAlgorithmExecutor

PEERS, M, P = 10, 50, 8
WARMUP, ROUNDS = 20, 300
STEP = 0.05
LOOPBACK_ONLY = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def neighbours(i):
    return sorted({(i + 1) % PEERS, (i - 1) % PEERS, (i + PEERS // 2) % PEERS})


class GradientStep(SyncAlgorithmExecutor):
    def __init__(self, results):
        super().__init__(sync_timeout=60)
        self.results = results

    def run_algorithm(self, fl_ctx, shareable, abort_signal):
        rounds = from_shareable(shareable).data["rounds"]
        truth = np.random.default_rng(0).standard_normal(P)
        rng = np.random.default_rng(self.id)
        features = rng.standard_normal((M, P))
        targets = features @ truth + 0.1 * rng.standard_normal(M)
        w = np.zeros(P)
        for n in range(WARMUP + rounds):
            if abort_signal.triggered:
                return
            if n == WARMUP:
                start = time.perf_counter()
            self._exchange_values(fl_ctx, value=w, iteration=n)
            received = self.neighbors_values.pop(n)
            w = self._weight * w + sum(near.weight * received[near.id] for near in self.neighbors)
            w = w - STEP / M * (features.T @ (features @ w - targets))
        seconds = time.perf_counter() - start
        found = {"seconds": seconds, "error": float(np.abs(w - truth).max())}
        Path(self.results, self.client_name).write_text(json.dumps(found))


def write_job(job, results, rounds):
    app = job / "app"
    (app / "config").mkdir(parents=True)
    (app / "custom").mkdir()
    shutil.copy(__file__, app / "custom" / "nvflare_peers.py")
    nodes = [
        {"id": f"site-{i + 1}", "neighbors": [{"id": f"site-{j + 1}", "weight": 0.25} for j in neighbours(i)]}
        for i in range(PEERS)
    ]
    network = {"path": "nvflare.app_opt.p2p.types.Config", "args": {"network": {"nodes": nodes}, "extra": {"rounds": rounds}}}
    controller = {"path": "nvflare.app_opt.p2p.controllers.DistOptController", "args": {"config": network}}
    executor = {"path": "nvflare_peers.GradientStep", "args": {"results": str(results)}}
    files = {
        job / "meta.json": {"name": "peers", "deploy_map": {"app": ["@ALL"]}, "min_clients": PEERS},
        app / "config" / "config_fed_server.json": {"format_version": 2, "workflows": [{"id": "controller", **controller}]},
        app / "config" / "config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["config", "run_algorithm"], "executor": executor}],
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2))


def main(rounds):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        results = folder / "results"
        results.mkdir()
        write_job(folder / "job", results, rounds)
        command = [*LOOPBACK_ONLY, sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(folder / "job")]
        command += ["-w", str(folder / "workspace"), "-n", str(PEERS), "-t", str(PEERS), "-l", "ERROR"]
        env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        log = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        found = [json.loads(path.read_text()) for path in results.iterdir()]
    if len(found) != PEERS:
        sys.exit(f"{len(found)} of {PEERS} sites finished\n{log}")
    assert max(site["error"] for site in found) < 0.1, found
    print(f"{rounds / max(site['seconds'] for site in found):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
