"""What belongs to the caller stays as it was: arrays, models, optimizers, callbacks, dicts, random state."""

import random

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from kfoldfuse import FusedEnsembleClassifier, FusedKFoldClassifier, FusedKFoldRegressor


def test_arrays_are_not_written(blobs, quick):
    X, y = (array.copy() for array in blobs)
    weight, groups = np.linspace(0, 1, 60), np.arange(60)
    arrays = [X, y, weight, groups]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    for preprocessor in (None, StandardScaler(), keras.layers.Normalization()):
        classifier = FusedKFoldClassifier(
            cv=[(groups[:40], groups[40:]), (groups[20:], groups[:20])],
            class_weight="balanced",
            preprocessor=preprocessor,
            **quick,
        )
        classifier.fit(X, y, sample_weight=weight).predict(X)
    for array, original in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, original)


def test_attributes_do_not_share_memory_with_x_and_y(line, quick):
    X, y = (array.copy() for array in line)
    regressor = FusedKFoldRegressor(cv=3, **quick).fit(X, y)
    predictions, out_of_fold = regressor.predict(X), regressor.oof_predictions_.copy()
    y[:] = np.nan
    assert np.isfinite(regressor.oof_predictions_).all()
    np.testing.assert_array_equal(regressor.oof_predictions_, out_of_fold)
    np.testing.assert_array_equal(regressor.predict(X), predictions)


def test_model_optimizer_callbacks_and_dicts_are_not_changed(blobs):
    X, y = blobs
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(6), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    weights = model.get_weights()
    optimizer = keras.optimizers.Adam(0.01)
    stopping, plateau = keras.callbacks.EarlyStopping("val_loss", patience=1), keras.callbacks.ReduceLROnPlateau()
    states = [dict(vars(callback)) for callback in (stopping, plateau)]
    class_weight, metrics = {0: 1.0, 1: 2.0}, ["accuracy"]
    scaler = StandardScaler()
    classifier = FusedKFoldClassifier(
        model,
        optimizer=optimizer,
        cv=3,
        epochs=3,
        early_stopping=stopping,
        callbacks=[plateau],
        class_weight=class_weight,
        metrics=metrics,
        preprocessor=scaler,
        random_state=0,
    )
    classifier.fit(X, y)
    classifier.members_[0].fit(scaler.fit_transform(X), y, verbose=0)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert model.optimizer.iterations == 0
    assert not optimizer.built
    assert [dict(vars(callback)) for callback in (stopping, plateau)] == states
    assert (class_weight, metrics) == ({0: 1.0, 1: 2.0}, ["accuracy"])
    assert classifier.model is model


def test_members_start_from_weights_of_their_own_not_from_the_models(line):
    X, y = line
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    regressor = FusedKFoldRegressor(model, optimizer="sgd", optimizer__learning_rate=0.0, cv=3, epochs=1).fit(X, y)
    kernels = [member.get_weights()[0] for member in regressor.members_] + [model.get_weights()[0]]
    for position, kernel in enumerate(kernels):
        for other in kernels[:position]:
            assert not np.array_equal(kernel, other)


def test_global_random_state_is_left_as_found(blobs, quick):
    X, y = blobs

    def careless(meta):
        random.random()
        np.random.random()  # noqa: NPY002
        keras.random.normal((1,))
        return quick["model"](meta)

    def numbers():
        return random.random(), np.random.random(), np.asarray(keras.random.normal((2,))).tolist()  # noqa: NPY002

    classifier = FusedKFoldClassifier(**{**quick, "model": careless, "random_state": None}, cv=3, validation=0.2)
    keras.utils.set_random_seed(3)
    expected = numbers()
    keras.utils.set_random_seed(3)
    classifier.fit(X, y).predict_proba(X)
    _ = classifier.members_[0], classifier.model_
    assert numbers() == expected


def test_global_random_state_is_not_read(blobs, quick):
    predictions = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        predictions.append(FusedEnsembleClassifier(**quick, bootstrap=True).fit(*blobs).predict_proba(blobs[0]))
    np.testing.assert_array_equal(*predictions)


def test_estimator_that_refuses_stays_as_it_was(blobs, quick):
    X, y = blobs
    fresh = FusedKFoldClassifier(cv=3, **quick)
    before = dict(vars(fresh))
    with pytest.raises(ValueError, match="2 classes"):
        fresh.fit(X, np.zeros(60))
    assert vars(fresh) == before
    fitted = clone(fresh).fit(X, y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="inconsistent"):
        fitted.fit(X[:, :2], y[:50])
    assert all(vars(fitted)[name] is value for name, value in before.items())
    assert fitted.predict(X).shape == (60,)


def test_attributes_of_an_unfitted_estimator_do_not_exist():
    for name in ("model_", "members_", "classes_", "oof_score_"):
        assert not hasattr(FusedKFoldClassifier(), name)
    with pytest.raises(AttributeError) as caught:
        _ = FusedKFoldClassifier().members_
    assert str(caught.value) == "FusedKFoldClassifier has no `members_` before `fit`. Call fit(X, y) first."
