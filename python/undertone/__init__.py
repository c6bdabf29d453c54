"""Private learning among peers, without a server.

A :class:`Study` is what all parties agree on. ``study.plan()`` tells what it will cost and how well it will do, ``study.simulate(data)`` runs it in this
process, and :class:`Peer` takes part in it over the network. :class:`PrivateRegressor` and :class:`PrivateClassifier` are estimators of scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import (
    DataError,
    InternalError,
    Interrupted,
    LimitError,
    MachineError,
    PeerError,
    PrivacyWarning,
    ResultError,
    StudyError,
    UndertoneError,
    UndertoneWarning,
)
from ._frame import Frame
from ._model import Model
from ._native import __version__
from ._peer import Peer, PeerResult
from ._study import Check, Plan, Simulation, Study
from ._tools import Account, Findings, account, audit, keygen, policy

if TYPE_CHECKING:
    from ._estimators import PrivateClassifier, PrivateRegressor

__all__ = [
    "Account",
    "Check",
    "DataError",
    "Findings",
    "Frame",
    "InternalError",
    "Interrupted",
    "LimitError",
    "MachineError",
    "Model",
    "Peer",
    "PeerError",
    "PeerResult",
    "Plan",
    "PrivacyWarning",
    "PrivateClassifier",
    "PrivateRegressor",
    "ResultError",
    "Simulation",
    "Study",
    "StudyError",
    "UndertoneError",
    "UndertoneWarning",
    "__version__",
    "account",
    "audit",
    "keygen",
    "policy",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is needed by the estimators only, and takes a second to import.
    if name in ("PrivateClassifier", "PrivateRegressor"):
        try:
            from . import _estimators
        except ModuleNotFoundError as error:
            raise ImportError(f"ut.{name} needs scikit-learn ({error}): pip install scikit-learn", name=error.name) from error

        return getattr(_estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
