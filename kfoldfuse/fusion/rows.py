"""Which rows of a fused batch count, and moving between (members, batch, ...) and (members * batch, ...).

Members of one program have different numbers of rows left in a step, so a batch is padded to a fixed size. The engine
opens `valid_rows(n)` around a call of the fused model; whatever looks across rows (batch statistics, copied layers,
activity regularisers) asks `current()`. None means: every row counts.
"""

import contextlib
import threading

from keras import ops

_local = threading.local()


@contextlib.contextmanager
def valid_rows(n_valid):
    """Declare how many leading rows of each member's batch count.

    Parameters
    ----------
    n_valid : tensor of shape (n_members,), int32
        Rows that count; the rest is padding. Zero for a member that takes no part in this step.
    """
    outer = current()
    _local.n_valid = n_valid
    try:
        yield
    finally:
        _local.n_valid = outer


def current():
    """Rows that count per member, a tensor of shape (n_members,), or None where all do."""
    return getattr(_local, "n_valid", None)


def row_mask(n_rows, n_valid=None):
    """Boolean mask of shape (n_members, n_rows), or None where every row counts."""
    n_valid = current() if n_valid is None else n_valid
    if n_valid is None:
        return None
    return ops.expand_dims(ops.arange(n_rows, dtype="int32"), 0) < ops.expand_dims(n_valid, 1)


def keep_active(new, old):
    """`new` for members that have rows in this step, `old` for the others, along the member axis."""
    n_valid = current()
    if n_valid is None:
        return new
    active = ops.reshape(n_valid > 0, (-1,) + (1,) * (len(old.shape) - 1))
    return ops.where(active, new, old)


def merge_members(tensor):
    """(members, batch, ...) -> (members * batch, ...)."""
    return ops.reshape(tensor, (-1,) + _sizes(tensor, 2))


def split_members(tensor, n_members):
    """(members * batch, ...) -> (members, batch, ...)."""
    return ops.reshape(tensor, (n_members, -1) + _sizes(tensor, 1))


def take_valid(tensor, member, n_valid):
    """Rows of one member that count: (members, batch, ...) -> (valid, ...)."""
    return leading(tensor[member], member, n_valid)


def leading(rows, member, n_valid):
    """Rows that count of one member's own tensor: (batch, ...) -> (valid, ...)."""
    if n_valid is None:
        return rows
    # A member without rows still gets one (its own, already padded): an empty batch has no mean, and what comes of
    # the call is thrown away by `keep_active` and by the engine.
    return rows[: ops.maximum(n_valid[member], 1)]


def pad_rows(tensor, n_rows):
    """(valid, ...) -> (n_rows, ...), repeating the last row: padding made of zeros can turn into NaN further on."""
    last = ops.shape(tensor)[0] - 1
    return ops.take(tensor, ops.minimum(ops.arange(n_rows, dtype="int32"), last), axis=0)


def _sizes(tensor, start):
    shape = tuple(tensor.shape[start:])
    if None not in shape:
        return shape
    dynamic = ops.shape(tensor)
    return tuple(dynamic[start + i] if size is None else size for i, size in enumerate(shape))
