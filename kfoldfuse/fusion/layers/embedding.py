"""Embedding: one look-up per member, in the member's own table."""

import keras
from keras import ops

from kfoldfuse.fusion.layers._each_member import each_member
from kfoldfuse.fusion.registry import register_layer_rule


@register_layer_rule(keras.layers.Embedding, variables=("embeddings",))
def fused_embedding(layer, weights, inputs, *, training):
    """Look up (M, B, ...) indices in (M, V, D)."""
    if keras.backend.standardize_dtype(inputs.dtype) not in ("int32", "int64"):
        inputs = ops.cast(inputs, "int32")
    # One table of M * V rows and shifted indices would be a single look-up, but an index that is too large (an error
    # alone) would silently read the next member's rows.
    outputs = each_member(lambda table, index: ops.take(table, index, axis=0), weights(layer.embeddings), inputs)
    return ops.cast(outputs, layer.compute_dtype)
