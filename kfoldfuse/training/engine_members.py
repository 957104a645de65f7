"""A function of one member's tensors, run for all members along the member axis. TensorFlow only."""

import tensorflow as tf


def over_members(function, elements, *, vectorized):
    """Apply `function` to each member's slices and stack what it returns.

    Parameters
    ----------
    function : callable
        Takes and returns structures of tensors without the member axis.
    elements : structure of tensors of shape (n_members, ...)
    vectorized : bool
        Try one vectorised call first; where an operation has no vectorised form (it says so while tracing, so nothing
        is computed wrong) the members are called one after another in the same graph.

    Returns
    -------
    structure of tensors of shape (n_members, ...)
    """
    if vectorized:
        try:
            return tf.vectorized_map(function, elements, fallback_to_while_loop=False)
        except (ValueError, NotImplementedError, TypeError):
            pass
    unstacked = [tf.unstack(tensor) for tensor in tf.nest.flatten(elements)]
    each = [function(tf.nest.pack_sequence_as(elements, slices)) for slices in zip(*unstacked, strict=True)]
    return tf.nest.map_structure(lambda *results: tf.stack(results), *each)


def is_vectorizable(function, elements):
    """Whether `over_members` runs `function` as one vectorised call."""
    try:
        tf.function(lambda: tf.vectorized_map(function, elements, fallback_to_while_loop=False)).get_concrete_function()
    except (ValueError, NotImplementedError, TypeError):
        return False
    return True
