"""Each private thing of Keras that kfoldfuse uses, used: a failure here names what Keras changed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kfoldfuse.fusion import _keras_private


def probabilities(activation):
    return layers.Dense(3, activation=activation)(np.random.default_rng(0).normal(size=(2, 4)))


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_logits_behind_probabilities_are_found(activation):
    outputs = probabilities(activation)
    logits = _keras_private.get_logits(outputs)
    np.testing.assert_allclose(getattr(keras.ops, activation)(logits), outputs, rtol=1e-6)
    assert _keras_private.get_logits(probabilities("relu")) is None


def test_logits_are_found_in_a_graph():
    found = []

    @tf.function
    def call(x):
        for head in (tf.nn.softmax(x), tf.nn.sigmoid(x), tf.nn.relu(x)):
            found.append(_keras_private.get_logits(head) is not None)
        return x

    call(tf.ones((2, 3)))
    assert found == [True, True, False]


def test_the_losses_of_keras_use_attached_logits():
    # Certain and wrong: from the probability alone, the loss is clipped at -log(1e-7).
    probability = keras.ops.convert_to_tensor(np.zeros((1, 1), "float32"))
    _keras_private.set_logits(probability, keras.ops.convert_to_tensor(np.full((1, 1), -50.0, "float32")))
    assert float(keras.losses.BinaryCrossentropy()(np.ones((1, 1)), probability)) == pytest.approx(50)


def test_masks_are_read_and_set():
    embedded = layers.Embedding(3, 2, mask_zero=True)(np.array([[0, 1]]))
    np.testing.assert_array_equal(_keras_private.get_mask(embedded), [[False, True]])
    values = keras.ops.ones((1, 2))
    assert _keras_private.get_mask(values) is None
    _keras_private.set_mask(values, keras.ops.convert_to_tensor([[True, False]]))
    np.testing.assert_array_equal(_keras_private.get_mask(values), [[True, False]])


def test_functional_models_are_told_from_others():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(inputs))

    class Other(keras.Model):
        pass

    class Overridden(type(model)):
        def call(self, *args, **kwargs):
            return super().call(*args, **kwargs)

    assert _keras_private.is_functional(model)
    assert not _keras_private.is_functional(Other())
    assert not _keras_private.is_functional(Overridden(inputs, layers.Dense(2)(inputs)))
    assert not _keras_private.is_functional(keras.Sequential([inputs, layers.Dense(2)]))


def test_variables_tell_whether_they_are_cast():
    norm, dense = layers.BatchNormalization(), layers.Dense(2)
    norm.build((None, 4))
    dense.build((None, 4))
    assert not _keras_private.is_autocast(norm.gamma)
    assert _keras_private.is_autocast(dense.kernel)


def test_initializers_are_recorded_with_what_they_drew():
    with _keras_private.recorded_initializers() as outer:
        first = layers.Dense(2, kernel_initializer="he_normal")
        first.build((None, 4))
        with _keras_private.recorded_initializers() as inner:
            second = layers.Dense(2)
            second.build((None, 4))
    layers.Dense(2).build((None, 4))
    assert {id(variable) for variable in first.variables} == set(outer)
    assert {id(variable) for variable in second.variables} == set(inner)
    variable, initializer, drawn = outer[id(first.kernel)]
    assert variable is first.kernel
    assert type(initializer) is keras.initializers.HeNormal
    np.testing.assert_array_equal(drawn, first.kernel)


def test_recording_once_does_not_wrap_keras_ever_deeper():
    with _keras_private.recorded_initializers():
        pass
    method = keras.Variable._initialize_with_initializer
    with _keras_private.recorded_initializers():
        pass
    assert keras.Variable._initialize_with_initializer is method


def test_the_global_generator_is_kept_and_replaced():
    keras.utils.set_random_seed(3)
    first = float(keras.random.normal(()))
    keras.utils.set_random_seed(3)
    with _keras_private.kept_global_seed():
        _keras_private.use_global_seed(4)
        assert float(keras.random.normal(())) != first
    assert float(keras.random.normal(())) == first


def test_the_default_dtype_is_changed_and_put_back():
    before = layers.Dense(1).compute_dtype
    with _keras_private.default_dtype("float64"):
        assert layers.Dense(1).compute_dtype == keras.config.floatx() == "float64"
        with _keras_private.default_dtype("float32"):
            assert layers.Dense(1).compute_dtype == "float32"
        assert layers.Dense(1).compute_dtype == "float64"
    assert layers.Dense(1).compute_dtype == before


def test_a_stateless_scope_collects_losses_and_keeps_variables():
    # Public, but copying rests on these details of it.
    layer = layers.Dense(2, activity_regularizer="l2")
    layer.build((None, 4))
    before = layer.kernel.numpy()
    with keras.StatelessScope(state_mapping=[(layer.kernel, before * 2)], collect_losses=True) as scope:
        layer(np.ones((3, 4)))
        layer.kernel.assign(before * 3)
        assert len(scope.losses) == 1
        np.testing.assert_array_equal(scope.get_current_value(layer.kernel), before * 3)
    np.testing.assert_array_equal(layer.kernel, before)
    assert layer.losses == []
