"""scikit-learn's own checks of an estimator, all of them."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from kfoldfuse import (
    FusedEnsembleClassifier,
    FusedEnsembleRegressor,
    FusedKFoldClassifier,
    FusedKFoldRegressor,
)

# Few members and epochs, a batch that holds most of the checks' data: what the checks ask for, at a cost of seconds.
QUICK = {"epochs": 40, "batch_size": 64, "optimizer__learning_rate": 0.02, "model__hidden_units": (16,)}

WEIGHTS_ARE_NOT_COPIES = (
    "Keras divides a batch's weighted loss by the number of its rows, not by the sum of their weights, and a network "
    "sees rows in shuffled mini-batches: a row of weight 2 meets other rows, and other updates, than the row twice."
)


def estimators():
    return [
        FusedKFoldClassifier(cv=2, **QUICK),
        FusedKFoldRegressor(cv=2, **QUICK),
        FusedEnsembleClassifier(**QUICK),
        FusedEnsembleRegressor(n_members=2, bootstrap=True, **QUICK),
    ]


def expected_failures(estimator):
    return {"check_sample_weight_equivalence_on_dense_data": WEIGHTS_ARE_NOT_COPIES}


@parametrize_with_checks(estimators(), expected_failed_checks=expected_failures)
def test_estimator_keeps_the_contract(estimator, check):
    check(estimator)
