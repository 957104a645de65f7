"""Guarantee 1 as a user would check it: a member of an estimator equals `keras.Model.fit` on the member's rows.

The reference uses nothing of ours but public attributes. One batch holds all rows of a member, so that their order does
not matter, and a fit at learning rate 0 hands out the weights that members start from.
"""

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(31, 4)) * 2 + 1
CODES = np.arange(31) * 7 % 11 % 3
NUMBERS = np.stack([X[:, 0], X[:, 1] ** 2], axis=1)
LABELS = (GENERATOR.random((31, 3)) < 0.4).astype(int)
WEIGHT = GENERATOR.uniform(0.2, 2, 31) * (np.arange(31) % 9 > 0)  # some rows weigh nothing
NAMES = np.array(["c", "a", "b"])
SGD = {"optimizer": "sgd", "optimizer__learning_rate": 0.1, "optimizer__momentum": 0.9, "batch_size": 31, "epochs": 6}


def net(units, activation):
    def build():
        hidden = keras.layers.Dense(5, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))
        return keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(units, activation)])

    return build


# estimator, y, sample_weight, y as Keras wants it, loss of Keras, weights of a member's rows
CASES = {
    "classes with weights of rows and classes": (
        FusedKFoldClassifier(net(3, "softmax"), cv=4, class_weight={"a": 2.0, "b": 0.5, "c": 1.0}, random_state=0),
        *(NAMES[CODES], WEIGHT, np.argsort(np.argsort(NAMES))[CODES], "sparse_categorical_crossentropy"),
        lambda rows: WEIGHT[rows] * np.array([1.0, 2.0, 0.5])[CODES[rows]],
    ),
    "balanced classes of two in logits": (
        FusedKFoldClassifier(net(1, None), cv=3, n_repeats=2, class_weight="balanced", random_state=1),
        *(CODES == 2, None, (CODES == 2).astype(float)),
        lambda: keras.losses.BinaryCrossentropy(from_logits=True),
        lambda rows: compute_sample_weight("balanced", CODES[rows] == 2),
    ),
    "labels": (
        FusedEnsembleClassifier(net(3, "sigmoid"), n_members=3, bootstrap=True, random_state=2),
        *(LABELS, WEIGHT, LABELS, "binary_crossentropy", lambda rows: WEIGHT[rows]),
    ),
    "numbers behind a scaler": (
        FusedKFoldRegressor(net(2, None), cv=4, preprocessor=StandardScaler(), max_fused=3, random_state=3),
        *(NUMBERS, None, NUMBERS, "mse", None),
    ),
    "numbers of single networks": (
        FusedEnsembleRegressor(net(2, None), n_members=2, max_samples=0.7, loss="huber", random_state=4),
        *(NUMBERS, WEIGHT, NUMBERS, "huber", lambda rows: WEIGHT[rows]),
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_a_member_equals_keras_on_its_rows(name):
    estimator, y, weight, keras_y, loss, weigh = CASES[name]
    estimator = clone(estimator).set_params(**SGD)
    fitted = clone(estimator).fit(X, y, sample_weight=weight)
    start = clone(estimator).set_params(optimizer__learning_rate=0.0, epochs=1).fit(X, y, sample_weight=weight)
    for member in (0, fitted.n_members_ - 1):
        split, model = fitted.splits_[member], start.members_[member]
        rows = split.train if weight is None else split.train[weight[split.train] > 0]
        data = X if estimator.preprocessor is None else StandardScaler().fit(X[rows]).transform(X)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss if isinstance(loss, str) else loss())
        own = None if weigh is None else weigh(rows)
        history = model.fit(data[rows], keras_y[rows], sample_weight=own, epochs=6, batch_size=31, verbose=0).history
        for ours, theirs in zip(fitted.members_[member].get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fitted.history_[member]["loss"], history["loss"], rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_a_member_that_stops_early_equals_keras_with_the_rows_it_leaves_out():
    def stopping():
        return keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)

    common = {
        **SGD,
        "epochs": 40,
        "optimizer__learning_rate": 0.3,
        "cv": 3,
        "validation": "held_out",
        "random_state": 5,
    }
    fitted = FusedKFoldRegressor(net(2, None), early_stopping=stopping(), **common).fit(X, NUMBERS)
    start = FusedKFoldRegressor(net(2, None), **{**common, "epochs": 1, "optimizer__learning_rate": 0.0}).fit(
        X, NUMBERS
    )
    for member in (0, 2):
        split, model = fitted.splits_[member], start.members_[member]
        model.compile(keras.optimizers.SGD(0.3, momentum=0.9), "mse")
        held_out = (X[split.test], NUMBERS[split.test])
        history = model.fit(
            *(X[split.train], NUMBERS[split.train]),
            validation_data=held_out,
            callbacks=[stopping()],
            epochs=40,
            batch_size=31,
            verbose=0,
        ).history
        assert len(history["loss"]) == fitted.n_epochs_[member] < 40
        assert fitted.best_epoch_[member] == np.argmin(history["val_loss"])
        np.testing.assert_allclose(fitted.history_[member]["val_loss"], history["val_loss"], rtol=1e-9)
        for ours, theirs in zip(fitted.members_[member].get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
