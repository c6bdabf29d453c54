import os
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union, final

__all__ = [
    "Model",
    "Peer",
    "keygen",
    "policy",
    "_panic",
    "run_program",
    "Outcome",
    "Plan",
    "Study",
    "account",
    "Table",
    "__version__",
]

__version__: str

_Path = Union[str, os.PathLike[str]]
_Rows = Union[_Path, Table]
_Progress = Optional[Callable[[float], object]]

@final
class Table:
    @staticmethod
    def from_columns(columns: Sequence[tuple[str, Any]]) -> Table: ...
    @staticmethod
    def from_arrow(data: object, wanted: Optional[Sequence[str]] = None) -> Table: ...
    def __len__(self) -> int: ...
    def names(self) -> list[str]: ...
    def split(self, groups: Sequence[str]) -> list[tuple[str, Table]]: ...

@final
class Study:
    @staticmethod
    def parse(text: str, origin: str, folder: _Path, assignments: Sequence[str]) -> Study: ...
    def with_set(self, assignments: Sequence[str]) -> Study: ...
    def toml(self) -> str: ...
    def folder(self) -> str: ...
    def facts(self) -> str: ...
    def check(self, rows: Optional[_Rows] = None, name: str = "data") -> str: ...
    def plan(self, clients: int = 0, trust: bool = True, progress: _Progress = None, threads: Optional[int] = None) -> Plan: ...
    def simulate(
        self,
        records: Union[Sequence[tuple[str, Table]], _Rows, None] = None,
        progress: _Progress = None,
        threads: Optional[int] = None,
        spread: bool = True,
    ) -> Outcome: ...
    def audit(
        self,
        trials: Optional[int] = None,
        quick: bool = False,
        peers: Optional[Sequence[str]] = None,
        seed: int = 1,
        progress: _Progress = None,
        threads: Optional[int] = None,
    ) -> tuple[str, str, bool, list[float]]: ...

@final
class Plan:
    def json(self) -> str: ...
    def study(self) -> Study: ...

@final
class Outcome:
    def text(self, name: str) -> Optional[str]: ...
    def chosen(self) -> list[str]: ...
    def save(self, path: _Path) -> None: ...
    def study(self) -> Study: ...
    def pooled(self) -> Optional[str]: ...
    def spread(self) -> Optional[list[float]]: ...
    def clients(self) -> tuple[list[str], bytes]: ...

@final
class Model:
    @staticmethod
    def parse(text: str, place: str) -> Model: ...
    def facts(self) -> str: ...
    def predict(
        self, rows: _Rows, delimiter: Optional[str] = None, decimal: Optional[str] = None
    ) -> tuple[bytes, Optional[list[str]], Optional[bytes], dict[str, int]]: ...

@final
class Peer:
    def __new__(
        cls,
        study: Study,
        key: _Path,
        data: _Rows,
        state: _Path,
        *,
        anchor: Optional[str],
        listen: Optional[str],
        drop_after: Optional[float],
        max_epsilon: Optional[float],
        max_epsilon_alone: Optional[float],
        on_conflict: str,
        yes: bool,
        rehearsal: bool,
        metrics: Optional[str],
        page: Optional[str],
        page_token: Optional[_Path],
        pace: float,
    ) -> Peer: ...
    def run(self, progress: Optional[Callable[[dict[str, Any]], object]] = None) -> tuple[_Path, str, bool, float]: ...
    def stop(self) -> None: ...

def account(
    delta: float,
    epsilon: Optional[float],
    rho_total: Optional[float],
    phi1: Optional[float],
    rounds: int,
    tau: float,
    clients: Optional[int],
    colluders: Optional[int],
    theta: Optional[float],
) -> str: ...
def keygen(path: _Path, show: bool) -> str: ...
def policy(
    state: _Path,
    epsilon: Optional[float],
    epsilon_alone: Optional[float],
    delta: Optional[float],
    rho: Optional[float],
    studies: Optional[int],
    allow_large_delta: bool,
    yes: bool,
) -> str: ...
def run_program(arguments: Sequence[str], program: Sequence[str]) -> int: ...
def _panic() -> None: ...
