"""A real peer on the network."""

from __future__ import annotations

import json
import os
import warnings
from html import escape
from typing import Any, Callable, Optional, Union

from . import _native, _tables
from ._errors import Interrupted, UndertoneWarning
from ._frame import Frame, shown_value
from ._model import Model
from ._study import Study

Path = Union[str, "os.PathLike[str]"]


class PeerResult:
    """How a peer ended."""

    def __init__(self, folder: str, statement: dict[str, Any], seconds: float) -> None:
        #: Where the results are.
        self.folder = folder
        #: What was spent, and what became of the rounds and the neighbours.
        self.statement = statement
        #: The time from start to end.
        self.seconds = seconds

    @property
    def model(self) -> Model:
        """The model, which is the same at all parties."""
        return Model.load(os.path.join(self.folder, "model.json"))

    @property
    def epsilon(self) -> Optional[float]:
        """The epsilon that this party spent; none in a rehearsal."""
        value: Optional[float] = self.statement["epsilon"]
        return value

    @property
    def report(self) -> str:
        """The report as one page of HTML."""
        with open(os.path.join(self.folder, "report.html"), encoding="utf-8") as file:
            return file.read()

    def __repr__(self) -> str:
        rounds = self.statement["rounds"]
        cost = "NOT PRIVATE" if self.epsilon is None else f"epsilon {self.epsilon:.6g} at delta {self.statement['delta']:g}"
        return f"<PeerResult {self.statement['study']!r}: {rounds['done']} of {rounds['of']} rounds, {cost}>"

    def _repr_html_(self) -> str:
        plain = {k: v for k, v in self.statement.items() if not isinstance(v, (dict, list)) and v is not None}
        table = Frame(statement=list(plain), value=[shown_value(value) for value in plain.values()])
        return f"<p>{escape(repr(self))}</p>{table._repr_html_()}"


class Peer:
    """One party of a study between peers, as the program's ``undertone peer`` with the same options.

    `data` is a file or a table, `key` the file from :func:`keygen`, `state` the folder of the ledger of this data set: whatever is started with it
    counts towards the same budget. Every release is recorded there before it is sent. :meth:`run` can be interrupted at any time, by Ctrl-C or
    :meth:`stop`, and the same call continues from there.
    """

    def __init__(
        self,
        study: Union[Study, Path],
        key: Path,
        data: Any,
        state: Path,
        *,
        anchor: Optional[Path] = None,
        listen: Optional[str] = None,
        on_loss: str = "wait",
        patience: float = 120.0,
        max_epsilon: Optional[float] = None,
        max_epsilon_alone: Optional[float] = None,
        on_conflict: str = "stop",
        yes: bool = False,
        metrics: Optional[str] = None,
        page: Union[bool, str, None] = None,
        page_token: Optional[Path] = None,
        rehearsal: bool = False,
        pace: float = 0.0,
    ) -> None:
        study = study if isinstance(study, Study) else Study(study)
        if on_loss not in ("wait", "drop"):
            raise ValueError(f"on_loss must be 'wait' or 'drop', got {on_loss!r}")
        if page_token is not None and not page:
            raise TypeError("page_token belongs to page")
        self.study = study
        self._native = _native.Peer(
            study._native,
            os.fspath(key),
            _tables.rows(data, study._names()),
            os.fspath(state),
            anchor=None if anchor is None else os.fspath(anchor),
            listen=listen,
            drop_after=patience if on_loss == "drop" else None,
            max_epsilon=max_epsilon,
            max_epsilon_alone=max_epsilon_alone,
            on_conflict=on_conflict,
            yes=yes,
            rehearsal=rehearsal,
            metrics=metrics,
            page="127.0.0.1:8470" if page is True else page or None,
            page_token=None if page_token is None else os.fspath(page_token),
            pace=pace,
        )

    def run(self, progress: Optional[Callable[[dict[str, Any]], object]] = None) -> PeerResult:
        """Takes part until the study is finished. `progress` is called with a dictionary: the round, the neighbours, and what is spent."""
        folder, text, stopped, seconds = self._native.run(progress)
        statement = json.loads(text)
        if stopped:
            done, of = statement["rounds"]["done"], statement["rounds"]["of"]
            raise Interrupted(f"interrupted after round {done} of {of}; nothing is lost: the same command continues from here")
        accused = statement["released_two_things_in_one_round"]
        if accused:
            warnings.warn(
                f"{', '.join(accused)} released two different things in one round: the model may differ from that of others; the evidence is in {folder}",
                UndertoneWarning,
                stacklevel=2,
            )
        return PeerResult(os.fspath(folder), statement, seconds)

    def stop(self) -> None:
        """Ends :meth:`run` from another thread."""
        self._native.stop()
