"""Fitted models."""

from __future__ import annotations

import json
import os
import warnings
from html import escape
from typing import Any, Optional, Union

import numpy as np

from . import _native, _tables
from ._errors import UndertoneWarning
from ._frame import Frame


class Model:
    """A fitted model, as model.json describes it. ``Model.load("model.json")`` reads one."""

    def __init__(self, text: str, place: str = "the model") -> None:
        self._native = _native.Model.parse(text, place)
        self._text = text
        self._facts: dict[str, Any] = json.loads(self._native.facts())
        #: Everything that model.json says.
        self.json: dict[str, Any] = json.loads(text)

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> Model:
        """Reads the model.json of a run or of a peer."""
        with open(path, encoding="utf-8") as file:
            return cls(file.read(), os.fspath(path))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes model.json to a new file."""
        with open(path, "x", encoding="utf-8") as file:
            file.write(self._text)

    @property
    def columns(self) -> list[str]:
        """The columns that it predicts from."""
        return list(self._facts["columns"])

    @property
    def target(self) -> str:
        """What it predicts."""
        return str(self._facts["target"])

    @property
    def labels(self) -> Optional[list[str]]:
        """The labels for a score below and above zero; none for regression."""
        labels: Optional[list[str]] = self._facts["labels"]
        return labels

    @property
    def loss(self) -> str:
        """What was minimised."""
        return str(self._facts["loss"])

    @property
    def intercept(self) -> float:
        """The intercept, in the units of the table."""
        return float(self.json["intercept"])

    @property
    def coefficients(self) -> Frame:
        """The intercept and the coefficients in the units of the table, with intervals if there are any."""
        values = {"intercept": self.intercept, **self.json["coefficients"]}
        frame = Frame(feature=list(values), coefficient=np.array(list(values.values()), dtype=float))
        intervals = ((self.json.get("uncertainty") or {}).get("intervals") or {}).get("coefficients")
        if intervals:
            for key in ("low", "high"):
                frame[key] = np.array([intervals.get(name, {}).get(key, np.nan) for name in values])
        return frame

    def score(self, data: Any) -> Any:
        """The scores of every row: predictions of a regression, log odds or the like of a classification."""
        return self._predict(data)[0]

    def predict(self, data: Any) -> Any:
        """Predicts every row of a table or a file: numbers, or labels."""
        scores, labels, _ = self._predict(data)
        return scores if labels is None else labels

    def predict_proba(self, data: Any) -> Any:
        """The probability of each label, for logistic models."""
        probabilities = self._predict(data)[2]
        if probabilities is None:
            raise AttributeError(f"a model with {self.loss} loss gives no probabilities")
        return np.column_stack([1 - probabilities, probabilities])

    def _predict(self, data: Any) -> tuple[Any, Any, Any]:
        scores, labels, probabilities, moved = self._native.predict(_tables.rows(data, self.columns))
        if moved:
            told = ", ".join(f"{count} of {column}" for column, count in moved.items())
            warnings.warn(
                f"cells are outside the public range that the model was learned in and count as its ends: {told}",
                UndertoneWarning,
                stacklevel=3,
            )
        return (
            np.frombuffer(scores).copy(),
            None if labels is None else np.array(labels),
            None if probabilities is None else np.frombuffer(probabilities).copy(),
        )

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn that predicts the same from a data frame with the model's columns."""
        from ._estimators import ModelClassifier, ModelRegressor

        kind = ModelRegressor if self.labels is None else ModelClassifier
        return kind(self._text)._loaded()

    def __reduce__(self) -> Any:
        return Model, (self._text,)

    def __repr__(self) -> str:
        return f"<Model of {self.target} from {', '.join(self.columns)}: {self.loss} loss>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.coefficients._repr_html_()}"
