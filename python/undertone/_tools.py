"""Questions about privacy: accounts, audits, keys and policies."""

from __future__ import annotations

import json
import os
import sys
from html import escape
from typing import Any, Callable, Optional, Union

import numpy as np

from . import _native
from ._frame import Frame
from ._study import Study


class Account(dict[str, Any]):
    """The answer of :func:`account`, as the program prints it with --json."""

    @property
    def table(self) -> Frame:
        """A row for every accountant."""
        asked = {key: value for key, value in self.items() if isinstance(value, dict)}
        names = list(next(iter(asked.values())))
        return Frame(accountant=names, **{key: np.array([value[name] for name in names]) for key, value in asked.items()})

    def _repr_html_(self) -> str:
        given = ", ".join(f"{key} = {value:g}" for key, value in self.items() if isinstance(value, (int, float)))
        return f"<p>{escape(given)}</p>{self.table._repr_html_()}"


def account(
    *,
    delta: float,
    epsilon: Optional[float] = None,
    rho_total: Optional[float] = None,
    phi1: Optional[float] = None,
    rounds: int = 1,
    tau: float = 1.0,
    clients: Optional[int] = None,
    colluders: Optional[int] = None,
    theta: Optional[float] = None,
) -> Account:
    """Privacy without a study: what may be spent for an `epsilon`, which epsilon a total zCDP rho gives (`rho_total`), or what a run costs whose
    first round costs `phi1`. With `clients` and `colluders`, what trust is worth."""
    if sum(given is not None for given in (epsilon, rho_total, phi1)) != 1:
        raise TypeError("account() needs exactly one of epsilon, rho_total and phi1")
    if (clients is None) != (colluders is None):
        raise TypeError("account() needs clients and colluders together")
    return Account(json.loads(_native.account(delta, epsilon, rho_total, phi1, rounds, tau, clients, colluders, theta)))


class Findings:
    """What :func:`audit` found."""

    def __init__(self, text: str, page: str, violated: bool, proven: list[float]) -> None:
        #: Everything, as in audit.json.
        self.json: dict[str, Any] = json.loads(text)
        #: The report as one page of HTML.
        self.report = page
        #: Whether some claim is refuted.
        self.violated = violated
        parts = self.json["parts"]
        #: What is claimed and what is proven, for each budget and stage.
        self.parts = Frame(
            part=[part["name"] for part in parts],
            claimed=np.array([part["claimed"] for part in parts]),
            proven=np.array(proven),
            guesses=np.array([part["attacks"][0]["trials"] if part["attacks"] else 0 for part in parts]),
        )

    def __repr__(self) -> str:
        verdict = "a claim is refuted" if self.violated else "no claim is refuted"
        return f"<Findings about {self.json['study']!r}: {verdict}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.parts._repr_html_()}"


def audit(
    study: Study,
    *,
    trials: Optional[int] = None,
    quick: bool = False,
    peers: bool = False,
    seed: int = 1,
    progress: Optional[Callable[[float], object]] = None,
    threads: Optional[int] = None,
) -> Findings:
    """The best attack we know on the code that is really run: which epsilon does its success prove, beside the one that is claimed? With `peers`, on
    peer processes over loopback."""
    program = [sys.executable, "-m", "undertone"] if peers else None
    return Findings(*study._native.audit(trials, quick, program, seed, progress, threads))


def keygen(path: Union[str, "os.PathLike[str]"], *, show: bool = False) -> str:
    """Makes a secret key in a new file and returns its public id; with `show`, the id of an existing key."""
    return _native.keygen(os.fspath(path), show)


def policy(
    state: Union[str, "os.PathLike[str]"],
    *,
    epsilon: Optional[float] = None,
    epsilon_alone: Optional[float] = None,
    delta: Optional[float] = None,
    rho: Optional[float] = None,
    studies: Optional[int] = None,
    allow_large_delta: bool = False,
    yes: bool = False,
) -> str:
    """States what all studies with a data set together may spend, and returns what holds, as TOML. Limits that are not given stay; `yes` relaxes one."""
    return _native.policy(os.fspath(state), epsilon, epsilon_alone, delta, rho, studies, allow_large_delta, yes)
