"""What the tests share: hospitals with made-up records, and studies of them."""

import os
import pathlib
import socket
import warnings

import numpy as np
import pytest

import undertone as ut

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

SPEC = {
    "name": "recovery",
    "rounds": 30,
    "loss": "squared",
    "features": {"age": (18, 100), "dose": (0, 50), "smoker": ["no", "yes"]},
    "target": {"days": (0, 120)},
    "intercept": True,
    "outside": "clamp",
    "records": 60,
    "epsilon": 4,
    "delta": 1e-4,
    "clip": 0.5,
    "noise": "fast",
    "algorithm": {"name": "free-rounds", "data_rounds": 8, "eta": 1.0},
}


def study(**changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ut.Study(**{**SPEC, **changes})


@pytest.fixture
def spec():
    return study()


@pytest.fixture
def columns():
    """180 records of three hospitals as a dictionary of columns, and the hospital of each."""
    rng = np.random.default_rng(7)
    age, dose = rng.uniform(20, 90, 180), rng.uniform(0, 40, 180)
    smoker = rng.random(180) < 0.3
    days = 10 + 0.5 * age - 0.4 * dose + 12 * smoker + rng.normal(0, 4, 180)
    party = np.array(["lakeside", "northfield", "riverside"])[np.arange(180) % 3]
    return {"age": age, "dose": dose, "smoker": np.where(smoker, "yes", "no"), "days": days}, party


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def network(tmp_path, columns):
    """A study between three peers on loopback, with their keys and tables."""
    table, party = columns
    names = ["lakeside", "northfield", "riverside"]
    keys = {name: os.fspath(tmp_path / f"{name}.key") for name in names}
    parties = {name: {"id": ut.keygen(keys[name]), "address": f"127.0.0.1:{free_port()}"} for name in names}
    tables = {name: {key: values[party == name] for key, values in table.items()} for name in names}
    return study(parties=parties, noise="secure", graph="ring"), keys, tables, tmp_path
