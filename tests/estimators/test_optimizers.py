"""Optimizers of the estimators."""

import keras
import numpy as np

from kfoldfuse import FusedEnsembleRegressor


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
