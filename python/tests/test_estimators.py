"""The estimators in the company of scikit-learn."""

import copy
import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import undertone as ut
from undertone._estimators import EXPECTED_FAILED_CHECKS

ALL = [ut.PrivateRegressor(), ut.PrivateClassifier()]
BOUNDS = {"x_bounds": (-3, 3)}


def data(rows=900, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)).clip(-3, 3)
    y = X @ [1.0, -2.0, 0.5] + 0.7 + rng.normal(0, 0.3, rows)
    return X, y, np.array(["a", "b", "c"])[np.arange(rows) % 3]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        (estimator, check)
        for one in ALL
        for estimator, check in estimator_checks_generator(one, expected_failed_checks=EXPECTED_FAILED_CHECKS[type(one).__name__], mark="skip")
    ],
    ids=lambda one: getattr(getattr(one, "func", one), "__name__", type(one).__name__),
)
def test_the_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ut.PrivacyWarning)
        check(estimator)


def test_privacy_is_why_a_check_is_not_passed():
    large = ut.PrivateRegressor(epsilon=1000.0)
    checks = [check for _, check in estimator_checks_generator(large) if check.func.__name__ == "check_regressors_train"]
    assert checks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in checks:
            check(large)


def test_regression():
    X, y, party = data()
    model = ut.PrivateRegressor(epsilon=8, y_bounds=(-8, 8), **BOUNDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all that is public was given
        model.fit(X, y, groups=party)
    assert model.score(X, y) > 0.8 and model.coef_.shape == (3,) and 7 < model.epsilon_ <= 8
    assert model.parties_ == ["a", "b", "c"] and model.n_features_in_ == 3
    assert np.allclose(model.predict(X), model.model_.predict({f"x{p}": X[:, p] for p in range(3)}))
    # New noise in every fit, unless it is seeded.
    assert not np.array_equal(model.coef_, clone(model).fit(X, y, groups=party).coef_)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classification(loss):
    X, y, party = data()
    labels = np.where(y > 0, "ill", "well")
    model = ut.PrivateClassifier(loss, epsilon=8, classes=["ill", "well"], **BOUNDS).fit(X, labels, groups=party)
    assert model.score(X, labels) > 0.85 and list(model.classes_) == ["ill", "well"]
    assert hasattr(model, "predict_proba") == (loss == "logistic")
    if loss == "logistic":
        assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
        assert np.array_equal(model.predict(X) == "well", model.predict_proba(X)[:, 1] >= 0.5)
        assert np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    with pytest.raises(ValueError, match="not in classes"):
        model.fit(X, np.where(y > 0, "ill", "dead"))


@pytest.mark.parametrize(("loss", "more"), [("absolute", {}), ("huber", {"threshold": 0.1}), ("quantile", {"level": 0.9})])
def test_other_losses(loss, more):
    X, y, party = data()
    model = ut.PrivateRegressor(loss, epsilon=20, y_bounds=(-8, 8), **BOUNDS, **more).fit(X, y, groups=party)
    below = np.mean(y < model.predict(X))
    assert (below > 0.65) if loss == "quantile" else model.score(X, y) > 0.6


def test_what_is_not_private_says_so():
    X, y, _ = data(300)
    with pytest.warns(ut.PrivacyWarning, match="y_bounds, x_bounds are not given and were taken from the records"):
        ut.PrivateRegressor().fit(X, y)
    with pytest.warns(ut.PrivacyWarning, match="epsilon=None"):
        model = ut.PrivateRegressor(epsilon=None, y_bounds=(-8, 8), **BOUNDS).fit(X, y)
    assert model.epsilon_ is None and model.score(X, y) > 0.95
    with pytest.warns(ut.PrivacyWarning, match="random_state"):
        one = ut.PrivateRegressor(y_bounds=(-8, 8), random_state=1, **BOUNDS).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = ut.PrivateRegressor(y_bounds=(-8, 8), random_state=1, **BOUNDS).fit(X, y)
        other = ut.PrivateRegressor(y_bounds=(-8, 8), random_state=2, **BOUNDS).fit(X, y)
    assert np.array_equal(one.coef_, same.coef_) and not np.array_equal(one.coef_, other.coef_)
    assert one.epsilon_ is None, "noise that can be repeated is worth nothing"


def test_bounds_decide_alone():
    """Records outside the bounds count as the ends: what they say beyond that must not matter."""
    X, y, party = data(300)
    model = ut.PrivateRegressor(y_bounds=(-8, 8), random_state=1, **BOUNDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = clone(model).fit(X, np.where(np.arange(300) == 5, 8.0, y), groups=party).coef_
        far = clone(model).fit(X, np.where(np.arange(300) == 5, 1e6, y), groups=party).coef_
    assert np.array_equal(plain, far)
    with pytest.raises(ValueError, match="x_bounds must be"):
        ut.PrivateRegressor(x_bounds=3).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y, groups=party[:5])
    with pytest.raises(ut.StudyError, match="epsilon"):
        ut.PrivateRegressor(epsilon=-1.0, y_bounds=(-8, 8), **BOUNDS).fit(X, y)


def test_pipelines_searches_and_copies():
    X, y, party = data()
    model = ut.PrivateRegressor(epsilon=8, y_bounds=(-8, 8), **BOUNDS)
    pipe = make_pipeline(StandardScaler(), model).fit(X, y, privateregressor__groups=party)
    assert pipe.score(X, y) > 0.7
    scores = cross_val_score(model, X, y, cv=3, params={"groups": party})
    assert scores.shape == (3,) and scores.mean() > 0.7
    search = GridSearchCV(model, {"epsilon": [0.5, 8]}, cv=2).fit(X, y)
    assert search.best_params_["epsilon"] == 8
    fitted = clone(model).fit(X, y)
    for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert np.array_equal(again.predict(X), fitted.predict(X)) and again.study_ == fitted.study_


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    X, y, party = data()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, party=party)
    model = ut.PrivateRegressor(epsilon=8, y_bounds=(-8, 8), x_bounds=([-3] * 3, [3] * 3))
    model.fit(frame[["a", "b", "c"]], frame["y"], groups=frame["party"])
    assert list(model.feature_names_in_) == ["a", "b", "c"] and model.score(frame[["a", "b", "c"]], y) > 0.8


def test_the_planner_can_choose():
    X, y, party = data(600)
    model = ut.PrivateRegressor(epsilon=4, y_bounds=(-8, 8), algorithm="auto", rounds=15, **BOUNDS).fit(X, y, groups=party)
    assert model.score(X, y) > 0.5


def test_models_become_estimators(spec, columns):
    pandas = pytest.importorskip("pandas")
    run = spec.simulate(columns[0], groups=columns[1])
    frame = pandas.DataFrame(columns[0])
    estimator = run.model.to_sklearn()
    assert np.array_equal(estimator.predict(frame), run.model.predict(frame))
    assert estimator.score(frame, frame["days"]) <= 1 and list(estimator.feature_names_in_) == ["age", "dose", "smoker"]
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict(frame), estimator.predict(frame))


def test_a_model_with_looked_up_bounds_claims_nothing():
    X, y = np.random.default_rng(1).random((60, 2)), np.arange(60.0)
    with pytest.warns(ut.PrivacyWarning, match="not private"):
        model = ut.PrivateRegressor().fit(X, y)
    assert model.epsilon_ is None and model.model_.json["privacy"] is None
    model = ut.PrivateRegressor(x_bounds=(0, 1), y_bounds=(0, 60)).fit(X, y)
    assert model.epsilon_ <= 1 and model.model_.json["privacy"]["epsilon"] == model.epsilon_


def test_ranges_by_column_are_not_taken_for_lows_and_highs():
    X, y = np.random.default_rng(1).random((60, 2)), np.arange(60.0)
    with pytest.raises(ValueError, match="x_bounds must be .lows, highs."):
        ut.PrivateRegressor(x_bounds=[(18, 100), (0, 50)], y_bounds=(0, 60)).fit(X, y)
    with pytest.warns(ut.UndertoneWarning, match="is read as .lows, highs."):
        ut.PrivateRegressor(x_bounds=[(0, 1), (5, 10)], y_bounds=(0, 60)).fit(X, y)
    with pytest.raises(ValueError, match="PrivateClassifier has others"):
        ut.PrivateRegressor(loss="logistic").fit(X, y)
