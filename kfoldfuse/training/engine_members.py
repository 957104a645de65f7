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
    result = try_vectorized(function, elements) if vectorized else None
    if result is not None:
        return result
    unstacked = [tf.unstack(tensor) for tensor in tf.nest.flatten(elements)]
    each = [function(tf.nest.pack_sequence_as(elements, slices)) for slices in zip(*unstacked, strict=True)]
    return tf.nest.map_structure(lambda *results: tf.stack(results), *each)


def try_vectorized(function, elements):
    """What `over_members` returns, from one vectorised call; None where an operation has no vectorised form."""
    try:
        return tf.vectorized_map(function, elements, fallback_to_while_loop=False)
    except (ValueError, NotImplementedError, TypeError):
        return None
