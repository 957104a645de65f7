"""Layers that draw random numbers and have no weights: each member draws from its own seed, what it would alone."""

import keras

from kfoldfuse.fusion.registry import register_layer_rule


def _draws_per_row(layer):
    # A noise shape with a fixed number of rows ties the draw to the batch size: left to copying.
    noise_shape = getattr(layer, "noise_shape", None)
    return bool(layer.variables) and (noise_shape is None or noise_shape[0] in (None, 1))


def fused_draws(layer, weights, inputs, *, training):
    """Draw per member for the whole padded batch; without training the layer passes its input on."""
    return weights.call_each(inputs, training=True) if training else inputs


for _layer_type in (
    keras.layers.Dropout,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.AlphaDropout,
):
    register_layer_rule(_layer_type, fused_draws, variables=("seed_generator.state",), applies=_draws_per_row)
