"""Whole models, fused: whatever their graph looks like, each member computes what it computes alone."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kfoldfuse import fuse

RULE, FOLDED, COPIED = "rule", "folded", "copied"


def functional(shape, call, dtype=None):
    def build():
        inputs = keras.Input(shape, dtype=dtype)
        return keras.Model(inputs, call(inputs))

    return build


def sequential(shape, *make_layers, dtype=None):
    return lambda: keras.Sequential([keras.Input(shape, dtype=dtype), *[make() for make in make_layers]])


def test_a_network_of_everyday_layers(check_same_as_alone):
    build = sequential(
        (8, 8, 2),
        lambda: layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2"),
        lambda: layers.BatchNormalization(),
        lambda: layers.MaxPooling2D(2),
        lambda: layers.Flatten(),
        lambda: layers.Dropout(0.3),
        lambda: layers.Dense(3, activation="softmax", activity_regularizer="l2"),
    )
    check_same_as_alone(build, (8, 8, 2), lowerings=[RULE, RULE, FOLDED, FOLDED, RULE, RULE])


FOLDING = {
    "activation": ((4,), lambda: layers.Activation("gelu")),
    "softmax over features": ((3, 4), lambda: layers.Softmax(axis=1)),
    "leaky relu": ((4,), lambda: layers.LeakyReLU()),
    "reshape": ((4, 3), lambda: layers.Reshape((-1, 2))),
    "permute": ((4, 3), lambda: layers.Permute((2, 1))),
    "repeat": ((4,), lambda: layers.RepeatVector(2)),
    "crop": ((4, 4, 2), lambda: layers.Cropping2D(1)),
    "pad": ((4, 4, 2), lambda: layers.ZeroPadding2D(1)),
    "upsample": ((2, 2, 2), lambda: layers.UpSampling2D(2, interpolation="bilinear")),
    "average pooling": ((4, 2), lambda: layers.AveragePooling1D(2)),
    "global pooling": ((4, 4, 2), lambda: layers.GlobalMaxPooling2D()),
    "unit norm": ((4,), lambda: layers.UnitNormalization()),
    "layer norm without weights": ((4,), lambda: layers.LayerNormalization(center=False, scale=False)),
    "rescaling": ((4,), lambda: layers.Rescaling(2.0, offset=1.0)),
    "normalization by numbers": ((4,), lambda: layers.Normalization(mean=1.0, variance=2.0)),
}


@pytest.mark.parametrize(("shape", "make"), FOLDING.values(), ids=FOLDING.keys())
def test_a_weightless_layer_of_keras_folds(shape, make, check_same_as_alone):
    check_same_as_alone(sequential(shape, make), shape, lowerings=[FOLDED])


def test_operations_of_keras_fold(check_same_as_alone):
    def call(x):
        y = ops.transpose(ops.concatenate([x, ops.sin(x) * 2.0], axis=-1), (0, 2, 1))
        return ops.mean(ops.softmax(y, axis=1), axis=-1) ** 2 + 1.0

    fused = check_same_as_alone(functional((4, 3), call), (4, 3))
    assert set(fused.fused_network.value.lowerings.values()) == {FOLDED}


ACROSS_ROWS = {
    "cumulative sum": lambda x: ops.cumsum(x, axis=0),
    "flip": lambda x: ops.flip(x, axis=0),
    "roll": lambda x: ops.roll(x, 1, axis=0),
    "softmax over the batch": lambda x: ops.softmax(x, axis=0),
    "layer norm over the batch": lambda x: layers.LayerNormalization(axis=0, center=False, scale=False)(x),
    "minus the mean of the batch": lambda x: x - ops.mean(x, axis=0, keepdims=True),
    "matrix product with the transposed": lambda x: ops.matmul(ops.matmul(x, ops.transpose(x)), x),
}


@pytest.mark.parametrize("call", ACROSS_ROWS.values(), ids=ACROSS_ROWS.keys())
def test_what_looks_across_rows_is_copied(call, check_same_as_alone):
    fused = check_same_as_alone(functional((4,), lambda x: call(layers.Dense(4)(x))), (4,))
    assert COPIED in fused.fused_network.value.lowerings.values()


def test_rows_reshaped_into_others_copy_the_whole_graph(check_same_as_alone):
    def call(x):
        steps = layers.Dense(3)(ops.reshape(x, (-1, 4)))
        return ops.reshape(steps, (-1, 6, 3))

    check_same_as_alone(functional((6, 4), call), (6, 4), lowerings=[COPIED])


def test_a_batch_broadcast_against_itself_is_right(check_same_as_alone):
    def call(x):
        distances = ops.sum(ops.square(ops.expand_dims(x, 0) - ops.expand_dims(x, 1)), axis=-1)
        return ops.max(distances, axis=1)

    check_same_as_alone(functional((4,), call), (4,), lowerings=[COPIED])


def test_rows_joined_with_others_and_taken_apart_again_are_right(check_same_as_alone):
    def call(x):
        twice = layers.Dense(3)(layers.Concatenate(axis=0)([x, 2 * x]))
        first, second = ops.split(twice, 2, axis=0)
        return first + second

    check_same_as_alone(functional((4,), call), (4,), lowerings=[COPIED])


RECURRENT_AND_MORE = {
    "LSTM": ((5, 2), lambda: layers.LSTM(3)),
    "GRU with dropout": ((5, 2), lambda: layers.GRU(3, return_sequences=True, dropout=0.3, recurrent_dropout=0.2)),
    "bidirectional": ((5, 2), lambda: layers.Bidirectional(layers.SimpleRNN(3))),
    "separable convolution": ((5, 5, 2), lambda: layers.SeparableConv2D(3, 2)),
    "transposed convolution": ((4, 4, 2), lambda: layers.Conv2DTranspose(3, 2, strides=2)),
    "spectral normalization": ((4,), lambda: layers.SpectralNormalization(layers.Dense(3))),
    "batch renormalization": ((4,), lambda: layers.BatchNormalization(renorm=True)),
    "time distributed": ((5, 4), lambda: layers.TimeDistributed(layers.Dense(3))),
    "random flip": ((4, 4, 2), lambda: layers.RandomFlip(seed=3)),
}


@pytest.mark.parametrize(("shape", "make"), RECURRENT_AND_MORE.values(), ids=RECURRENT_AND_MORE.keys())
def test_a_layer_without_a_rule_is_copied(shape, make, check_same_as_alone):
    check_same_as_alone(sequential(shape, make), shape, lowerings=[COPIED])


def test_attention_with_several_arguments_is_copied(check_same_as_alone):
    def call(x):
        return layers.MultiHeadAttention(2, 3, dropout=0.2)(x, x, use_causal_mask=True)

    check_same_as_alone(functional((5, 4), call), (5, 4), lowerings=[COPIED])


def test_a_mask_made_by_an_embedding_reaches_the_recurrent_layer(check_same_as_alone):
    words = np.random.default_rng(0).integers(0, 3, size=(3, 4, 6)).astype("int32")
    build = sequential(
        (6,),
        lambda: layers.Embedding(3, 2, mask_zero=True),
        lambda: layers.LSTM(3, return_sequences=True),
        dtype="int32",
    )
    check_same_as_alone(build, inputs=words, lowerings=[COPIED])


def test_a_masking_layer_masks(check_same_as_alone):
    values = np.random.default_rng(0).integers(0, 2, size=(3, 4, 5, 1)).astype("float64")
    check_same_as_alone(
        sequential((5, 1), lambda: layers.Masking(), lambda: layers.SimpleRNN(2), lambda: layers.Dense(2)),
        inputs=values,
    )


def test_a_mask_given_at_one_call_only_is_respected_there(check_same_as_alone):
    def call(x):
        normalize = layers.BatchNormalization()
        return normalize(normalize(x), mask=x[..., 0] > 0)

    check_same_as_alone(functional((5, 4), call), (5, 4), lowerings=[COPIED])


def test_nested_and_shared_models(check_same_as_alone):
    def call(x):
        inner = keras.Sequential([keras.Input((4,)), layers.Dense(4, activation="tanh"), layers.Dropout(0.3)])
        middle_input = keras.Input((4,))
        middle = keras.Model(middle_input, inner(middle_input) + inner(2 * middle_input))
        return middle(inner(x)) + middle(x)

    check_same_as_alone(functional((4,), call), (4,))


def test_a_layer_called_twice_shares_its_weights_and_updates_its_state_twice(check_same_as_alone):
    def call(x):
        dense, normalize = layers.Dense(4), layers.BatchNormalization()
        return normalize(dense(normalize(dense(x))))

    fused = check_same_as_alone(functional((4,), call), (4,), lowerings=[RULE, RULE])
    assert len(fused.variables) == 6


class TiedOutput(keras.layers.Layer):
    """Scores words by the embedding they came from: two layers, one variable."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, inputs):
        return ops.matmul(inputs, ops.transpose(self.embedding.embeddings))


class TiedModel(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(5, 3, embeddings_regularizer="l2")
        self.score = TiedOutput(self.embedding)

    def call(self, inputs):
        return self.score(self.embedding(inputs))


def test_variables_tied_between_layers_stay_tied(check_same_as_alone):
    def build():
        model = TiedModel()
        model(np.zeros((1, 2), "int32"))
        return model

    words = np.random.default_rng(0).integers(0, 5, size=(3, 4, 2)).astype("int32")
    fused = check_same_as_alone(build, inputs=words)
    assert len(fused.variables) == 1


def test_a_regularizer_of_a_layer_called_twice_counts_once(check_same_as_alone):
    def call(x):
        dense = layers.Dense(4, kernel_regularizer="l2")
        return dense(dense(x))

    fused = check_same_as_alone(functional((4,), call), (4,))
    assert len(fused.losses) == 1


def test_several_inputs_and_outputs_in_lists(check_same_as_alone):
    def build():
        first, second = keras.Input((4,)), keras.Input((3,))
        joined = layers.Concatenate()([layers.Dense(2)(first), second])
        return keras.Model([first, second], [layers.Dense(2, name="left")(joined), ops.sum(joined, axis=1)])

    check_same_as_alone(build, (4,), (3,))


def test_several_inputs_and_outputs_in_dicts(check_same_as_alone):
    def build():
        inputs = {"b": keras.Input((4,), name="b"), "a": keras.Input((3,), name="a")}
        joined = layers.Concatenate()([inputs["a"], inputs["b"]])
        return keras.Model(inputs, {"y": layers.Dense(2)(joined), "x": layers.Dense(1)(inputs["b"])})

    generator = np.random.default_rng(0)
    check_same_as_alone(build, inputs={"a": generator.normal(size=(3, 4, 3)), "b": generator.normal(size=(3, 4, 4))})


def test_an_unused_axis_size_is_left_open(check_same_as_alone):
    build = sequential((None, 4), lambda: layers.Dense(3), lambda: layers.GlobalAveragePooling1D())
    check_same_as_alone(build, (5, 4), lowerings=[RULE, FOLDED])


@pytest.mark.parametrize("training", [True, False])
def test_a_training_mode_noted_in_the_graph(training, check_same_as_alone):
    def call(x):
        inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.4)])
        hidden = layers.Dropout(0.3)(layers.BatchNormalization()(x, training=training), training=training)
        return inner(hidden, training=training)

    check_same_as_alone(functional((4,), call), (4,))


@pytest.mark.parametrize("training", [True, False])
def test_a_training_mode_noted_in_the_graph_holds_when_none_is_given(training, float64, random_models):
    def call(x):
        inner = keras.Sequential([keras.Input((4,)), layers.BatchNormalization()])
        return inner(layers.Dropout(0.3)(layers.BatchNormalization()(x, training=training), training=training))

    models = random_models(functional((4,), call), 2)
    x = np.random.default_rng(0).normal(size=(2, 5, 4))
    outputs = fuse(models)(x)
    for member, model in enumerate(models):
        np.testing.assert_allclose(outputs[member], model(x[member]), rtol=1e-9)


def test_frozen_layers_stay_frozen(check_same_as_alone):
    def build():
        model = sequential(
            (4,), lambda: layers.Dense(4), lambda: layers.BatchNormalization(), lambda: layers.Dense(2)
        )()
        model.layers[0].trainable = False
        model.layers[1].trainable = False
        return model

    fused = check_same_as_alone(build, (4,))
    assert len(fused.trainable_variables) == 2


def test_mixed_precision_is_kept(random_models):
    build = sequential(
        (4,),
        lambda: layers.Dense(4, dtype="mixed_bfloat16"),
        lambda: layers.ReLU(dtype="mixed_bfloat16"),
        lambda: layers.Dense(2),
    )
    models = random_models(build, 2)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    outputs = fuse(models)(x)
    assert outputs.dtype == "float32"
    for member, model in enumerate(models):
        np.testing.assert_allclose(outputs[member], model(x[member]), rtol=2e-2, atol=2e-2)


def test_one_member_and_as_many_as_rows(check_same_as_alone):
    build = sequential((3, 4), lambda: layers.Dense(3), lambda: layers.BatchNormalization(), lambda: layers.PReLU())
    check_same_as_alone(build, (3, 4), n_valid=(3,), n_rows=4)
    check_same_as_alone(build, (3, 4), n_valid=(3, 1, 2), n_rows=3)


def test_unequal_row_counts_in_a_copied_layer_with_batch_statistics(check_same_as_alone):
    check_same_as_alone(sequential((4,), lambda: layers.BatchNormalization(renorm=True)), (4,), n_valid=(1, 4, 3))


def test_the_fused_model_is_a_keras_model(random_models):
    models = random_models(sequential((4,), lambda: layers.Dense(3), lambda: layers.ReLU()), 3)
    fused = fuse(models)
    assert isinstance(fused, keras.Model)
    assert fused.input_shape == (3, None, 4)
    assert fused.output_shape == (3, None, 3)
    assert fused.count_params() == 3 * models[0].count_params()
    x = np.ones((3, 5, 4), "float32")
    np.testing.assert_allclose(fused.predict_on_batch(x), fused(x), rtol=1e-6)


def test_logits_behind_probabilities_are_kept_for_the_losses(random_models):
    from kfoldfuse.fusion._keras_private import get_logits

    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    heads = {
        "rule": [lambda: layers.Dense(3, activation="softmax")],
        "folded layer": [lambda: layers.Dense(3), lambda: layers.Softmax()],
        "folded activation": [lambda: layers.Dense(1), lambda: layers.Activation("sigmoid")],
        "copied": [lambda: layers.SpectralNormalization(layers.Dense(3)), lambda: layers.Activation("softmax")],
        "einsum": [lambda: layers.EinsumDense("ab,bc->ac", 3, activation="softmax")],
    }
    for name, head in heads.items():
        models = random_models(sequential((4,), *head), 2)
        outputs = fuse(models)(x)
        alone = [get_logits(model(x[member])) for member, model in enumerate(models)]
        assert (get_logits(outputs) is None) == (alone[0] is None), name
        if alone[0] is not None:
            np.testing.assert_allclose(get_logits(outputs), np.stack(alone), rtol=1e-5, atol=1e-6, err_msg=name)
