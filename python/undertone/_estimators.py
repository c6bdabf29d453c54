"""Estimators in the manner of scikit-learn."""

from __future__ import annotations

import json
import warnings
from typing import Any, Optional

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _native, _tables
from ._errors import PrivacyWarning, UndertoneWarning
from ._model import Model
from ._study import Study
from ._toml import dumps

#: The checks of scikit-learn that an estimator with differential privacy cannot pass, with the reasons: for
#: ``check_estimator(PrivateClassifier(), expected_failed_checks=EXPECTED_FAILED_CHECKS["PrivateClassifier"])``.
EXPECTED_FAILED_CHECKS: dict[str, dict[str, str]] = {
    "PrivateRegressor": {
        "check_regressors_train": "asks for an R2 above 0.5 from 200 records of 10 features, where the noise at the default epsilon of 1 is larger than"
        " what there is to learn; with a large epsilon it passes",
    },
    "PrivateClassifier": {},
}


class _Private(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: a study of the given records, simulated in this process."""

    def _fit(self, X: Any, target: dict[str, Any], values: Any, groups: Any, assumed: list[str]) -> Any:
        """Learns. `target` are the public facts about what is predicted, `values` its column, `assumed` what was looked up in the records so far."""
        samples, features = X.shape
        if samples < 2:
            raise ValueError(f"n_samples={samples} is too few: learning among parties needs at least 2 samples")
        names = [f"x{p}" for p in range(features)]
        low, high = self._bounds("x_bounds", self.x_bounds, X, assumed)
        if groups is None:
            if not 2 <= int(self.parties) <= 10_000_000:
                raise ValueError(f"parties must be at least 2, got {self.parties}")
            party = [str(j % min(int(self.parties), samples)) for j in range(samples)]
        else:
            party = _tables.labels(groups, samples)
        if assumed:
            warnings.warn(
                f"{', '.join(assumed)} are not given and were taken from the records, which is not private: give what is publicly known",
                PrivacyWarning,
                stacklevel=4,
            )
        if self.epsilon is None:
            warnings.warn("epsilon=None: the model is not private, every message reveals the records", PrivacyWarning, stacklevel=4)
        table = _native.Table.from_columns([*((name, np.ascontiguousarray(X[:, p])) for p, name in enumerate(names)), ("y", values)])
        tables = table.split(party)
        bounds = {name: [float(a), float(b)] for name, a, b in zip(names, low, high)}
        data: dict[str, Any] = {
            "source": "folder",
            "features": names,
            "target": "y",
            "intercept": bool(self.fit_intercept),
            "outside": "clamp",
            "records": [len(own) for _, own in tables],
            "bounds": {**bounds, **target.get("bounds", {})},
        }
        if "categories" in target:
            data["categories"] = target["categories"]
        study = {
            "name": type(self).__name__,
            "rounds": self.rounds,
            "problem": self._problem(),
            "data": data,
            "graph": {"kind": self.graph} if isinstance(self.graph, str) else self.graph,
            **self._steps(features, samples),
            # What is only for comparison takes time.
            "simulation": {"central": False, "metrics_every": self.rounds},
        }
        self._seed(study)
        self.study_ = Study._of(_native.Study.parse(dumps(study), type(self).__name__, ".", []))
        outcome = self.study_._native.simulate(tables, None, None, False)
        self.model_ = Model(self._told(outcome.text("model.json") or "{}", assumed), type(self).__name__)
        coefficients = self.model_.json["coefficients"]
        limits = self.model_.json["columns"]["limits"]
        self._low = np.array([limits[name][0] if name in limits else -np.inf for name in names])
        self._high = np.array([limits[name][1] if name in limits else np.inf for name in names])
        # What was looked up in the records is in the model, and no epsilon covers it.
        self.epsilon_ = self.model_.json["privacy"]["epsilon"] if self.epsilon is not None and not assumed else None
        self.parties_ = [name for name, _ in tables]
        return np.array([coefficients[name] for name in names]), float(self.model_.intercept)

    @staticmethod
    def _told(model: str, assumed: list[str]) -> str:
        """The text of a model, which does not claim to be private where something was looked up in the records."""
        if not assumed:
            return model
        facts = json.loads(model)
        facts["privacy"] = None
        facts["notices"] = [f"not private: {', '.join(assumed)} were taken from the records"]
        return json.dumps(facts, indent=2)

    def _check_loss(self, *losses: str) -> None:
        if self.loss not in losses:
            other = "PrivateRegressor" if "logistic" in losses else "PrivateClassifier"
            raise ValueError(f"loss must be one of {', '.join(losses)}, got {self.loss!r}; {other} has others")

    def _problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = {"loss": self.loss}
        if self.loss == "huber":
            problem["threshold"] = self.threshold
        if self.loss == "quantile":
            problem["level"] = self.level
        if self.alpha:
            problem.update({"regularizer": "l2", "lambda": float(self.alpha)})
        return problem

    def _steps(self, features: int, samples: int) -> dict[str, Any]:
        """The algorithm and the budget. The usual parameters follow from public facts alone: they depend on no value of any record."""
        size = features + int(bool(self.fit_intercept))
        smooth = 4.0 if self.loss == "logistic" else 1.0
        private = self.epsilon is not None
        # With more records or a larger budget the noise of a round is smaller, and more of them can be paid for.
        paid = 4 + 0.5 * np.sqrt(samples * max(0.0, float(self.epsilon))) if private else 0.8 * self.rounds
        usual = {
            "name": "free-rounds",
            "data_rounds": int(np.clip(paid, 2, max(2, 0.8 * self.rounds))),
            "eta": 1.5 * smooth,
            "decay": "slow",
            "momentum": 0.3,
            "average": 0.5,
        }
        algorithm = usual if self.algorithm == "usual" else self.algorithm
        if isinstance(algorithm, str) and algorithm != "auto":
            algorithm = {"name": algorithm}
        if not private:
            return {"algorithm": algorithm, "privacy": "off"}
        clip = self.clip
        if clip is None and algorithm != "auto":
            clip = 0.4 * float(np.sqrt(size))
        budget = {"epsilon": float(self.epsilon), "delta": float(self.delta), "clip": clip, "colluders": self.colluders}
        return {"algorithm": algorithm, "privacy": budget}

    def _seed(self, study: dict[str, Any]) -> None:
        """Noise from the operating system, or from a seed."""
        if self.random_state is not None:
            study["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.epsilon is None:
            return
        study["privacy"]["noise"] = "secure" if self.random_state is None else "fast"
        if self.random_state is not None:
            warnings.warn(
                "random_state: noise that can be repeated can be subtracted, so this model is not private; leave it out for a model that is released",
                PrivacyWarning,
                stacklevel=5,
            )

    @staticmethod
    def _bounds(name: str, given: Any, values: Any, assumed: list[str]) -> tuple[Any, Any]:
        """(low, high) for every column, as numbers or arrays."""
        width = values.shape[1]
        if given is None:
            assumed.append(name)
            low, high = values.min(axis=0), values.max(axis=0)
            # A column with one value still needs a range.
            margin = np.where(high > low, 0.0, 0.5 + 0.01 * np.abs(low))
            return low - margin, high + margin
        try:
            low, high = (np.broadcast_to(np.asarray(part, float), width) for part in given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be (low, high), each a number or an array with one for each of {width} columns") from error
        if not (low < high).all():
            at = int(np.argmin(low < high))
            raise ValueError(
                f"{name} must be (lows, highs): the range of column {at} is {low[at]:g} to {high[at]:g}. Ranges by column, [(low, high), ...], are"
                f" written as zip(*ranges)"
            )
        if width == 2 and all(isinstance(part, tuple) for part in given):
            warnings.warn(
                f"{name} is read as (lows, highs): {low[0]:g} to {high[0]:g} and {low[1]:g} to {high[1]:g}. Lists instead of tuples say so without a"
                f" warning; ranges by column are written as zip(*ranges)",
                UndertoneWarning,
                stacklevel=4,
            )
        return low, high

    def _scores(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.clip(X, self._low, self._high) @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0]


class PrivateRegressor(RegressorMixin, _Private):  # type: ignore[misc]
    """Linear regression among parties, with differential privacy.

    ``fit(X, y, groups=party)`` says who holds which row; without it the rows are divided among `parties` in turn. What every party says during the
    fit is (epsilon, delta)-private with respect to any one row, and so is the model.

    :param loss: "squared", "absolute", "huber" (with `threshold`, in units of the scaled target) or "quantile" (with `level`)
    :param epsilon: the total epsilon; None is not private, and says so
    :param delta: the delta at which it holds
    :param x_bounds: the public (low, high) of the features, numbers or arrays with one for each; values outside count as the ends
    :param y_bounds: the public (low, high) of the target
    :param alpha: weight of a ridge penalty
    :param parties: among how many the rows are divided if `fit` is given no groups
    :param rounds: of messages between neighbours
    :param graph: who is whose neighbour, as in a study
    :param algorithm: "usual", "auto" for the planner's choice, which takes seconds, or a dictionary as in a study
    :param clip: to which norm gradients of records are clipped
    :param colluders: how many parties pool what they know at most; all of them if it is None
    :param random_state: None for noise from the operating system; a seed makes noise that can be repeated and is not private
    """

    def __init__(
        self,
        loss: str = "squared",
        epsilon: Optional[float] = 1.0,
        delta: float = 1e-5,
        *,
        x_bounds: Any = None,
        y_bounds: Any = None,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        threshold: float = 0.2,
        level: float = 0.5,
        parties: int = 3,
        rounds: int = 60,
        graph: Any = "complete",
        algorithm: Any = "usual",
        clip: Optional[float] = None,
        colluders: Optional[int] = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.x_bounds = x_bounds
        self.y_bounds = y_bounds
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.threshold = threshold
        self.level = level
        self.parties = parties
        self.rounds = rounds
        self.graph = graph
        self.algorithm = algorithm
        self.clip = clip
        self.colluders = colluders
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> PrivateRegressor:
        """Learns from rows; `groups` is the party of each."""
        self._check_loss("squared", "absolute", "huber", "quantile")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        assumed: list[str] = []
        low, high = self._bounds("y_bounds", self.y_bounds, y[:, None], assumed)
        target = {"bounds": {"y": [float(low[0]), float(high[0])]}}
        self.coef_, self.intercept_ = self._fit(X, target, np.clip(y, low[0], high[0]), groups, assumed)
        return self

    def predict(self, X: Any) -> Any:
        """Predicts every row."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


class PrivateClassifier(ClassifierMixin, _Private):  # type: ignore[misc]
    """Classification into two classes among parties, with differential privacy; the parameters are those of :class:`PrivateRegressor`.

    :param loss: "logistic" or "hinge"
    :param classes: the two classes, which are public; they are looked up in the records if they are not given
    """

    def __init__(
        self,
        loss: str = "logistic",
        epsilon: Optional[float] = 1.0,
        delta: float = 1e-5,
        *,
        x_bounds: Any = None,
        classes: Any = None,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        parties: int = 3,
        rounds: int = 60,
        graph: Any = "complete",
        algorithm: Any = "usual",
        clip: Optional[float] = None,
        colluders: Optional[int] = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.x_bounds = x_bounds
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.parties = parties
        self.rounds = rounds
        self.graph = graph
        self.algorithm = algorithm
        self.clip = clip
        self.colluders = colluders
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> PrivateClassifier:
        """Learns from rows; `groups` is the party of each."""
        self._check_loss("logistic", "hinge")
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        found = np.unique(y)
        assumed: list[str] = []
        if self.classes is None:
            assumed.append("classes")
            classes = found
        else:
            classes = np.unique(np.asarray(self.classes))
            other = np.setdiff1d(found, classes)
            if len(other):
                raise ValueError(f"y contains labels that are not in classes: {other.tolist()}")
        if len(classes) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is {type_of_target(y)}.")
        if len(classes) < 2:
            raise ValueError(f"a classifier needs samples of 2 classes, but there is only one class: {classes.tolist()}")
        self.classes_ = classes
        words = np.where(y == classes[1], "1", "0").tolist()
        coefficients, intercept = self._fit(X, {"categories": {"y": ["0", "1"]}}, words, groups, assumed)
        self.coef_, self.intercept_ = coefficients[None, :], np.array([intercept])
        return self

    def decision_function(self, X: Any) -> Any:
        """The score of every row: above zero for the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> Any:
        """Predicts the class of every row."""
        scores = self._scores(X)
        return self.classes_[(scores >= 0).astype(int)]

    def _is_logistic(self) -> bool:
        if self.loss != "logistic":
            raise AttributeError(f"a classifier with {self.loss} loss gives no probabilities; use loss='logistic'")
        return True

    def __getattribute__(self, name: str) -> Any:
        # As scikit-learn tells whether there are probabilities: by whether there is such a method.
        if name in ("predict_proba", "predict_log_proba"):
            object.__getattribute__(self, "_is_logistic")()
        return super().__getattribute__(name)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class for every row."""
        scores = self._scores(X)
        positive = 0.5 * (1 + np.tanh(0.5 * scores))
        return np.column_stack([1 - positive, positive])

    def predict_log_proba(self, X: Any) -> Any:
        """Its logarithm."""
        scores = self._scores(X)
        return -np.column_stack([np.logaddexp(0, scores), np.logaddexp(0, -scores)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.random_state is None
        return tags


class _OfModel(BaseEstimator):  # type: ignore[misc]
    """A model that was fitted elsewhere. It takes data frames with the model's columns, of numbers and of words."""

    def __init__(self, model: str) -> None:
        self.model = model

    def _loaded(self) -> Any:
        self.model_ = Model(self.model)
        self.feature_names_in_ = np.array(self.model_.columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.intercept_ = self.model_.intercept
        coefficients = self.model_.json["coefficients"]
        # A column of words has a coefficient for each of them, which no array by column can hold: `model_.coefficients` has them all.
        if list(coefficients) == self.model_.columns:
            self.coef_ = np.array(list(coefficients.values()), dtype=float)
        return self

    def fit(self, X: Any, y: Any = None) -> Any:
        """Loads the model once more; it learns nothing."""
        return self._loaded()

    def predict(self, X: Any) -> Any:
        """Predicts every row."""
        check_is_fitted(self, "model_")
        return self.model_.predict(X)


class ModelRegressor(RegressorMixin, _OfModel):  # type: ignore[misc]
    """A model of numbers."""


class ModelClassifier(ClassifierMixin, _OfModel):  # type: ignore[misc]
    """A model of two labels."""

    def _loaded(self) -> Any:
        super()._loaded()
        self.classes_ = np.array(self.model_.labels)
        return self

    def decision_function(self, X: Any) -> Any:
        """The score of every row: above zero for the second label."""
        return self.model_.score(X)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each label, for logistic models."""
        return self.model_.predict_proba(X)
