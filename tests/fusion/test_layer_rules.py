"""Every layer rule of kfoldfuse, with the options it treats differently, through the public harness."""

import keras
import numpy as np
import pytest
from keras import layers

from kfoldfuse import fuse
from kfoldfuse.fusion.registry import ruled_types
from kfoldfuse.testing import check_layer_rule


def case(layer_type, shape, _harness=None, _marks=(), **options):
    words = [layer_type.__name__, "x".join(map(str, shape)), *(f"{name}={_word(one)}" for name, one in options.items())]
    return pytest.param(layer_type, shape, options, _harness or {}, id=" ".join(words), marks=_marks)


def _word(value):
    return getattr(value, "__name__", None) or (type(value).__name__ if hasattr(value, "get_config") else str(value))


@keras.saving.register_keras_serializable("kfoldfuse_tests")
def largest_weight(kernel):
    return keras.ops.max(keras.ops.abs(kernel))


@keras.saving.register_keras_serializable("kfoldfuse_tests")
def over_the_batch(x):
    return x - keras.ops.mean(x, axis=0, keepdims=True)


INTEGERS = {"input_dtype": "int32"}
DEPRECATED = pytest.mark.filterwarnings("ignore:You passed `rms_scaling=True`, which is deprecated:UserWarning")
PENALISED = {
    "kernel_regularizer": "l2",
    "bias_regularizer": keras.regularizers.L1L2(0.1, 0.2),
    "activity_regularizer": keras.regularizers.L2(0.3),
}

CASES = [
    case(layers.Dense, (4,), units=3),
    case(layers.Dense, (4,), units=3, use_bias=False, activation="relu"),
    case(layers.Dense, (4,), units=3, activation="softmax", **PENALISED),
    case(layers.Dense, (3, 4), units=3, activation="log_softmax"),
    case(layers.Dense, (2, 3, 4), units=3, activation="sigmoid"),
    case(layers.Dense, (4,), units=3, dtype="mixed_bfloat16"),
    case(layers.Dense, (4,), units=3, kernel_regularizer=largest_weight),
    case(layers.Dense, (4,), units=3, trainable=False, kernel_regularizer="l2"),
    case(layers.EinsumDense, (4,), equation="ab,bc->ac", output_shape=3, bias_axes="c"),
    case(layers.EinsumDense, (3, 4), equation="abc,cd->abd", output_shape=(3, 2), bias_axes="bd", activation="gelu"),
    case(layers.EinsumDense, (3, 4), equation="abc,cde->abde", output_shape=(3, 2, 5), bias_axes="d"),
    case(layers.EinsumDense, (3, 4), equation="abc,bcd->ad", output_shape=2),
    case(layers.EinsumDense, (3, 4), equation="...x,xy->...y", output_shape=2, bias_axes="y"),
    case(layers.EinsumDense, (3, 4), equation="ab...,bc->ac...", output_shape=2, bias_axes="c"),
    case(layers.EinsumDense, (4,), equation="mb,bn->mn", output_shape=2, bias_axes="n"),
    case(layers.Conv1D, (6, 2), filters=3, kernel_size=2, **PENALISED),
    case(layers.Conv1D, (6, 2), filters=3, kernel_size=2, padding="causal", dilation_rate=2, activation="tanh"),
    case(layers.Conv1D, (6, 2), filters=3, kernel_size=3, strides=2, padding="same", use_bias=False),
    case(layers.Conv2D, (5, 5, 2), filters=3, kernel_size=(2, 3), activation="softmax"),
    case(layers.Conv2D, (5, 5, 2), filters=2, kernel_size=3, padding="same", strides=2),
    case(layers.Conv2D, (5, 5, 2), filters=2, kernel_size=2, dilation_rate=2, dtype="mixed_bfloat16"),
    case(layers.Conv3D, (3, 3, 3, 2), filters=2, kernel_size=2),
    case(layers.DepthwiseConv1D, (5, 2), kernel_size=2, depth_multiplier=2, activation="relu"),
    case(layers.DepthwiseConv1D, (5, 2), kernel_size=2, strides=2, padding="same", use_bias=False),
    case(layers.DepthwiseConv2D, (4, 4, 2), kernel_size=(2, 3), depth_multiplier=2),
    case(layers.DepthwiseConv2D, (4, 4, 2), kernel_size=2, strides=2, padding="same", depthwise_regularizer="l1"),
    case(layers.DepthwiseConv2D, (4, 4, 2), kernel_size=2, dilation_rate=2),
    # No last axis as long as there are filters: Keras adds the bias to that axis then (`keras.ops.add` on TensorFlow).
    case(layers.DepthwiseConv1D, (2, 6), kernel_size=2, data_format="channels_first", depth_multiplier=2),
    case(layers.DepthwiseConv2D, (2, 4, 4), kernel_size=2, data_format="channels_first"),
    case(layers.Conv2D, (4, 4, 2), _marks=[pytest.mark.slow], filters=4, kernel_size=2, groups=2),  # XLA compiles
    case(layers.Embedding, (), INTEGERS, input_dim=4, output_dim=3),
    case(layers.Embedding, (5,), INTEGERS, input_dim=4, output_dim=3, embeddings_regularizer="l2"),
    case(layers.Embedding, (2, 3), INTEGERS | {"input_dtype": "uint8"}, input_dim=4, output_dim=3),
    case(layers.Embedding, (3,), INTEGERS, input_dim=4, output_dim=2, dtype="mixed_bfloat16"),
    case(layers.BatchNormalization, (4,)),
    case(layers.BatchNormalization, (4,), center=False, momentum=0.5, gamma_regularizer="l2"),
    case(layers.BatchNormalization, (4,), scale=False, epsilon=0.1),
    case(layers.BatchNormalization, (4,), center=False, scale=False),
    case(layers.BatchNormalization, (4,), trainable=False),
    case(layers.BatchNormalization, (3, 4)),
    case(layers.BatchNormalization, (3, 4), axis=1),
    case(layers.BatchNormalization, (2, 3, 4), axis=-2),
    case(layers.BatchNormalization, (4,), dtype="mixed_float16"),
    case(layers.LayerNormalization, (4,)),
    case(layers.LayerNormalization, (3, 4), gamma_regularizer="l1"),
    case(layers.LayerNormalization, (3, 4), axis=1),
    case(layers.LayerNormalization, (3, 4), axis=[1, 2], center=False),
    case(layers.LayerNormalization, (3, 4), axis=[-1, -2]),
    case(layers.LayerNormalization, (3, 4), axis=-2, scale=False),
    case(layers.LayerNormalization, (4,), _marks=[DEPRECATED], rms_scaling=True),
    case(layers.LayerNormalization, (4,), dtype="mixed_float16"),
    case(layers.GroupNormalization, (3, 4), groups=2),
    case(layers.GroupNormalization, (4, 3), groups=2, axis=1, scale=False),
    case(layers.GroupNormalization, (2, 4, 3), groups=-1, axis=-2, center=False),
    case(layers.GroupNormalization, (4,), groups=1, dtype="mixed_float16"),
    case(layers.RMSNormalization, (4,)),
    case(layers.RMSNormalization, (3, 4), axis=[1, 2]),
    case(layers.RMSNormalization, (4,), dtype="mixed_float16"),
    case(layers.Normalization, (4,)),
    case(layers.Normalization, (3, 4), axis=1),
    case(layers.Normalization, (3, 4), axis=None),
    case(layers.Normalization, (3, 4), axis=(1, 2), invert=True),
    case(layers.PReLU, (4,)),
    case(layers.PReLU, (3, 4), shared_axes=[1], alpha_regularizer="l2"),
    case(layers.PReLU, (3, 4), shared_axes=[1, 2]),
    case(layers.Dropout, (4,), rate=0.5),
    case(layers.Dropout, (3, 4), rate=0.5, noise_shape=(None, 1, 4)),
    case(layers.Dropout, (4,), rate=0.5, noise_shape=(1, 4)),
    case(layers.Dropout, (4,), rate=0.5, seed=7),
    case(layers.SpatialDropout1D, (3, 4), rate=0.5),
    case(layers.SpatialDropout2D, (3, 3, 4), rate=0.5),
    case(layers.SpatialDropout3D, (2, 2, 2, 4), rate=0.5),
    case(layers.GaussianDropout, (4,), rate=0.5),
    case(layers.GaussianNoise, (4,), stddev=0.5),
    case(layers.AlphaDropout, (4,), rate=0.5),
]


@pytest.mark.parametrize(("layer_type", "shape", "options", "harness"), CASES)
def test_a_rule_equals_separate_layers(layer_type, shape, options, harness):
    check_layer_rule(lambda: layer_type(**options), shape, **harness)


CHANNELS_FIRST = [
    case(layers.Conv1D, (2, 6), filters=3, kernel_size=2, padding="causal", dilation_rate=2, activation="tanh"),
    case(layers.Conv2D, (2, 4, 7), filters=3, kernel_size=2, strides=2, padding="same"),
    case(layers.Conv3D, (2, 3, 3, 3), filters=2, kernel_size=2, use_bias=False),
]


@pytest.mark.parametrize(("layer_type", "shape", "options", "harness"), CHANNELS_FIRST)
def test_a_convolution_with_channels_first(layer_type, shape, options, harness, monkeypatch):
    # TensorFlow has none on CPUs: here, channels go last for the convolution itself, for layer and rule alike.
    convolve = keras.ops.conv

    def channels_last(inputs, kernel, *, data_format, **settings):
        assert data_format == "channels_first"
        outputs = convolve(keras.ops.moveaxis(inputs, 1, -1), kernel, data_format="channels_last", **settings)
        return keras.ops.moveaxis(outputs, -1, 1)

    monkeypatch.setattr(keras.ops, "conv", channels_last)
    monkeypatch.setattr(keras.src.ops, "conv", channels_last)
    check_layer_rule(lambda: layer_type(data_format="channels_first", **options), shape, **harness)


def test_every_rule_of_the_package_has_a_case():
    own = {layer_type for layer_type in ruled_types() if layer_type.__module__.startswith("keras.")}
    assert own == {parameters.values[0] for parameters in CASES}


# What a rule must leave alone: the layer has more to it than the rule knows.
LEFT_TO_COPYING = {
    "LoRA": lambda: layers.Dense(3, lora_rank=2),
    "cross-row activation": lambda: layers.Dense(3, activation=over_the_batch),
    "batch renormalisation": lambda: layers.BatchNormalization(renorm=True),
}


@pytest.mark.parametrize("factory", LEFT_TO_COPYING.values(), ids=LEFT_TO_COPYING.keys())
def test_a_layer_with_more_than_its_rule_knows_is_copied(factory):
    check_layer_rule(factory, (4,), lowering="copied")


def test_an_embedding_index_out_of_range_reads_no_other_member(random_models):
    models = random_models(lambda: keras.Sequential([keras.Input((2,), dtype="int32"), layers.Embedding(3, 2)]), 2)
    with pytest.raises(Exception, match="not in"):
        fuse(models)(np.array([[[3, 0]], [[0, 0]]]))
    negative = fuse(models)(np.array([[[-1, 0]], [[0, 0]]]))
    np.testing.assert_array_equal(negative[0], models[0](np.array([[-1, 0]])))
