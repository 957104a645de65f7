"""What makes two architectures equal, and what of a model a copy keeps."""

import functools

import keras
import numpy as np
import pytest
from keras import layers, ops

from kfoldfuse.fusion.architecture import copy_model, describe


def net(activation=None, name=None):
    return keras.Sequential([keras.Input((4,)), layers.Dense(2, activation=activation)], name=name)


def scaled(x, factor):
    return x * factor


class Opaque:
    def __init__(self, value):
        self.value = value


def enclosing(value):
    return lambda x: x * value.value if isinstance(value, Opaque) else x


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, None),
        ("relu", keras.activations.relu),
        (enclosing(1), enclosing(1)),
        (enclosing(np.float32(0.5)), enclosing(np.float32(0.5))),
        (enclosing({"a": [1, 2]}), enclosing({"a": [1, 2]})),
        (enclosing(scaled), enclosing(scaled)),
        (functools.partial(scaled, factor=2), functools.partial(scaled, factor=2)),
    ],
    ids=["none", "of Keras", "integer", "NumPy number", "dict", "function", "partial"],
)
def test_equal_settings_make_equal_architectures(one, other):
    assert describe(net(one, "first")) == describe(net(other, "second"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (enclosing(1), enclosing(2)),
        (enclosing({"a": [1, 2]}), enclosing({"a": [1, 3]})),
        (enclosing(Opaque(1)), enclosing(Opaque(1))),
        (functools.partial(scaled, factor=2), functools.partial(scaled, factor=3)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: ops.sin(x), lambda x: ops.cos(x)),
    ],
    ids=["integer", "dict", "what cannot be compared", "partial", "constant", "name"],
)
def test_other_settings_make_other_architectures(one, other):
    assert describe(net(one)) != describe(net(other))


def test_one_function_with_something_that_cannot_be_compared_is_equal_to_itself():
    activation = enclosing(Opaque(1))
    assert describe(net(activation)) == describe(net(activation))


def test_an_object_at_the_address_of_a_dead_one_is_another():
    seen = {describe(net(enclosing(Opaque(1)))) for _ in range(5)}
    assert len(seen) == 5


def test_a_copy_keeps_functions_and_shares_no_weights():
    model = net(enclosing(3))
    copied = copy_model(model)
    assert copied.layers[0].activation is model.layers[0].activation
    assert describe(copied) == describe(model)
    assert copied.layers[0].kernel is not model.layers[0].kernel


def test_a_copy_keeps_what_is_shared_between_nested_models():
    inputs, middle_input = keras.Input((4,)), keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    middle = keras.Model(middle_input, inner(middle_input))
    model = keras.Model(inputs, middle(inputs) + inner(inputs))
    assert len(copy_model(model).variables) == len(model.variables) == 2


def test_a_copy_keeps_a_lambda_layer_with_its_settings():
    def scale(x, factor):
        return x * factor

    model = keras.Sequential(
        [keras.Input((4,)), layers.Lambda(scale, output_shape=(4,), arguments={"factor": 3.0}, name="scale")]
    )
    copied = copy_model(model)
    np.testing.assert_array_equal(copied(np.ones((1, 4))), np.full((1, 4), 3.0))
    assert copied.layers[0].name == "scale"
    assert describe(copied) == describe(model)


def test_seeds_of_keras_are_no_part_of_the_architecture_but_the_users_are():
    class Projection(layers.Layer):
        def __init__(self, seed, **kwargs):
            super().__init__(**kwargs)
            self.seed = seed

    def seeded(make):
        return [describe(keras.Sequential([make(seed)])) for seed in (1, 2)]

    assert len(set(seeded(lambda seed: layers.Dropout(0.5, seed=seed)))) == 1
    assert len(set(seeded(Projection))) == 2
