"""What `fuse` and `unfuse` refuse: one whole sentence each, and the models as they were."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kfoldfuse import fuse, unfuse
from kfoldfuse.exceptions import UnfusableModelError


def dense(units=2, name=None, **options):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(units, **options)], name=name)
    return model


def refusal(models):
    weights = [[value.copy() for value in model.get_weights()] for model in models if isinstance(model, keras.Model)]
    with pytest.raises(UnfusableModelError) as caught:
        fuse(models)
    after = [model.get_weights() for model in models if isinstance(model, keras.Model)]
    for before, now in zip(weights, after, strict=True):
        assert len(before) == len(now)
        assert all(np.array_equal(one, other) for one, other in zip(before, now, strict=True))
    return str(caught.value)


def test_no_models():
    assert refusal([]) == "`models` must be one or more Keras models. Got []. Pass a list of models."


def test_something_else_than_models():
    assert refusal([dense(), 3]) == (
        "`models` must be one or more Keras models. Got ['Sequential', 'int']. Pass a list of models."
    )


def test_a_model_that_was_never_built():
    model = keras.Sequential([layers.Dense(2, name="first")], name="net")
    assert refusal([dense(), model]) == (
        "`models` must be built. Model 1 ('net') has no weights yet for ['net', 'first']. Call it once on data."
    )


def test_a_model_with_an_activation_that_was_never_built():
    model = dense(activation=layers.PReLU(name="slopes"), name="net")
    assert refusal([model]) == (
        "`models` must be built. Model 0 ('net') has no weights yet for ['slopes']. Call it once on data."
    )


DIFFERENT = {
    "units": (lambda: dense(2), lambda: dense(3)),
    "activation": (lambda: dense(activation="relu"), lambda: dense(activation="tanh")),
    "regularizer": (lambda: dense(), lambda: dense(kernel_regularizer="l2")),
    "trainable": (lambda: dense(), lambda: dense(trainable=False)),
    "functions of one name": (lambda: dense(activation=_same_name(1)), lambda: dense(activation=_same_name(2))),
    "functions that enclose other values": (lambda: dense(activation=_times(1)), lambda: dense(activation=_times(2))),
    "functions that enclose other arrays": (
        lambda: dense(activation=_times(np.zeros(2000))),
        lambda: dense(activation=_times(np.eye(1, 2000, 1000)[0])),
    ),
    "lambda layers": (lambda: _lambda(lambda x: x), lambda: _lambda(lambda x: 2 * x)),
    "layer names that look like settings": (
        lambda: keras.Sequential([keras.Input((4,)), layers.Dense(2, activation="relu", name="relu")]),
        lambda: keras.Sequential([keras.Input((4,)), layers.Dense(2, activation="tanh", name="tanh")]),
    ),
    "subclassed models with other layers": (lambda: _subclassed("relu"), lambda: _subclassed("tanh")),
    "order of inputs": (lambda: _difference(False), lambda: _difference(True)),
}


def _same_name(version):
    if version == 1:

        def activation(x):
            return x * 1
    else:

        def activation(x):
            return x * 2

    return activation


def _times(factor):
    return lambda x: x * factor


def _lambda(function):
    return keras.Sequential([keras.Input((4,)), layers.Lambda(function)])


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(2, activation="relu")

    def call(self, x):
        return self.dense(x)


def _subclassed(activation):
    model = Subclassed()
    model.dense.activation = keras.activations.get(activation)
    model(np.zeros((1, 4)))
    return model


def _difference(swapped):
    first, second = keras.Input((4,)), keras.Input((4,))
    difference = second - first if swapped else first - second
    return keras.Model([first, second], difference)


@pytest.mark.parametrize("builders", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different_architectures(builders):
    models = [build() for build in builders]
    assert refusal(models) == (
        f"`models` must share one architecture. Model 1 ({models[1].name!r}) differs from model 0 "
        f"({models[0].name!r}). Fuse models with different layers or settings in separate calls."
    )


def test_the_same_architecture_under_other_names_is_accepted():
    models = [dense(activation=_times(2), name=name) for name in ("one", "two")]
    assert fuse(models).output_shape == (2, None, 2)


def test_a_model_whose_config_does_not_tell_all():
    model = _subclassed("tanh")
    assert refusal([model]) == (
        f"`models` must come out of a copy by Keras as they went in. Got a different architecture for {model.name!r}. "
        "Give its class, or its layers' classes, a `get_config` that tells all their settings."
    )


def test_a_fixed_batch_size():
    model = keras.Sequential([keras.Input(batch_shape=(8, 4)), layers.Dense(2)])
    assert refusal([model]) == (
        "`model` must leave the batch size open. Got an input of shape (8, 4). Use keras.Input(shape) without "
        "`batch_size`."
    )


def test_a_stateful_layer():
    model = keras.Sequential([keras.Input(batch_shape=(8, 5, 4)), layers.LSTM(2, stateful=True, name="memory")])
    assert refusal([model]) == (
        "`model` must keep all its state in Keras variables that belong to one member. Got: layer 'memory' has "
        "stateful=True and remembers the batch before (leave it out). Change these layers."
    )


class WithRawVariables(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.factor = tf.Variable(2.0)
        self.more = {"a": [tf.Variable(3.0)]}

    def call(self, x):
        return x * self.factor


def test_variables_that_members_would_share():
    model = keras.Sequential([keras.Input((4,)), WithRawVariables(name="mine")])
    assert refusal([model]) == (
        "`model` must keep all its state in Keras variables that belong to one member. Got: layer 'mine' has an "
        "attribute 'factor' that is a variable of the backend (use `self.add_weight`); layer 'mine' has an attribute "
        "'more' that is a variable of the backend (use `self.add_weight`). Change these layers."
    )


class WithoutConfig(layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def test_a_layer_that_cannot_be_copied_is_named():
    model = keras.Sequential([keras.Input((4,)), WithoutConfig(np.sin)], name="net")
    message = refusal([model])
    assert message.startswith("`model` must be a Keras model that can be copied from its config. Got Sequential 'net'")
    assert "WithoutConfig" in message
    assert message.endswith("Pass a function that builds the model, or give its class `get_config` and `from_config`.")


@pytest.mark.parametrize(
    ("reduce", "shape"),
    [
        (lambda x: keras.ops.mean(x, axis=0, keepdims=True), (1, 4)),
        (lambda x: keras.ops.transpose(x), (4, None)),
        (lambda x: keras.ops.reshape(x, (-1, 2)), (None, 2)),
        (lambda x: keras.ops.matmul(x, keras.ops.transpose(x)), (None, None)),
        (keras.ops.sum, ()),
    ],
)
def test_an_output_that_is_not_one_row_per_row(reduce, shape):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, reduce(inputs), name="net")
    assert refusal([model]) == (
        f"`model` must return one row for each row of its input. Got an output of shape {shape} from 'net'. Leave "
        "reductions over the batch to the loss."
    )


def test_unfuse_of_an_ordinary_model():
    with pytest.raises(UnfusableModelError) as caught:
        unfuse(dense())
    assert str(caught.value) == (
        "`fused_model` must come from kfoldfuse.fuse. Got Sequential. Keep the model that `fuse` returned: it knows "
        "the template of its members."
    )


def test_members_are_independent_of_the_models_they_came_from(random_models):
    models = random_models(lambda: dense(activation="relu"), 2)
    fused = fuse(models)
    before = [model.get_weights() for model in models]
    for model in models:
        model.set_weights([value + 1 for value in model.get_weights()])
        model.layers[0].trainable = False
    members = unfuse(fused)
    for member, weights in zip(members, before, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(member.get_weights(), weights, strict=True))
        assert member.trainable_variables
    members[0].set_weights([value * 0 for value in before[0]])
    assert np.array_equal(unfuse(fused)[0].get_weights()[0], before[0][0])


def test_training_the_fused_model_by_hand_moves_what_unfuse_returns(random_models):
    models = random_models(lambda: dense(), 2)
    fused = fuse(models)
    fused.trainable_variables[0].assign(fused.trainable_variables[0] * 2)
    for member, model in zip(unfuse(fused), models, strict=True):
        np.testing.assert_array_equal(member.get_weights()[0], 2 * model.get_weights()[0])
