"""Normalisation layers that look at one row at a time; what they learn is each member's own."""

import keras
from keras import ops

from kfoldfuse.fusion.registry import register_layer_rule


def _moments_in_float32_or_better(inputs):
    return ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))


def _shifted(axes, rank):
    """Axes of one member's tensor as axes of the fused one, of `rank` with the member axis in front."""
    return [axis + 1 if axis >= 0 else axis + rank for axis in axes]


def _beside(inputs, axes, weight):
    """A weight (M, ...) reshaped to broadcast against `inputs`, its axes being `axes` of it."""
    shape = [inputs.shape[0]] + [1] * (len(inputs.shape) - 1)
    for axis in axes:
        shape[axis] = inputs.shape[axis]
    return ops.reshape(ops.cast(weight, inputs.dtype), shape)


# Without weights these layers fold; then their axis may even be the batch, which only the trial run notices.
def _has_weights(layer):
    return bool(layer.variables)


@register_layer_rule(keras.layers.LayerNormalization, variables=("gamma", "beta"), applies=_has_weights)
def fused_layer_normalization(layer, weights, inputs, *, training):
    """Normalise (M, B, ...) over the layer's axes of each row."""
    values = _moments_in_float32_or_better(inputs)
    axes = _shifted([layer.axis] if isinstance(layer.axis, int) else layer.axis, len(inputs.shape))
    mean, variance = ops.moments(values, axes=axes, keepdims=True)
    scale = ops.rsqrt(variance + layer.epsilon)
    if layer.gamma is not None:
        scale = scale * _beside(values, axes, weights(layer.gamma))
    # Keras' `rms_scaling` divides by the standard deviation but does not subtract the mean.
    outputs = values * scale if layer.rms_scaling else values * scale - mean * scale
    if layer.beta is not None:
        outputs = outputs + _beside(values, axes, weights(layer.beta))
    return ops.cast(ops.cast(outputs, inputs.dtype), layer.compute_dtype)


@register_layer_rule(keras.layers.GroupNormalization, variables=("gamma", "beta"), applies=_has_weights)
def fused_group_normalization(layer, weights, inputs, *, training):
    """Normalise (M, B, ..., C) over all axes of each row, one group of channels at a time."""
    values = _moments_in_float32_or_better(inputs)
    (axis,) = _shifted([layer.axis], len(inputs.shape))
    shape = [dynamic if size is None else size for size, dynamic in zip(inputs.shape, ops.shape(inputs), strict=True)]
    grouped = ops.reshape(values, (*shape[:axis], layer.groups, shape[axis] // layer.groups, *shape[axis + 1 :]))
    others = [i for i in range(2, len(grouped.shape)) if i != axis]
    mean, variance = ops.moments(grouped, axes=others, keepdims=True)
    outputs = ops.reshape((grouped - mean) * ops.rsqrt(variance + layer.epsilon), shape)
    if layer.scale:
        outputs = outputs * _beside(values, [axis], weights(layer.gamma))
    if layer.center:
        outputs = outputs + _beside(values, [axis], weights(layer.beta))
    return ops.cast(ops.cast(outputs, inputs.dtype), layer.compute_dtype)


@register_layer_rule(keras.layers.RMSNormalization, variables=("scale",), applies=_has_weights)
def fused_rms_normalization(layer, weights, inputs, *, training):
    """Divide (M, B, ...) by the root mean square over the layer's axes of each row."""
    values = _moments_in_float32_or_better(inputs)
    axes = _shifted([layer.axis] if isinstance(layer.axis, int) else layer.axis, len(inputs.shape))
    scale = ops.rsqrt(ops.mean(ops.square(values), axis=axes, keepdims=True) + layer.epsilon)
    learned = ops.cast(weights(layer.scale), values.dtype)  # (M, ...), its axes the last ones of a row
    gap = len(values.shape) - len(learned.shape)
    outputs = values * scale * ops.reshape(learned, (learned.shape[0], *[1] * gap, *learned.shape[1:]))
    return ops.cast(ops.cast(outputs, inputs.dtype), layer.compute_dtype)
