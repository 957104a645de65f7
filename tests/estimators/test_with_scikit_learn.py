import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor


def test_grid_search_over_parameters_of_model_optimizer_and_estimator(blobs, quick):
    grid = {"model__units": [1, 6], "optimizer__learning_rate": [1e-6, 0.05], "batch_size": [16]}
    search = GridSearchCV(FusedEnsembleClassifier(**quick), grid, cv=2).fit(*blobs)
    assert search.best_params_["optimizer__learning_rate"] == 0.05
    assert search.best_estimator_.get_params()["model__units"] == search.best_params_["model__units"]
    assert search.best_score_ > 0.8
    assert search.predict_proba(blobs[0]).shape == (60, 3)


def test_randomized_search(line, quick):
    choices = {"optimizer__learning_rate": loguniform(1e-3, 1e-1), "combine": ["mean", "median"]}
    search = RandomizedSearchCV(FusedKFoldRegressor(cv=2, **quick), choices, n_iter=3, cv=2, random_state=0)
    assert search.fit(*line).best_score_ > 0


def test_integer_cv_is_stratified(blobs, quick):
    X, y = blobs
    order = np.argsort(y)  # unstratified folds of sorted labels would score 0
    assert cross_val_score(FusedEnsembleClassifier(**quick), X[order], y[order], cv=3).mean() > 0.8


def test_pipeline(blobs, quick):
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), FusedKFoldClassifier(cv=3, **quick))
    pipeline.set_params(fusedkfoldclassifier__model__units=4)
    assert pipeline.fit(X * 100 + 7, y).score(X * 100 + 7, y) > 0.9
    assert pipeline[-1].get_params()["model__units"] == 4


def test_cross_val_predict_with_probabilities(blobs, quick):
    X, y = blobs
    probabilities = cross_val_predict(FusedEnsembleClassifier(**quick), X, y, cv=3, method="predict_proba")
    assert probabilities.shape == (60, 3)
    assert np.mean(probabilities.argmax(axis=1) == y) > 0.8


def test_folds_of_an_estimator_and_of_scikit_learn_are_the_same_rows(blobs, quick):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=3, **quick).fit(X, y)
    for split, (train, test) in zip(classifier.splits_, StratifiedKFold(3).split(X, y), strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)


def test_cross_validate_passes_weights_and_groups(blobs, quick):
    X, y = blobs
    result = cross_validate(
        FusedEnsembleClassifier(**quick),
        X,
        y,
        cv=2,
        params={"sample_weight": np.linspace(0.5, 1, 60)},
        scoring=["accuracy", "neg_log_loss", "roc_auc_ovr"],
        error_score="raise",
    )
    assert result["test_accuracy"].mean() > 0.8


@pytest.mark.parametrize(
    "make",
    [
        lambda own: VotingClassifier([("net", own), ("linear", LogisticRegression())], voting="soft"),
        lambda own: StackingClassifier([("net", own), ("linear", LogisticRegression())], cv=2),
        lambda own: BaggingClassifier(own, n_estimators=2, max_features=4, random_state=0),
        lambda own: AdaBoostClassifier(own, n_estimators=2, random_state=0),
        lambda own: CalibratedClassifierCV(own, cv=2),
        lambda own: OneVsRestClassifier(own),
    ],
    ids=["voting", "stacking", "bagging", "boosting", "calibrated", "one-vs-rest"],
)
@pytest.mark.parametrize("kind", [FusedEnsembleClassifier, FusedKFoldClassifier])
def test_meta_estimators(blobs, quick, kind, make):
    X, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    meta = make(kind(**quick, **({"cv": 2} if kind is FusedKFoldClassifier else {}))).fit(X, labels)
    assert meta.score(X, labels) > 0.85


def test_stacking_regressors(line, quick):
    stacking = StackingRegressor([("net", FusedEnsembleRegressor(**quick))], cv=2)
    assert stacking.fit(*line).score(*line) > 0.9


def test_permutation_importance(line, quick):
    X, y = line
    regressor = FusedEnsembleRegressor(**quick).fit(X, y)
    importances = permutation_importance(regressor, X, y, n_repeats=2, random_state=0).importances_mean
    assert importances.argmin() == 3  # y does not depend on it


@pytest.mark.parametrize(
    "kind", [FusedKFoldClassifier, FusedKFoldRegressor, FusedEnsembleClassifier, FusedEnsembleRegressor]
)
def test_default_parameters_are_good_enough(blobs, line, kind):
    X, y = blobs if "Classifier" in kind.__name__ else line
    assert kind(random_state=0).fit(X, y).score(X, y) > 0.9
