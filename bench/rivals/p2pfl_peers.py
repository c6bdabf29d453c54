"""Rounds per second of p2pfl 0.4.4: ten nodes in one process, on its in-memory transport.

usage: p2pfl_peers.py [ROUNDS] [default]

In a virtual environment with peers-requirements-p2pfl.txt. A round is what p2pfl makes of it: the nodes vote who trains (all of them),
everyone takes one gradient step of least squares on P numbers and 50 records of its own, in NumPy, and models are gossiped until every node has
the mean of all ten. That is more than an exchange with the 3 neighbours (a ring and its diameters), over which p2pfl's messages
travel; it has no round that stops there. Timed are the rounds after a warm-up, from one training call to a later one, by the slowest node;
starting up, connecting and spreading the first model are not.

p2pfl polls: as it comes, it gossips messages every 0.1 s and models every second, two at a time. With `default` this stays; without it both
intervals are POLL and models go to all at once. Set in both cases, because ten nodes did not get through otherwise: models go one by one
(partial sums that overlap block each other), an announced model that was dropped may be announced again after 0.3 s instead of 60, and a gossip is
not given up after ten polls without news. It remembers 1000 messages instead of 100, to recognise those it has seen; 10,000 made rounds slower, as
it looks through them one by one. The in-memory transport is the one on which ten nodes worked: over gRPC, whose server has two threads that can
wait for each other, they ran into its timeout of 10 s again and again. Ray and logging are off.
"""
import os
import sys
import tempfile
import time

PEERS, M, P = 10, 50, 8
WARMUP, ROUNDS = 5, 50
STEP = 0.05
POLL = 0.01

if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "default"]
    rounds = int(words[0]) if words else ROUNDS
    logs = tempfile.TemporaryDirectory()

    from p2pfl.settings import Settings  # before everything else of p2pfl, which reads some of it on import

    Settings.general.DISABLE_RAY = True
    Settings.general.LOG_LEVEL = "CRITICAL"
    Settings.general.LOG_DIR = logs.name
    Settings.general.RESOURCE_MONITOR_PERIOD = 3600
    Settings.heartbeat.TIMEOUT = 60.0
    Settings.gossip.MODE_EXPECTATION_TIMEOUT = 0.3
    Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 10**9
    Settings.gossip.AMOUNT_LAST_MESSAGES_SAVED = 1000
    if "default" not in sys.argv[1:]:
        Settings.gossip.PERIOD = POLL
        Settings.gossip.MODELS_PERIOD = POLL
        Settings.gossip.MODELS_PER_ROUND = PEERS

import numpy as np
from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol
from p2pfl.learning.aggregators.fedavg import FedAvg
from p2pfl.learning.frameworks.learner import Learner
from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel
from p2pfl.node import Node


def neighbours(i):
    return sorted({(i + 1) % PEERS, (i - 1) % PEERS, (i + PEERS // 2) % PEERS})


def data(i):
    truth = np.random.default_rng(0).standard_normal(P)
    rng = np.random.default_rng(1 + i)
    features = rng.standard_normal((M, P))
    return features, features @ truth + 0.1 * rng.standard_normal(M)


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
    def __init__(self, i):
        super().__init__()
        self.features, self.targets = data(i)
        self.calls = []

    def fit(self):
        self.calls.append(time.perf_counter())
        model = self.get_model()
        model.model = model.model - STEP / M * (self.features.T @ (self.features @ model.model - self.targets))
        model.set_contribution([self.addr], M)
        return model

    def evaluate(self):
        return {}

    def interrupt_fit(self):
        pass

    def get_framework(self):
        return "numpy"


def descent(steps):
    """What the nodes must arrive at: gradient descent on the records of all."""
    features, targets = (np.concatenate(part) for part in zip(*map(data, range(PEERS))))
    w = np.zeros(P)
    for _ in range(steps):
        w = w - STEP / (M * PEERS) * (features.T @ (features @ w - targets))
    return w


def main(rounds):
    nodes = []
    for i in range(PEERS):
        parts = {"learner": GradientStep(i), "aggregator": FedAvg(disable_partial_aggregation=True)}
        nodes.append(Node(Weights(np.zeros(P)), Records(), f"node-{i}", protocol=MemoryCommunicationProtocol(), **parts))
        nodes[i].start()
    for i, node in enumerate(nodes):
        for j in neighbours(i):
            if i < j:
                node.connect(nodes[j].addr)
    while any(len(node.get_neighbors()) < PEERS - 1 for node in nodes):
        time.sleep(0.1)
    total = WARMUP + rounds + 1
    nodes[0].set_start_learning(rounds=total, epochs=1, trainset_size=PEERS)
    while not all(node.learning_workflow.finished for node in nodes):
        time.sleep(0.2)
    calls = [node.learner.calls for node in nodes]
    assert all(len(one) == total for one in calls), [len(one) for one in calls]
    assert all(np.allclose(node.get_model().model, descent(total), atol=1e-9) for node in nodes)
    print(f"{rounds / max(one[WARMUP + rounds] - one[WARMUP] for one in calls):.2f}", flush=True)


if __name__ == "__main__":
    main(rounds)
    logs.cleanup()
    os._exit(0)  # p2pfl's threads would keep the process
