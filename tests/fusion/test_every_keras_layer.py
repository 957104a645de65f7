"""Every layer that Keras exports: fused like alone, or left out for a reason. A new layer without an entry fails."""

import inspect

import keras
import numpy as np
import pytest
from keras import layers

from kfoldfuse.fusion._keras_private import default_dtype

PROFILE, STEPS, IMAGE, VOLUME, CLIP = (4,), (6, 4), (8, 8, 3), (4, 4, 4, 2), (3, 4, 4, 2)

# name -> how to make it, the shape of one row; a list of shapes for a layer that takes a list.
LAYERS = {
    "Activation": (lambda: layers.Activation("relu"), PROFILE),
    "ActivityRegularization": (lambda: layers.ActivityRegularization(l1=0.1, l2=0.2), PROFILE),
    "AdditiveAttention": (lambda: layers.AdditiveAttention(), [STEPS, STEPS]),
    "Attention": (lambda: layers.Attention(use_scale=True, dropout=0.2), [STEPS, STEPS]),
    "BatchNormalization": (lambda: layers.BatchNormalization(), STEPS),
    "Bidirectional": (lambda: layers.Bidirectional(layers.LSTM(2)), STEPS),
    "CategoryEncoding": (lambda: layers.CategoryEncoding(3), (4,), "int32"),
    "CenterCrop": (lambda: layers.CenterCrop(4, 4), IMAGE),
    "ConvLSTM1D": (lambda: layers.ConvLSTM1D(2, 2), (3, 4, 2)),
    "ConvLSTM2D": (lambda: layers.ConvLSTM2D(2, 2), CLIP),
    "Discretization": (lambda: layers.Discretization([0.0, 0.5]), PROFILE),
    "Dot": (lambda: layers.Dot(axes=2), [STEPS, STEPS]),
    "Dense": (lambda: layers.Dense(3), PROFILE),
    "EinsumDense": (lambda: layers.EinsumDense("ab,bc->ac", 3), PROFILE),
    "Embedding": (lambda: layers.Embedding(3, 2), (4,), "int32"),
    "Flatten": (lambda: layers.Flatten(), STEPS),
    "GroupNormalization": (lambda: layers.GroupNormalization(2), STEPS),
    "HashedCrossing": (lambda: layers.HashedCrossing(5), [(1,), (1,)], "int32"),
    "Hashing": (lambda: layers.Hashing(5), (4,), "int32"),
    "Identity": (lambda: layers.Identity(), PROFILE),
    "IntegerLookup": (lambda: layers.IntegerLookup(vocabulary=[0, 2]), (4,), "int64"),
    "Lambda": (lambda: layers.Lambda(lambda x: x * 2), PROFILE),
    "LayerNormalization": (lambda: layers.LayerNormalization(), PROFILE),
    "Masking": (lambda: layers.Masking(), STEPS),
    "MultiHeadAttention": (lambda: _SelfAttention(layers.MultiHeadAttention(2, 2)), STEPS),
    "GroupedQueryAttention": (lambda: _SelfAttention(layers.GroupQueryAttention(2, 2, 1)), STEPS),
    "Normalization": (lambda: layers.Normalization(), PROFILE),
    "PReLU": (lambda: layers.PReLU(), PROFILE),
    "Permute": (lambda: layers.Permute((2, 1)), STEPS),
    "Pipeline": (lambda: layers.Pipeline([layers.Rescaling(2.0)]), PROFILE),
    "RMSNormalization": (lambda: layers.RMSNormalization(), PROFILE),
    "RNN": (lambda: layers.RNN([layers.GRUCell(2), layers.LSTMCell(3)]), STEPS),
    "RepeatVector": (lambda: layers.RepeatVector(2), PROFILE),
    "Rescaling": (lambda: layers.Rescaling(0.5), PROFILE),
    "Reshape": (lambda: layers.Reshape((4, 6)), STEPS),
    "Resizing": (lambda: layers.Resizing(4, 4), IMAGE),
    "ReversibleEmbedding": (lambda: layers.ReversibleEmbedding(3, 2), (4,), "int32"),
    "Softmax": (lambda: layers.Softmax(), PROFILE),
    "SpectralNormalization": (lambda: layers.SpectralNormalization(layers.Dense(3)), PROFILE),
    "STFTSpectrogram": (lambda: layers.STFTSpectrogram(frame_length=8, frame_step=4, fft_length=8), (32, 1)),
    "TimeDistributed": (lambda: layers.TimeDistributed(layers.Dense(3)), STEPS),
    "UnitNormalization": (lambda: layers.UnitNormalization(), PROFILE),
    "GaussianDropout": (lambda: layers.GaussianDropout(0.3), PROFILE),
    "GaussianNoise": (lambda: layers.GaussianNoise(0.3), PROFILE),
    "AlphaDropout": (lambda: layers.AlphaDropout(0.3), PROFILE),
    "Dropout": (lambda: layers.Dropout(0.3), PROFILE),
    "UpSampling1D": (lambda: layers.UpSampling1D(2), STEPS),
    "UpSampling2D": (lambda: layers.UpSampling2D(2), IMAGE),
    "UpSampling3D": (lambda: layers.UpSampling3D(2), VOLUME),
}
BY_RANK = {"1D": STEPS, "2D": IMAGE, "3D": VOLUME}
for _rank, _shape in BY_RANK.items():
    LAYERS |= {
        f"{_name}{_rank}": (lambda name=f"{_name}{_rank}", options=_options: getattr(layers, name)(**options), _shape)
        for _name, _options in {
            "AdaptiveAveragePooling": {"output_size": 2},
            "AdaptiveMaxPooling": {"output_size": 2},
            "AveragePooling": {"pool_size": 2},
            "Conv": {"filters": 2, "kernel_size": 2},
            "Cropping": {"cropping": 1},
            "GlobalAveragePooling": {},
            "GlobalMaxPooling": {},
            "MaxPooling": {"pool_size": 2},
            "SpatialDropout": {"rate": 0.3},
            "ZeroPadding": {"padding": 1},
        }.items()
    }
    LAYERS[f"Conv{_rank}Transpose"] = (
        lambda name=f"Conv{_rank}Transpose": getattr(layers, name)(2, 2),
        _shape,
    )
for _name in ("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"):
    _options = {"kernel_size": 2} | ({"filters": 3} if "Separable" in _name else {})
    LAYERS[_name] = (lambda name=_name, options=_options: getattr(layers, name)(**options), BY_RANK[_name[-2:]])
for _name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"):
    LAYERS[_name] = (lambda name=_name: getattr(layers, name)(), [PROFILE, PROFILE])
for _name in ("ELU", "LeakyReLU", "ReLU"):
    LAYERS[_name] = (lambda name=_name: getattr(layers, name)(), PROFILE)
for _name in ("LSTM", "GRU", "SimpleRNN"):
    LAYERS[_name] = (lambda name=_name: getattr(layers, name)(2, dropout=0.2), STEPS)

# TensorFlow has no kernels for them in float64 on CPUs.
NOT_IN_FLOAT64 = {name for name in LAYERS if name.endswith("Pooling3D") and not name.startswith("Global")}

LEFT_OUT = {
    "ConvLSTM3D": "as ConvLSTM2D, but takes a minute",
    "FlaxLayer": "needs another backend",
    "JaxLayer": "needs another backend",
    "TorchModuleWrapper": "needs another backend",
    "TFSMLayer": "holds a SavedModel from a file",
    "InputLayer": "no operation",
    "Layer": "the base class",
    "Wrapper": "the base class",
    "GRUCell": "inside RNN",
    "LSTMCell": "inside RNN",
    "SimpleRNNCell": "inside RNN",
    "StackedRNNCells": "inside RNN",
    "StringLookup": "strings: no data of a network",
    "TextVectorization": "strings: no data of a network",
    "MelSpectrogram": "as STFTSpectrogram",
    "MaxNumBoundingBoxes": "takes bounding boxes",
    "AugMix": "draws from Python's random numbers in its call: it does not equal itself",
    "Equalization": "Keras 3.15 cannot put it into a model",
    "RandomShear": "Keras 3.15 cannot rebuild it from its config",
}
AUGMENTATION = {
    "AutoContrast": {},
    "ContrastLimitedAdaptiveHistogramEqualization": {},
    "CutMix": {},
    "MixUp": {},
    "RandAugment": {},
    "RandomBrightness": {"factor": 0.2},
    "RandomColorDegeneration": {"factor": 0.5},
    "RandomColorJitter": {"brightness_factor": 0.2, "contrast_factor": 0.2, "hue_factor": 0.1},
    "RandomContrast": {"factor": 0.2},
    "RandomCrop": {"height": 4, "width": 4},
    "RandomElasticTransform": {},
    "RandomErasing": {},
    "RandomFlip": {},
    "RandomGaussianBlur": {},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.2},
    "RandomInvert": {},
    "RandomPerspective": {},
    "RandomPosterization": {"factor": 4},
    "RandomRotation": {"factor": 0.2},
    "RandomSaturation": {"factor": 0.2},
    "RandomSharpness": {"factor": 0.2},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.2},
    "Solarization": {"addition_factor": 0.2, "threshold_factor": 0.2},
}


class _SelfAttention(layers.Layer):
    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention

    def build(self, shape):
        if not self.attention.built:
            self.attention.build(shape, shape)

    def call(self, x):
        return self.attention(x, x)

    def get_config(self):
        return super().get_config() | {"attention": keras.saving.serialize_keras_object(self.attention)}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"attention": keras.saving.deserialize_keras_object(config["attention"])})


def exported_layers():
    """Each layer class once: Keras exports some under several names."""
    return {
        value.__name__ for value in vars(layers).values() if inspect.isclass(value) and issubclass(value, layers.Layer)
    }


def test_every_layer_has_an_entry_or_a_reason():
    assert exported_layers() == set(LAYERS) | set(LEFT_OUT) | set(AUGMENTATION)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_fused_equals_the_layer_alone(name, check_same_as_alone):
    make, shape, *dtype = LAYERS[name]
    shapes = shape if isinstance(shape, list) else [shape]

    def one_or_list(values):
        return values if isinstance(shape, list) else values[0]

    def build():
        inputs = one_or_list([keras.Input(one, dtype=dtype[0] if dtype else None) for one in shapes])
        return keras.Model(inputs, make()(inputs))

    inputs = None
    if dtype:
        generator = np.random.default_rng(0)
        inputs = one_or_list([generator.integers(0, 3, size=(3, 4, *one)).astype(dtype[0]) for one in shapes])
    if name in NOT_IN_FLOAT64:
        with default_dtype("float32"):
            check_same_as_alone(build, *shapes, inputs=inputs, tolerance=1e-6)
    else:
        check_same_as_alone(build, *shapes, inputs=inputs)


@pytest.mark.parametrize("name", AUGMENTATION)
def test_augmentation_draws_for_each_member_what_it_draws_alone(name, check_same_as_alone):
    def build():
        return keras.Sequential([keras.Input(IMAGE), getattr(layers, name)(**AUGMENTATION[name])])

    images = np.random.default_rng(0).uniform(0, 255, size=(3, 4, *IMAGE)).astype("float32")
    with default_dtype("float32"):
        check_same_as_alone(build, inputs=images, tolerance=1e-5)
