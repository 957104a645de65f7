"""Settings that a user's class keeps out of its config are not lost in silence."""

import keras
import numpy as np
import pytest

from kfoldfuse import FusedEnsembleRegressor
from kfoldfuse.exceptions import LossyCopyError
from kfoldfuse.training.metrics import copy_metric
from kfoldfuse.training.optimizer import copy_optimizer


class Scaled(keras.optimizers.SGD):
    def __init__(self, learning_rate=0.01, scale=1.0, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.scale = scale


class ScaledWithConfig(Scaled):
    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


class Floored(keras.metrics.MeanSquaredError):
    def __init__(self, floor=0.0, name="floored", **kwargs):
        super().__init__(name=name, **kwargs)
        self.floor = floor


MESSAGE = (
    "`{}` must have a `get_config` that holds all its arguments, as each member gets a copy. Got {} with {}, and its "
    "copy has {}. Add {!r} to `get_config`."
)


def test_an_optimizer_without_all_arguments_in_its_config_is_refused():
    with pytest.raises(LossyCopyError) as caught:
        copy_optimizer(Scaled(scale=3.0))
    assert str(caught.value) == MESSAGE.format("optimizer", "Scaled", "scale=3.0", "1.0", "scale")


def test_a_metric_without_all_arguments_in_its_config_is_refused_before_training():
    with pytest.raises(LossyCopyError) as caught:
        FusedEnsembleRegressor(metrics=[Floored(floor=float("nan"))]).fit(np.ones((4, 2)), np.arange(4.0))
    assert str(caught.value) == MESSAGE.format("metrics", "Floored", "floor=nan", "0.0", "floor")


def test_a_full_config_or_default_arguments_are_copied():
    assert copy_optimizer(ScaledWithConfig(scale=3.0)).scale == 3.0
    assert copy_optimizer(ScaledWithConfig(scale=3.0), scale=4.0).scale == 4.0
    assert copy_optimizer(Scaled()).scale == 1.0
    assert copy_metric(Floored()).floor == 0.0
    built = Scaled()
    built.build([keras.Variable(np.ones(2))])
    assert not copy_optimizer(built).built
