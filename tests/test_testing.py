"""The harness for layer rules has power: a rule broken on purpose is caught, each in its own way."""

import keras
import numpy as np
import pytest
from keras import ops

from kfoldfuse import register_layer_rule
from kfoldfuse.fusion import rows
from kfoldfuse.fusion.registry import unregister_layer_rule
from kfoldfuse.testing import check_layer_rule


class Affine(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(3,), initializer="zeros", name="bias")

    def call(self, inputs):
        return ops.matmul(inputs, self.kernel) + self.bias


class CentredByItsRows(keras.layers.Layer):
    """Takes off the mean over the batch in training, and counts its calls."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs, training=False):
        if not training:
            return inputs * self.scale
        self.calls.assign(self.calls + 1)
        return (inputs - ops.mean(inputs, axis=0, keepdims=True)) * self.scale


class Noisy(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, inputs, training=False):
        if not training:
            return inputs * self.scale
        return inputs * self.scale + keras.random.normal(
            ops.shape(inputs), seed=self.seed_generator, dtype=inputs.dtype
        )


@pytest.fixture
def rule():
    registered = []

    def register(layer_type, function, *variables):
        register_layer_rule(layer_type, function, variables=variables)
        registered.append(layer_type)

    yield register
    for layer_type in registered:
        unregister_layer_rule(layer_type)


def affine(layer, weights, inputs):
    return ops.matmul(inputs, weights(layer.kernel)) + ops.expand_dims(weights(layer.bias), 1)


def centred(layer, weights, inputs, training, count=None):
    scale = ops.expand_dims(weights(layer.scale), 1)
    if not training:
        return inputs * scale
    weights.assign(layer.calls, weights(layer.calls) + 1)
    counts = rows.row_mask(ops.shape(inputs)[1]) if count is None else None
    if counts is None:
        return (inputs - ops.mean(inputs, axis=1, keepdims=True)) * scale
    counts = ops.expand_dims(counts, 2)
    n_rows = ops.maximum(ops.sum(ops.cast(counts, inputs.dtype), axis=1, keepdims=True), 1)
    return (inputs - ops.sum(ops.where(counts, inputs, 0), axis=1, keepdims=True) / n_rows) * scale


def failure(layer_factory, input_shape=(4,), **options):
    with pytest.raises(AssertionError) as caught:
        check_layer_rule(layer_factory, input_shape, **options)
    return str(caught.value)


def test_right_rules_pass(rule):
    rule(Affine, lambda layer, weights, inputs, *, training: affine(layer, weights, inputs), "kernel", "bias")
    rule(
        CentredByItsRows, lambda layer, weights, x, *, training: centred(layer, weights, x, training), "scale", "calls"
    )
    check_layer_rule(Affine, (4,))
    check_layer_rule(CentredByItsRows, (4,))


def test_floatx_and_default_policy_are_left_as_found(rule):
    before = keras.config.floatx(), keras.layers.Dense(1).dtype_policy.name
    check_layer_rule(lambda: keras.layers.Dense(2), (3,))
    failure(lambda: keras.layers.Dense(2), (3,), lowering="copied")
    assert (keras.config.floatx(), keras.layers.Dense(1).dtype_policy.name) == before


def test_another_lowering_than_expected_is_caught():
    assert "the lowering must be 'rule', but was {'affine" in failure(Affine)


def test_a_forgotten_bias_is_caught(rule):
    rule(Affine, lambda layer, weights, x, *, training: ops.matmul(x, weights(layer.kernel)), "kernel", "bias")
    assert "the outputs must equal those of the layer alone, but differ by up to" in failure(Affine)


def test_a_rule_that_ignores_which_rows_count_is_caught(rule):
    rule(
        CentredByItsRows,
        lambda layer, weights, x, *, training: centred(layer, weights, x, training, count="all"),
        "scale",
        "calls",
    )
    assert "in training, member 2 with 2 of its rows counting: the outputs" in failure(CentredByItsRows)


def test_members_mixed_in_the_outputs_are_caught(rule):
    def mixed(layer, weights, inputs, *, training):
        outputs = affine(layer, weights, inputs)
        return outputs + 1e-3 * ops.mean(outputs, axis=0, keepdims=True)

    rule(Affine, mixed, "kernel", "bias")
    assert "the outputs must equal" in failure(Affine)


def test_a_leak_that_only_nan_shows_is_caught(rule):
    def leaking(layer, weights, inputs, *, training):
        outputs = affine(layer, weights, inputs)
        return outputs + 0.0 * ops.mean(outputs, axis=0, keepdims=True)

    rule(Affine, leaking, "kernel", "bias")
    assert "of member 0 must change no bit of another member, but changed its outputs" in failure(Affine)


def test_a_leak_of_padding_that_only_nan_shows_is_caught(rule):
    def leaking(layer, weights, inputs, *, training):
        return affine(layer, weights, inputs) + 0.0 * ops.mean(inputs, axis=(1, 2), keepdims=True)

    rule(Affine, leaking, "kernel", "bias")
    assert "rows that do not count must change no output and no state" in failure(Affine)


def test_members_lined_up_with_rows_are_caught(rule):
    def misaligned(layer, weights, inputs, *, training):
        return ops.matmul(inputs, weights(layer.kernel)) + weights(layer.bias)

    rule(Affine, misaligned, "kernel", "bias")
    # As many rows as members: the right shape with the wrong numbers.
    assert "the outputs must equal those of the layer alone" in failure(Affine)


def test_a_rule_that_crashes_is_reported_with_its_error(rule):
    def crashing(layer, weights, inputs, *, training):
        raise ZeroDivisionError("no such thing")

    rule(Affine, crashing, "kernel", "bias")
    message = failure(Affine)
    assert message.startswith("The layer must run with 3 members of 3 rows in float64. It raised ZeroDivisionError")
    assert "no such thing" in message


def test_wrong_gradients_with_right_outputs_are_caught(rule):
    def frozen(layer, weights, inputs, *, training):
        outputs = ops.matmul(inputs, ops.stop_gradient(weights(layer.kernel)))
        return outputs + ops.expand_dims(weights(layer.bias), 1)

    rule(Affine, frozen, "kernel", "bias")
    assert "the gradients of the weights must equal those of the layer alone" in failure(Affine)


def test_state_that_moves_without_rows_is_caught(rule):
    def moving(layer, weights, inputs, *, training):
        before = weights(layer.calls)
        outputs = centred(layer, weights, inputs, training)
        if training:
            with rows.valid_rows(None):
                weights.assign(layer.calls, before + 1)
        return outputs

    rule(CentredByItsRows, moving, "scale", "calls")
    assert "in training, the state of a member without rows must not move, but did" in failure(CentredByItsRows)


def test_state_that_never_moves_is_caught(rule):
    class Deaf:
        def __init__(self, weights):
            self.weights = weights

        def __call__(self, variable):
            return self.weights(variable)

        def assign(self, variable, value):
            pass

    rule(
        CentredByItsRows,
        lambda layer, weights, x, *, training: centred(layer, Deaf(weights), x, training),
        "scale",
        "calls",
    )
    assert "the state must equal those of the layer alone" in failure(CentredByItsRows)


def test_draws_shared_between_members_are_caught(rule):
    def shared(layer, weights, inputs, *, training):
        outputs = inputs * ops.expand_dims(weights(layer.scale), 1)
        if not training:
            return outputs
        state = weights(layer.seed_generator.state)
        weights.assign(layer.seed_generator.state, state + ops.convert_to_tensor([0, 1], dtype=state.dtype))
        noise = keras.random.normal(ops.shape(inputs)[1:], seed=1, dtype=inputs.dtype)
        return outputs + ops.expand_dims(noise, 0)

    rule(Noisy, shared, "scale", "seed_generator.state")
    assert "in training, member 0 with 3 of its rows counting: the outputs" in failure(Noisy)

    def own(layer, weights, inputs, *, training):
        return weights.call_each(inputs, training=training)

    rule(Noisy, own, "scale", "seed_generator.state")
    check_layer_rule(Noisy, (4,))


def test_a_template_written_to_is_caught(rule):
    def writing(layer, weights, inputs, *, training):
        layer.bias.assign(layer.bias + 1)
        return affine(layer, weights, inputs)

    rule(Affine, writing, "kernel", "bias")
    assert "the values of the layer handed over must stay as they were, but changed" in failure(Affine)


def test_another_dtype_is_caught(rule):
    rule(
        Affine,
        lambda layer, weights, x, *, training: ops.cast(affine(layer, weights, x), "float32"),
        "kernel",
        "bias",
    )
    assert "the outputs must be float64" in failure(Affine)


def test_a_whole_model_can_be_checked():
    def build():
        inputs = keras.Input((4,))
        hidden = keras.layers.Dense(3, activation="relu")(inputs)
        return keras.Model(inputs, keras.layers.BatchNormalization()(hidden))

    check_layer_rule(build, (4,))
    assert "the lowering must be 'copied', but was" in failure(build, lowering="copied")


def test_a_layer_of_several_inputs_can_be_checked():
    check_layer_rule(lambda: keras.layers.Concatenate(), [(4,), (3,)], lowering="folded")
    check_layer_rule(Bilinear, [(4,), (3,)], lowering="copied")


class Bilinear(keras.layers.Layer):
    def build(self, shapes):
        self.kernel = self.add_weight(shape=(shapes[0][-1], shapes[1][-1]), initializer="glorot_uniform")

    def call(self, inputs):
        first, second = inputs
        return ops.sum(ops.matmul(first, self.kernel) * second, axis=-1, keepdims=True)


def test_values_of_the_harness_itself_differ_between_members():
    # The power of all the above rests on members that are unlike: equal ones would hide a mix-up.
    from kfoldfuse.testing.layer_rule import _unlike_the_first_value

    variable = keras.Variable(np.zeros(4, "float32"))
    generator = np.random.default_rng(0)
    first, second = (_unlike_the_first_value(variable, member, generator) for member in range(2))
    assert np.all(first != second)
