"""EinsumDense: its own equation with one more letter, for the member axis, in front of every term."""

import re
import string

import keras
from keras import ops

from kfoldfuse.fusion.registry import register_layer_rule


def _keeps_rows_first(layer):
    """Whether the batch axis leads the input and the output, as the member axis in front of it needs."""
    inputs, _, outputs = re.split(",|->", layer.equation)
    return inputs[0] == outputs[0]


@register_layer_rule(keras.layers.EinsumDense, variables=("kernel", "bias"), applies=_keeps_rows_first)
def fused_einsum_dense(layer, weights, inputs, *, training):
    """Evaluate "ab,bc->ac" as "mab,mbc->mac"."""
    member = next(letter for letter in string.ascii_letters if letter not in layer.equation)
    equation = re.sub(r"(^|,|->)", rf"\g<1>{member}", layer.equation)
    outputs = ops.einsum(equation, inputs, weights(layer.kernel))
    if layer.bias is not None:
        bias = weights(layer.bias)  # (M, ...), its axes the last ones of the outputs
        gap = len(outputs.shape) - len(bias.shape)
        outputs = outputs + ops.reshape(bias, (bias.shape[0], *[1] * gap, *bias.shape[1:]))
    return outputs if layer.activation is None else layer.activation(outputs)
