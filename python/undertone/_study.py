"""Studies, and what comes of planning and simulating them."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Callable, Optional, Union

import numpy as np

from . import _native, _tables
from ._errors import DataError, PrivacyWarning, StudyError, UndertoneWarning
from ._frame import Frame, shown_value
from ._model import Model
from ._toml import assignment, dumps

Progress = Optional[Callable[[float], object]]
Path = Union[str, "os.PathLike[str]"]


class Study:
    """What all parties agree on before it starts: the problem, the public facts about the columns, the network and the budget.

    ``Study("study.toml")`` reads a file and ``Study(text)`` the text of one. Without either it is made of keywords, which are the keys of that
    file: ``features={"age": (18, 90), "sex": ["f", "m"]}`` gives bounds of numbers and lists of words, and whole tables can be given as
    dictionaries, such as ``privacy={"epsilon": 2, "delta": 1e-5}``. ``set=["privacy.epsilon=2"]`` replaces single keys of a file.
    """

    def __init__(
        self,
        toml: Optional[Path] = None,
        *,
        set: Union[Iterable[str], Mapping[str, Any]] = (),
        name: Optional[str] = None,
        rounds: Optional[int] = None,
        seed: Optional[int] = None,
        loss: Optional[str] = None,
        threshold: Optional[float] = None,
        level: Optional[float] = None,
        regularizer: Optional[str] = None,
        penalty: Optional[float] = None,
        features: Union[Mapping[str, Any], Sequence[str], None] = None,
        target: Union[Mapping[str, Any], str, None] = None,
        intercept: Optional[bool] = None,
        outside: Optional[str] = None,
        missing: Optional[str] = None,
        holdout: Optional[float] = None,
        records: Union[int, Sequence[int], None] = None,
        path: Optional[Path] = None,
        graph: Union[str, Mapping[str, Any], None] = None,
        algorithm: Union[str, Mapping[str, Any], None] = None,
        epsilon: Optional[float] = None,
        delta: Optional[float] = None,
        clip: Optional[float] = None,
        noise: Optional[str] = None,
        colluders: Optional[int] = None,
        intervals: Optional[float] = None,
        trials: Optional[int] = None,
        parties: Optional[Mapping[str, Any]] = None,
        problem: Optional[Mapping[str, Any]] = None,
        data: Optional[Mapping[str, Any]] = None,
        privacy: Union[str, Mapping[str, Any], None] = None,
        inference: Optional[Mapping[str, Any]] = None,
        simulation: Optional[Mapping[str, Any]] = None,
        plan: Optional[Mapping[str, Any]] = None,
        peers: Optional[Mapping[str, Any]] = None,
        network: Optional[Mapping[str, Any]] = None,
        robust: Optional[Mapping[str, Any]] = None,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "toml", "set") and value is not None}
        given.pop("given", None)
        folder = os.curdir
        if toml is None:
            text, origin = dumps(_tables_of(given)), "study"
        elif given:
            raise TypeError(f"Study() takes a file or keywords, not both: give set={{...}} in place of {', '.join(given)}")
        elif isinstance(toml, str) and ("\n" in toml or "=" in toml) and not os.path.exists(toml):
            text, origin = toml, "study"
        else:
            text, origin, folder = _read(toml), os.fspath(toml), os.path.dirname(os.fspath(toml))
        assignments = [assignment(k, v) for k, v in set.items()] if isinstance(set, Mapping) else list(set)
        self._native = _native.Study.parse(text, origin, folder, assignments)
        self._tell()

    @classmethod
    def _of(cls, native: _native.Study) -> Study:
        study = cls.__new__(cls)
        study._native = native
        return study

    @property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._native.facts())
        return facts

    def _tell(self) -> None:
        """Says what is odd, where whoever made the study sees it."""
        facts = self._facts
        for odd in facts["oddities"]:
            warnings.warn(odd, UndertoneWarning, stacklevel=3)
        if not facts["private"]:
            warnings.warn("privacy is off: every message of this study reveals the data", PrivacyWarning, stacklevel=3)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._facts["name"])

    @property
    def toml(self) -> str:
        """The study as TOML, with every default written out: the file that all parties need."""
        return self._native.toml()

    def save(self, path: Path) -> None:
        """Writes the study to a new file."""
        with open(path, "x", encoding="utf-8") as file:
            file.write(self.toml)

    def with_set(self, assignments: Mapping[str, Any]) -> Study:
        """The same study with other values of some keys, such as ``{"privacy.epsilon": 2}``."""
        study = Study._of(self._native.with_set([assignment(k, v) for k, v in assignments.items()]))
        study._tell()
        return study

    def __reduce__(self) -> Any:
        return _unpickled, (self.toml, self._native.folder())

    def __repr__(self) -> str:
        facts = self._facts
        return f"<Study {facts['name']!r}: {facts['loss']} loss, {facts['rounds']} rounds>"

    def _repr_html_(self) -> str:
        return f"<details><summary>{escape(repr(self))}</summary><pre>{escape(self.toml)}</pre></details>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self.toml == other.toml

    def __hash__(self) -> int:
        return hash(self.toml)

    def check(self, data: Any = None) -> Check:
        """Everything that is wrong or odd about the study and one party's records, at once. Nothing is sent, nothing is spent."""
        found = json.loads(self._native.check(None if data is None else _tables.rows(data, self._names())))
        return Check(found)

    def plan(
        self, clients: Optional[int] = None, *, quick: bool = False, progress: Progress = None, threads: Optional[int] = None
    ) -> Plan:
        """What the study will cost and how well it will do; no records are read. `clients` is how many parties there will be, where the study does
        not say so."""
        return Plan(self._native.plan(clients or 0, not quick, progress, threads))

    def simulate(
        self,
        data: Any = None,
        *,
        groups: Any = None,
        progress: Progress = None,
        threads: Optional[int] = None,
    ) -> Simulation:
        """Runs the study with all parties in this process.

        `data` is one table with `groups`, which is a column's name or an array with the party of every row; or a dictionary with a table for each
        party; or a file or folder. Without it the study's own data is used. A table is a pandas or polars data frame, an Arrow table, a NumPy array
        or a dictionary of columns.
        """
        outcome = self._native.simulate(self._records(data, groups), progress, threads, True)
        for chosen in outcome.chosen()[:1]:
            logging.getLogger("undertone").info('algorithm = "auto" is %s', chosen)
        return Simulation(outcome)

    def audit(self, **options: Any) -> Any:
        """The best attack we know on this study; see :func:`undertone.audit`."""
        from ._tools import audit

        return audit(self, **options)

    def _names(self) -> Optional[list[str]]:
        columns = self._facts["columns"]
        return None if columns is None else [*columns["features"], columns["target"]]

    def _records(self, data: Any, groups: Any) -> Any:
        if data is None or isinstance(data, (str, os.PathLike)):
            if groups is not None:
                raise TypeError("groups belong to a table in memory; a study says how its files divide (data.source)")
            return data
        facts = self._facts
        if facts["layout"] == "synthetic":
            raise DataError("data: the study generates its data; set data.source to folder, column or split")
        names = self._names()
        if _tables.is_parties(data):
            if groups is not None:
                raise TypeError("groups belong to one table; this is a table for each party already")
            for party, own in data.items():
                if isinstance(own, (str, os.PathLike)):
                    raise TypeError(f"{party}: a path; give a folder with one file for each party, or tables in memory")
            return [(str(party), _tables.table(own, names)) for party, own in data.items()]
        if groups is None:
            if facts["layout"] in ("column", "split"):
                wanted = names if facts["column"] is None or isinstance(data, np.ndarray) else [*(names or []), facts["column"]]
                return _tables.table(data, wanted)
            raise TypeError("groups is missing: give the party of every row, or a dictionary with a table for each party")
        if isinstance(groups, str):
            groups = _column(data, groups)
        table = _tables.table(data, names)
        return table.split(_tables.labels(groups, len(table)))


class Check:
    """What :meth:`Study.check` found. It is computed from the records without noise: for the eyes of their owner."""

    def __init__(self, found: dict[str, Any]) -> None:
        #: What has to be corrected.
        self.problems: list[str] = found["problems"]
        #: What is allowed and seldom meant.
        self.notes: list[str] = found["notes"]
        #: The number of records, if there were any.
        self.records: Optional[int] = found["records"]
        columns = found["columns"] or []
        keys = [key for key in columns[0] if key != "words"] if columns else []
        #: What each column holds.
        self.columns = Frame({key: np.array([c[key] for c in columns], dtype=None if key == "column" else float) for key in keys})

    @property
    def ok(self) -> bool:
        """Whether the study and the records can be used."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_wrong(self) -> None:
        """Raises a StudyError with all problems, if there are any."""
        if self.problems:
            raise StudyError("\n".join(self.problems))

    def __repr__(self) -> str:
        lines = [*self.problems, *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines) if lines else "the study and the records can be used"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>{self.columns._repr_html_() if self.columns else ''}"


class Plan:
    """A planned study."""

    def __init__(self, native: _native.Plan) -> None:
        self._native = native
        #: Everything that the plan says.
        self.facts: dict[str, Any] = json.loads(native.json())

    @property
    def study(self) -> Study:
        """The recommended study, with its algorithm and clip."""
        return Study._of(self._native.study())

    @property
    def skill(self) -> tuple[float, float, float]:
        """The skill to expect: one in ten is worse than the first and better than the last. 1 is as good as pooled data."""
        skill = self.facts["algorithms"][0]["skill"]
        return skill["q10"], skill["median"], skill["q90"]

    @property
    def algorithms(self) -> Frame:
        """The skill to expect of each algorithm, the best first."""
        rows = self.facts["algorithms"]
        frame = Frame(algorithm=[row["title"] for row in rows])
        for key in ("q10", "median", "q90"):
            frame["skill_" + key] = np.array([row["skill"][key] for row in rows])
        return frame

    @property
    def noise(self) -> Frame:
        """The cost and the noise of each noised round of the recommended algorithm."""
        rows = self.facts["algorithms"][0]["noised_rounds"]
        return Frame({key: np.array([row[key] for row in rows]) for key in ("round", "phi", "sigma", "masks")})

    def __repr__(self) -> str:
        low, middle, high = self.skill
        best = self.facts["algorithms"][0]
        return f"<Plan: expected skill {low:.2f} to {high:.2f}, typically {middle:.2f}, with {best['algorithm']}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.algorithms._repr_html_()}"

    def plot(self, ax: Any = None) -> Any:
        """The skill to expect of each algorithm, with matplotlib; returns the axes."""
        ax = _axes(ax)
        frame = self.algorithms
        places = np.arange(frame.rows)[::-1]
        middle = np.maximum(frame["skill_median"], -1)
        below, above = middle - np.maximum(frame["skill_q10"], -1), np.maximum(frame["skill_q90"], -1) - middle
        ax.errorbar(middle, places, xerr=[below, above], fmt="o")
        ax.set_yticks(places, frame["algorithm"])
        ax.set_xlabel("expected skill: 1 is as good as pooled data, 0 no better than the mean")
        return ax


class Simulation:
    """The result of :meth:`Study.simulate`. Treat it like the records: parts of it are computed from them without noise."""

    def __init__(self, native: _native.Outcome) -> None:
        self._native = native
        #: The last round, what was spent and what is not private, as in summary.json.
        self.summary: dict[str, Any] = json.loads(self.text("summary.json"))

    def text(self, file: str) -> str:
        """The text of one of the files of the run folder: study.toml, trace.csv, clients.csv, model.json, summary.json, report.html."""
        text = self._native.text(file)
        if text is None:
            raise KeyError(file)
        return text

    @property
    def study(self) -> Study:
        """The study as it was run."""
        return Study._of(self._native.study())

    @property
    def model(self) -> Model:
        """The fitted model of the first trial, in the units of the table."""
        return Model(self.text("model.json"), "the model of a simulation")

    @property
    def trace(self) -> Frame:
        """The learning curve: one row for every measured round."""
        rows = list(csv.reader(io.StringIO(self.text("trace.csv"))))
        columns = zip(*[[float(cell) if cell else np.nan for cell in row] for row in rows[1:]])
        frame = Frame(zip(rows[0], map(np.array, columns)))
        frame["round"] = frame["round"].astype(int)
        return frame

    @property
    def coefficients(self) -> Frame:
        """The coefficients in the units of the table, beside those of pooled data without privacy, and what privacy noise does to each."""
        frame = self.model.coefficients
        pooled, spread = self._native.pooled(), self._native.spread()
        if pooled is not None:
            other = json.loads(pooled)
            frame["pooled"] = np.array([other["intercept"], *other["coefficients"].values()])
        if spread is not None:
            frame["noise"] = np.array(spread)
        return frame

    @property
    def clients(self) -> Frame:
        """The last w of every client in the first trial."""
        names, flat = self._native.clients()
        values = np.frombuffer(flat).reshape(len(names), -1)
        return Frame(client=names, **{f"w{p + 1}": values[:, p] for p in range(values.shape[1])})

    @property
    def epsilon(self) -> Optional[float]:
        """The epsilon of the run at the study's delta; none if it is not private."""
        value: Optional[float] = self.summary["epsilon"]
        return value

    @property
    def skill(self) -> Optional[float]:
        """1 is as good as pooled data without privacy, 0 no better than the mean of the target."""
        skill = self.summary["skill"]
        return None if skill is None else float(skill["mean"])

    @property
    def notices(self) -> list[str]:
        """What to know about the numbers, such as what is not private."""
        notices: list[str] = self.summary["notices"]
        return notices

    @property
    def report(self) -> str:
        """The report as one page of HTML without outside resources."""
        return self.text("report.html")

    def save(self, folder: Path) -> None:
        """Writes the run folder, which must be new or empty."""
        self._native.save(os.fspath(folder))

    def __repr__(self) -> str:
        s = self.summary
        skill = "" if self.skill is None else f", skill {self.skill:.2f}"
        cost = "not private" if s["epsilon"] is None else f"epsilon {s['epsilon']:.4g} at delta {s['delta']:g}"
        return f"<Simulation {s['name']!r}: {s['algorithm']}, {s['rounds']} rounds, {s['clients']} clients, {s['records']} records{skill}; {cost}>"

    def _repr_html_(self) -> str:
        notices = "".join(f"<li>{escape(notice)}</li>" for notice in self.notices)
        return f"<p>{escape(repr(self))}</p>{self.coefficients._repr_html_()}<ul>{notices}</ul>"

    def plot(self, ax: Any = None) -> Any:
        """The learning curve, with matplotlib; returns the axes."""
        ax = _axes(ax)
        trace = self.trace
        name = "error_released" if np.isfinite(trace["error_released"]).any() else "objective"
        ax.plot(trace["round"], trace[name])
        ax.fill_between(trace["round"], trace[name + "_q10"], trace[name + "_q90"], alpha=0.25)
        ax.set_xlabel("round")
        ax.set_ylabel("normalised error, summed over clients" if name != "objective" else "objective")
        if np.nanmin(trace[name]) > 0:
            ax.set_yscale("log")
        ax.set_title(f"{self.summary['name']}: {shown_value(self.epsilon if self.epsilon is not None else 'no')} epsilon")
        return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def _unpickled(toml: str, folder: str) -> Study:
    return Study._of(_native.Study.parse(toml, "study", folder, []))


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise StudyError(f"{os.fspath(path)}: cannot be read ({error}); save it as UTF-8 text") from error


def _column(data: Any, name: str) -> Any:
    """A column of a table, by name."""
    try:
        return data[name]
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f'data: has no column "{name}", which should name the parties') from error
    except Exception as error:
        if type(error).__module__.split(".")[0] == "polars":
            raise DataError(f'data: has no column "{name}", which should name the parties') from error
        raise


def _tables_of(given: dict[str, Any]) -> dict[str, Any]:
    """The tables of a study from keywords."""
    tables: dict[str, Any] = {key: given.get(key) for key in ("name", "rounds", "seed")}
    problem = {key: given.get(key) for key in ("loss", "threshold", "level", "regularizer")}
    problem["lambda"] = given.get("penalty")
    data: dict[str, Any] = {key: given.get(key) for key in ("intercept", "outside", "missing", "holdout", "records", "path")}
    if data["path"] is not None:
        data["path"] = os.fspath(data["path"])
    bounds: dict[str, Any] = {}
    categories: dict[str, Any] = {}
    typical: dict[str, Any] = {}
    for key in ("features", "target"):
        wanted = given.get(key)
        if isinstance(wanted, Mapping):
            for column, facts in wanted.items():
                _column_facts(column, facts, bounds, categories, typical)
        if wanted is not None:
            names = [wanted] if isinstance(wanted, str) else list(wanted)
            data[key] = names if key == "features" else names[0]
    data.update({key: value for key, value in (("bounds", bounds), ("categories", categories), ("typical", typical)) if value})
    if "features" in given:
        data["source"] = "folder"
    privacy: Any = {key: given.get(key) for key in ("epsilon", "delta", "clip", "noise", "colluders")}
    if isinstance(given.get("privacy"), str):
        if any(value is not None for value in privacy.values()):
            raise TypeError("privacy is off or has a budget, not both")
        privacy = given["privacy"]
    else:
        privacy.update(given.get("privacy", {}))
        privacy = privacy if any(value is not None for value in privacy.values()) else "off"
    graph, algorithm = given.get("graph"), given.get("algorithm", "auto")
    tables["algorithm"] = {"name": algorithm} if isinstance(algorithm, str) and algorithm != "auto" else algorithm
    tables["privacy"] = privacy
    tables["problem"] = {**problem, **given.get("problem", {})}
    tables["data"] = {**data, **given.get("data", {})}
    tables["graph"] = {"kind": graph} if isinstance(graph, str) else (graph or {"kind": "ring"})
    tables["inference"] = given.get("inference", {"level": given["intervals"]} if "intervals" in given else None)
    tables["simulation"] = {"trials": given.get("trials"), **given.get("simulation", {})}
    if all(value is None for value in tables["simulation"].values()):
        tables["simulation"] = None
    tables["client"] = given.get("parties")
    for key in ("plan", "peers", "network", "robust"):
        tables[key] = given.get(key)
    return tables


def _column_facts(column: str, facts: Any, bounds: dict[str, Any], categories: dict[str, Any], typical: dict[str, Any]) -> None:
    """(low, high), a list of words, or a dictionary with bounds or categories, and typical values."""
    if isinstance(facts, Mapping):
        unknown = set(facts) - {"bounds", "categories", "typical"}
        if unknown:
            raise TypeError(f"{column}: {', '.join(sorted(unknown))} is not known; give bounds, categories and typical")
        for key, table in (("bounds", bounds), ("categories", categories), ("typical", typical)):
            if facts.get(key) is not None:
                table[column] = list(facts[key])
        return
    values = list(facts)
    if values and all(isinstance(value, str) for value in values):
        categories[column] = values
    elif len(values) == 2:
        bounds[column] = values
    else:
        raise TypeError(f"{column}: give its public bounds (low, high), a list of words, or a dictionary")
