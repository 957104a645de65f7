import functools

import keras
import numpy as np
import pytest

from kfoldfuse.estimators.head import find_activation, make_loss

layers = keras.layers


def after(*operations):
    data = keras.Input((4,))
    outputs = data
    for operation in operations:
        outputs = operation(outputs)
    return keras.Model(data, outputs)


@pytest.mark.parametrize(
    ("expected", "operations"),
    [
        ("softmax", lambda: [layers.Dense(3, activation="softmax")]),
        ("sigmoid", lambda: [layers.Dense(3, activation=keras.activations.sigmoid)]),
        ("linear", lambda: [layers.Dense(3)]),
        ("softmax", lambda: [layers.Dense(3), layers.Softmax()]),
        ("softmax", lambda: [layers.Dense(3), layers.Activation("softmax"), layers.Activation("linear")]),
        ("sigmoid", lambda: [layers.Dense(3), keras.ops.sigmoid]),
        ("softmax", lambda: [layers.Dense(3), keras.ops.softmax, layers.Reshape((3,))]),
        ("softmax", lambda: [after(layers.Dense(3, activation="softmax"))]),
        ("linear", lambda: [keras.Sequential([layers.Dense(4), after(layers.Dense(3))])]),
        ("linear", lambda: [shared := layers.Dense(4), layers.Activation("relu"), shared]),
        (None, lambda: [layers.Dense(3, activation="relu")]),
        (None, lambda: [layers.Dense(3, activation=lambda x: x)]),
        (None, lambda: [layers.Dense(3), layers.Rescaling(2.0)]),
        (None, lambda: [layers.Dense(3), keras.ops.exp]),
        (None, lambda: [Own()]),
    ],
)
def test_what_a_network_ends_in(expected, operations):
    assert find_activation(after(*operations())) == expected


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3, activation="softmax")

    def call(self, x):
        return 2 * self.dense(x)


@pytest.mark.parametrize("name", ["mse", "mean_squared_error", "MeanSquaredError", keras.losses.mean_squared_error])
def test_losses_of_keras_are_made_from_their_names_as_objects(name):
    # So that two fits with the same name share a traced program.
    assert type(make_loss(name)) is keras.losses.MeanSquaredError


def test_every_loss_function_of_keras_finds_its_class():
    functions = {
        name: value
        for name, value in vars(keras.losses).items()
        if callable(value) and not isinstance(value, type) and name not in ("get", "serialize", "deserialize")
    }
    assert len(functions) > 20
    without = [name for name, function in functions.items() if type(make_loss(function)).__module__[:5] != "keras"]
    assert without == []


def test_a_partial_function_is_a_loss():
    def scaled(y_true, y_pred, factor):
        return factor * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    loss = make_loss(functools.partial(scaled, factor=3.0))
    assert float(loss(np.zeros((2, 1)), np.ones((2, 1)))) == 3.0
