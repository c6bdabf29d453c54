"""Rounds per second of p2pfl 0.4.4: ten nodes, each a process of its own, over gRPC on the loopback interface.

usage: p2pfl_peers.py [ROUNDS] [default]

In a virtual environment with peers-requirements-p2pfl.txt. A round is what p2pfl makes of it: the nodes vote who trains (all of them),
everyone takes one gradient step of least squares on P numbers and 50 records of its own, in NumPy, and models and partial sums are gossiped until every
node has the mean of all ten. That is more than an exchange with the 3 neighbours (a ring and its diameters), over which p2pfl's messages travel; it
has no round that stops there. Timed are the rounds after a warm-up, from one training call to a later one, by the slowest node; starting up,
connecting and spreading the first model are not.

p2pfl polls: it gossips messages every 0.1 s and models every second, as it comes. With `default` these stay; without it they are set to
MESSAGES and MODELS below, the fastest that we found. It gives up a gossip after ten polls without news, which at short intervals comes too soon and is
put off. Encryption (p2pfl brings no certificates), Ray and logging are off.
"""
import multiprocessing
import signal
import socket
import sys
import tempfile
import time

PEERS, M, P = 10, 50, 8
WARMUP, ROUNDS = 3, 20
STEP = 0.05
MESSAGES, MODELS = 0.01, 0.01


def neighbours(i):
    return sorted({(i + 1) % PEERS, (i - 1) % PEERS, (i + PEERS // 2) % PEERS})


def free_ports():
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(PEERS)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def node(me, ports, rounds, tuned, together, results, folder):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from p2pfl.settings import Settings

    Settings.general.DISABLE_RAY = True
    Settings.general.LOG_LEVEL = "CRITICAL"
    Settings.general.LOG_DIR = f"{folder}/{me}"
    Settings.general.RESOURCE_MONITOR_PERIOD = 3600
    Settings.ssl.USE_SSL = False
    Settings.heartbeat.TIMEOUT = 60.0
    if tuned:
        Settings.gossip.PERIOD = MESSAGES
        Settings.gossip.MODELS_PERIOD = MODELS
        Settings.gossip.MODELS_PER_ROUND = PEERS
        Settings.gossip.AMOUNT_LAST_MESSAGES_SAVED = 10000
        Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 10**9

    import numpy as np
    from p2pfl.learning.frameworks.learner import Learner
    from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel
    from p2pfl.node import Node

    class Weights(P2PFLModel):
        def get_parameters(self):
            return [self.model]

        def set_parameters(self, params):
            if isinstance(params, bytes):
                params, self.additional_info = self.decode_parameters(params)
            self.model = np.array(params[0])

        def get_framework(self):
            return "numpy"

    class Records:
        dataset_name, batch_size = "synthetic", M

    class GradientStep(Learner):
        calls = []

        def fit(self):
            self.calls.append(time.perf_counter())
            model = self.get_model()
            model.model = model.model - STEP / M * (features.T @ (features @ model.model - targets))
            model.set_contribution([self.addr], M)
            return model

        def evaluate(self):
            return {}

        def interrupt_fit(self):
            pass

        def get_framework(self):
            return "numpy"

    truth = np.random.default_rng(0).standard_normal(P)
    rng = np.random.default_rng(1 + me)
    features = rng.standard_normal((M, P))
    targets = features @ truth + 0.1 * rng.standard_normal(M)

    address = [f"127.0.0.1:{port}" for port in ports]
    peer = Node(Weights(np.zeros(P)), Records(), address[me], learner=GradientStep())
    peer.start()
    together.wait()
    for j in neighbours(me):
        if j > me:
            peer.connect(address[j])
    while len(peer.get_neighbors()) < PEERS - 1:
        time.sleep(0.1)
    together.wait()
    total = WARMUP + rounds + 1
    if me == 0:
        peer.set_start_learning(rounds=total, epochs=1, trainset_size=PEERS)
    while not peer.learning_workflow.finished:
        time.sleep(0.2)
    calls = GradientStep.calls
    error = float(np.abs(peer.get_model().model - truth).max())
    results.put((len(calls), calls[WARMUP + rounds] - calls[WARMUP] if len(calls) == total else None, error))
    together.wait()
    peer.stop()


def main(rounds, tuned):
    together, results = multiprocessing.Barrier(PEERS), multiprocessing.Queue()
    ports = free_ports()
    with tempfile.TemporaryDirectory() as folder:
        given = (ports, rounds, tuned, together, results, folder)
        processes = [multiprocessing.Process(target=node, args=(i, *given), daemon=True) for i in range(PEERS)]
        for process in processes:
            process.start()
        found = [results.get(timeout=280) for _ in range(PEERS)]
        for process in processes:
            process.join(10)
    total = WARMUP + rounds + 1
    assert all(calls == total for calls, _, _ in found), found
    # ten nodes that averaged every round have all come as far as gradient descent on all the records does
    bound = 3 * (1 - STEP) ** total + 0.1
    assert max(error for _, _, error in found) < bound, (found, bound)
    print(f"{rounds / max(seconds for _, seconds, _ in found):.2f}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the nodes end with this process, also under `timeout`
    words = [word for word in sys.argv[1:] if word != "default"]
    main(int(words[0]) if words else ROUNDS, "default" not in sys.argv[1:])
