"""Tells when Keras changes what `training/_keras_private.py` relies on."""

import inspect

import keras
import numpy as np
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from kfoldfuse.training import _keras_private

# What the TensorFlow class overrides and the stateless one takes back or leaves on purpose.
TAKEN_BACK = {
    "assign",
    "assign_add",
    "assign_sub",
    "_var_key",
    "_apply_weight_decay",
    "_backend_update_step",
    "_clip_by_norm",
    "stateless_apply",
}
UNUSED = {
    "__init__",  # runs with a real optimizer, before the class is swapped
    "add_variable_from_reference",  # builds real variables
    "_distributed_tf_update_step",
    "_all_reduce_sum_gradients",
    "_overwrite_model_variables_with_average_value",  # replaced by `where` in _backend_apply_gradients
    "_backend_increment_gradient_accumulators",  # replaced by `where` in _backend_apply_gradients
}


def test_the_tensorflow_optimizer_overrides_nothing_new():
    overridden = {
        name
        for name, value in vars(TFOptimizer).items()
        if inspect.isfunction(value) and hasattr(BaseOptimizer, name) or name in UNUSED
    }
    assert overridden - UNUSED <= TAKEN_BACK
    assert set(vars(_keras_private._StatelessOptimizer)) >= TAKEN_BACK


def test_the_base_class_still_branches_where_we_choose():
    source = inspect.getsource(BaseOptimizer._backend_apply_gradients)
    for expected in ("_clip_gradients", "_apply_weight_decay", "_backend_update_step", "ema_overwrite_frequency"):
        assert expected in source


def test_a_stateless_optimizer_stands_behind_the_users_class():
    class Own(keras.optimizers.Nadam):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient * 2, variable, learning_rate)

    optimizer = _keras_private.make_stateless(Own(0.1))
    names = [kind.__name__ for kind in type(optimizer).__mro__]
    assert names.index("Nadam") < names.index("_StatelessOptimizer") < names.index("TFOptimizer")
    variable = keras.Variable(np.ones(2))
    optimizer.build([variable])
    slots = [keras.ops.convert_to_tensor(slot.value) for slot in optimizer.variables]
    (value,), _ = optimizer.stateless_apply(slots, [keras.ops.ones(2)], [keras.ops.ones(2)])
    assert (keras.ops.convert_to_numpy(value) < 1).all()
    np.testing.assert_array_equal(variable.numpy(), np.ones(2))


def test_the_function_of_a_wrapped_metric_is_found():
    metric = keras.metrics.MeanMetricWrapper(max, name="largest", key=abs)
    assert _keras_private.wrapped_function(metric) == (max, {"key": abs})


def test_a_schedule_of_the_users_own_stands_in_the_config_itself():
    class Constant(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.5

    own, cosine = Constant(), keras.optimizers.schedules.CosineDecay(0.1, 3)
    optimizer = keras.optimizers.SGD(own, momentum=0.25)
    config = _keras_private.config_of(optimizer)
    assert config["learning_rate"] is own
    plain = keras.optimizers.SGD(momentum=0.25, name=optimizer.name).get_config()
    assert {**plain, "learning_rate": own} == config
    assert optimizer.learning_rate == 0.5
    assert _keras_private.own_learning_rate(keras.optimizers.SGD(cosine)) is None
    assert _keras_private.own_learning_rate(keras.optimizers.SGD(0.1)) is None


def test_the_arguments_that_a_loss_hands_on_are_found():
    assert _keras_private.wrapped_arguments(keras.losses.Huber(delta=3.0)) == {"delta": 3.0}
    assert _keras_private.wrapped_arguments(keras.metrics.Mean()) == {}


def test_all_layers_are_found_inside_wrappers():
    layers = keras.layers
    model = keras.Sequential([keras.Input((3, 2)), layers.Bidirectional(layers.LSTM(2))])
    names = {type(layer).__name__ for layer in _keras_private.all_layers(model)}
    assert {"Sequential", "Bidirectional", "LSTM", "LSTMCell"} <= names


def test_callbacks_find_the_direction_of_a_metric_in_our_list():
    mae = keras.metrics.MeanMetricWrapper(keras.losses.mean_absolute_error, name="mae")

    class View:
        metrics = (_keras_private.metrics_list([mae]),)

    stop = keras.callbacks.EarlyStopping(monitor="val_mae")
    stop.set_model(View())
    stop.on_train_begin()
    stop.on_epoch_end(0, {"val_mae": 1.0})
    assert stop.monitor_op is keras.ops.less
