"""One call of a model with everything that came of it: the only part of the harnesses that needs TensorFlow itself."""

import contextlib
import dataclasses

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from kfoldfuse.fusion import rows


@dataclasses.dataclass
class Outcome:
    """What one call of a model computed, left behind and sent back, as arrays.

    Attributes
    ----------
    outputs, penalties : list of ndarray
        Flat outputs, and the model's `losses`.
    input_gradients, weight_gradients : list of ndarray or None
        Of the sum of outputs times directions plus penalties; None for integers and for what is not trained.
    state : list of ndarray
        Values of all variables after the call.
    """

    outputs: list
    penalties: list
    input_gradients: list
    weight_gradients: list
    state: list


def run(model, variables, inputs, directions, *, training, active=None, n_valid=None, in_graph=False):
    """Call `model`, differentiate, note the state afterwards and put it back.

    Parameters
    ----------
    model : keras.Model
    variables : list of keras.Variable
    inputs : structure of ndarray
        As the model takes them.
    directions : list of ndarray
        One per flat output, of its shape; zero where a row does not count.
    training : bool
    active : ndarray of shape (n_members,), optional
        Members whose penalties count, where penalties have one entry per member.
    n_valid : ndarray of shape (n_members,), optional
        Rows that count.
    in_graph : bool
        Call it inside a tf.function that leaves the batch size open (axis 1).

    Returns
    -------
    Outcome
    """
    before = [keras.ops.convert_to_numpy(variable.value) for variable in variables]
    flat = [tf.convert_to_tensor(value) for value in tree.flatten(inputs)]
    floats = [position for position, value in enumerate(flat) if value.dtype.is_floating]
    trainable = [position for position, variable in enumerate(variables) if variable.trainable]

    def call(*flat):
        scope = contextlib.nullcontext() if n_valid is None else rows.valid_rows(tf.constant(n_valid, tf.int32))
        with tf.GradientTape() as tape, scope:
            sources = [flat[position] for position in floats]
            tape.watch(sources)
            outputs = tree.flatten(model(tree.pack_sequence_as(inputs, flat), training=training))
            penalties = list(model.losses)
            total = _weighted_sum(outputs, directions, penalties, active)
        sources += [variables[position].value for position in trainable]
        gradients = tape.gradient(total, sources, unconnected_gradients="zero")
        return outputs, penalties, [tf.convert_to_tensor(gradient) for gradient in gradients]

    if in_graph:
        specs = [tf.TensorSpec([value.shape[0], None, *value.shape[2:]], value.dtype) for value in flat]
        call = tf.function(call, input_signature=specs)
    outputs, penalties, gradients = tree.map_structure(lambda value: value.numpy(), call(*flat))
    state = [keras.ops.convert_to_numpy(variable.value) for variable in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return Outcome(
        outputs,
        penalties,
        _spread(gradients[: len(floats)], floats, len(flat)),
        _spread(gradients[len(floats) :], trainable, len(variables)),
        state,
    )


def _weighted_sum(outputs, directions, penalties, active):
    total = 0.0
    for output, direction in zip(outputs, directions, strict=True):
        if output.dtype.is_floating:
            total += tf.reduce_sum(tf.cast(output, "float64") * np.asarray(direction, "float64"))
    for penalty in penalties:
        counted = penalty if active is None else tf.where(active, penalty, tf.zeros_like(penalty))
        total += tf.reduce_sum(tf.cast(counted, "float64"))
    return total


def _spread(values, positions, size):
    spread = [None] * size
    for position, value in zip(positions, values, strict=True):
        spread[position] = value
    return spread
