"""BatchNormalization: statistics per member, over the rows that count."""

import keras
from keras import ops

from kfoldfuse.fusion import rows
from kfoldfuse.fusion.registry import register_layer_rule


@register_layer_rule(
    keras.layers.BatchNormalization,
    variables=("gamma", "beta", "moving_mean", "moving_variance"),
    applies=lambda layer: not layer.synchronized,
)
def fused_batch_normalization(layer, weights, inputs, *, training):
    """Normalise (M, B, ..., C) by each member's batch statistics of its valid rows, or by its moving ones."""
    dtype = keras.backend.result_type(inputs.dtype, "float32")
    inputs = ops.cast(inputs, dtype)
    axis = layer.axis + 1 if layer.axis >= 0 else layer.axis + len(inputs.shape)
    broadcast = [1] * len(inputs.shape)
    broadcast[0], broadcast[axis] = inputs.shape[0], inputs.shape[axis]

    moving_mean = ops.cast(weights(layer.moving_mean), dtype)
    moving_variance = ops.cast(weights(layer.moving_variance), dtype)
    if training and layer.trainable:
        axes = [i for i in range(1, len(inputs.shape)) if i != axis]
        mean, variance = _valid_moments(inputs, axes)
        decay = layer.momentum
        weights.assign(layer.moving_mean, moving_mean * decay + mean * (1.0 - decay))
        weights.assign(layer.moving_variance, moving_variance * decay + variance * (1.0 - decay))
    else:
        mean, variance = moving_mean, moving_variance

    scale = ops.rsqrt(variance + layer.epsilon)
    if layer.scale:
        scale = scale * ops.cast(weights(layer.gamma), dtype)
    shift = -mean * scale
    if layer.center:
        shift = shift + ops.cast(weights(layer.beta), dtype)
    outputs = inputs * ops.reshape(scale, broadcast) + ops.reshape(shift, broadcast)
    return ops.cast(outputs, layer.compute_dtype)


def _valid_moments(inputs, axes):
    """Mean and variance (both (M, C)) over `axes` of (M, B, ..., C), rows that do not count left out."""
    shape = ops.shape(inputs)
    counts = rows.row_mask(shape[1])
    if counts is None:
        return ops.moments(inputs, axes=axes)
    counts = ops.reshape(counts, (shape[0], shape[1], *[1] * (len(shape) - 2)))
    n_values = ops.cast(ops.maximum(rows.current(), 1), inputs.dtype)  # no rows: 0 / 1, and nothing keeps the result
    for axis in axes[1:]:
        n_values = n_values * ops.cast(shape[axis], inputs.dtype)
    n_values = ops.reshape(n_values, (-1, *[1] * (len(shape) - 1)))
    # `where`, not a product: zero times NaN is NaN.
    mean = ops.sum(ops.where(counts, inputs, 0), axis=axes, keepdims=True) / n_values
    # The mean's own gradient adds nothing here: deviations sum to zero.
    deviations = ops.where(counts, inputs - ops.stop_gradient(mean), 0)
    variance = ops.sum(ops.square(deviations), axis=axes, keepdims=True) / n_values
    return ops.squeeze(mean, axis=axes), ops.squeeze(variance, axis=axes)
