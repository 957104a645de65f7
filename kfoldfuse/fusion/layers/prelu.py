"""PReLU: the slopes are weights, hence each member's own."""

import keras
from keras import ops

from kfoldfuse.fusion.registry import register_layer_rule


@register_layer_rule(keras.layers.PReLU, variables=("alpha",))
def fused_prelu(layer, weights, inputs, *, training):
    """Slopes of shape (M, ...) against (M, B, ...); shared axes have size 1."""
    alpha = ops.expand_dims(weights(layer.alpha), 1)
    return ops.relu(inputs) - alpha * ops.relu(-inputs)
