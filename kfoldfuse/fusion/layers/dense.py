"""Dense: all members' products as one batched matrix product."""

import keras
from keras import ops

from kfoldfuse.fusion.registry import register_layer_rule


@register_layer_rule(keras.layers.Dense, variables=("kernel", "bias"))
def fused_dense(layer, weights, inputs, *, training):
    """(M, B, ..., F) @ (M, F, U). Axes between batch and features are folded away: matmul would align them with M."""
    kernel = weights(layer.kernel)
    n_members, n_features, n_units = kernel.shape
    shape = ops.shape(inputs)
    if len(shape) > 3:
        inputs = ops.reshape(inputs, (n_members, -1, n_features))
    outputs = ops.matmul(inputs, kernel)
    if layer.use_bias:
        outputs = outputs + ops.expand_dims(weights(layer.bias), 1)
    if len(shape) > 3:
        outputs = ops.reshape(outputs, (*shape[:-1], n_units))
    return outputs if layer.activation is None else layer.activation(outputs)
