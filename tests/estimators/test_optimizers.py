"""Optimizers of the estimators."""

import keras
import numpy as np
import pytest
from sklearn.base import clone

from kfoldfuse import FusedEnsembleRegressor, FusedKFoldRegressor


def test_what_the_users_optimizer_leaves_out_of_weight_decay_stays_left_out():
    x, y = np.random.default_rng(0).normal(size=(12, 2)), np.zeros(12)
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, bias_initializer="ones")])

    def bias_after(optimizer):
        fitted = FusedEnsembleRegressor(net, optimizer=optimizer, epochs=1, batch_size=12, random_state=0).fit(x, y)
        return fitted.members_[0].get_weights()[1]

    spared = keras.optimizers.SGD(1e-9, weight_decay=1e8)
    spared.exclude_from_weight_decay(var_names=["bias"])
    np.testing.assert_allclose(bias_after(spared), 1, rtol=1e-6)
    assert bias_after(keras.optimizers.SGD(1e-9, weight_decay=1e8)) < 0.95
    assert not spared.built


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """A user's schedule; without `get_config`, as many are written."""

    def __init__(self, start):
        self.start = start

    def __call__(self, step):
        return self.start * 0.5 ** keras.ops.cast(step, "float32")


@pytest.mark.parametrize(
    "rate", [lambda start: Halving(start), lambda start: lambda: start], ids=["schedule", "function"]
)
def test_a_learning_rate_of_the_users_own_is_followed(line, quick, rate):
    X, y = line
    common = {**quick, "cv": 2, "epochs": 2}
    del common["optimizer__learning_rate"]
    still = FusedKFoldRegressor(optimizer=keras.optimizers.SGD(rate(0.0)), **common).fit(X, y)
    moving = clone(still).set_params(optimizer=keras.optimizers.SGD(rate(0.1))).fit(X, y)
    searched = clone(still).set_params(optimizer="sgd", optimizer__learning_rate=rate(0.1)).fit(X, y)
    np.testing.assert_array_equal(moving.members_[0].get_weights()[0], searched.members_[0].get_weights()[0])
    assert (still.members_[0].get_weights()[0] != moving.members_[0].get_weights()[0]).all()
    assert (moving.history_[0]["loss"][1] - still.history_[0]["loss"][1]) != 0


def test_a_schedule_of_the_users_own_is_what_plain_keras_follows(line):
    X, y = line
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
    given = {"optimizer": keras.optimizers.SGD(Halving(0.2)), "loss": "mse"}
    fitted = FusedEnsembleRegressor(net, **given, epochs=3, batch_size=60).fit(X, y)
    net.compile(**given)
    net.fit(X, y, epochs=3, batch_size=60, verbose=0)
    for one, other in zip(fitted.members_[0].get_weights(), net.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
