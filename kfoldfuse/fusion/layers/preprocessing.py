"""keras.layers.Normalization: the statistics it was adapted to are state, each member's own."""

import keras
from keras import ops

from kfoldfuse.fusion.registry import register_layer_rule


@register_layer_rule(
    keras.layers.Normalization,
    variables=("adapt_mean", "adapt_variance", "count"),
    applies=lambda layer: layer.input_mean is None,  # given as numbers, it has no variables and folds
)
def fused_feature_normalization(layer, weights, inputs, *, training):
    """Shift and scale (M, B, ...) by statistics (M, ...) of the axes kept.

    The layer itself reads copies of its variables made by `finalize_state`, so copying would give every member the
    template's statistics.
    """
    inputs = ops.cast(inputs, layer.compute_dtype)
    rank = len(inputs.shape)
    shape = [inputs.shape[0]] + [1] * (rank - 1)
    for axis in layer.axis:
        axis = axis + 1 if axis >= 0 else axis + rank
        shape[axis] = inputs.shape[axis]
    mean = ops.reshape(weights(layer.adapt_mean), shape)
    deviation = ops.reshape(ops.sqrt(weights(layer.adapt_variance)), shape)
    deviation = ops.maximum(deviation, keras.config.epsilon())
    return mean + inputs * deviation if layer.invert else (inputs - mean) / deviation
