"""What users write, as type checkers see it."""

import numpy as np

import undertone as ut


def example() -> float:
    study = ut.Study(loss="squared", features={"age": (18, 90)}, target={"days": (0, 60)}, epsilon=2.0, delta=1e-5)
    plan: ut.Plan = study.plan(clients=3, quick=True)
    run: ut.Simulation = plan.study.simulate({"age": [20.0], "days": [3.0]}, groups=np.array(["a"]))
    skill: float = run.skill or 0.0
    peer = ut.Peer(study, "lakeside.key", "mine.csv", "state", max_epsilon=4.0, page=True)
    result: ut.PeerResult = peer.run(lambda news: print(news["round"]))
    answer: ut.Account = ut.account(epsilon=1.0, delta=1e-6)
    ut.PrivateRegressor(epsilon=answer["epsilon"]).fit([[1.0]], [1.0])
    return skill + result.seconds
