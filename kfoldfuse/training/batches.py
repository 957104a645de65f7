"""Which rows a member sees in which step. A batch is padded to a fixed size with rows of the member's own."""

import dataclasses

import numpy as np

_SHUFFLE = 1  # purpose of a draw, so that orders never share random numbers with initial weights


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Batches of all members of a program for one pass over their rows.

    Attributes
    ----------
    indices : ndarray of shape (n_steps, n_members, batch_size), int32
        Rows to gather. Behind the valid ones stand repeats of a row of the same batch: padding with foreign rows could
        bring in a NaN, and zero times NaN is NaN.
    n_valid : ndarray of shape (n_steps, n_members), int32
        Leading rows that count; zero for a member that has no such step.
    """

    indices: np.ndarray
    n_valid: np.ndarray


def row_order(rows, seed, epoch, shuffle=True):
    """The order in which a member sees its rows in an epoch; depends on its seed and the epoch only."""
    if not shuffle:
        return rows
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SHUFFLE, epoch)))
    return rows[generator.permutation(len(rows))]


def make_schedule(orders, batch_size, padded_size):
    """Cut each member's rows into batches.

    Parameters
    ----------
    orders : list of ndarray of int
        Rows of each member in the order to be seen; may differ in length; an empty one takes no step.
    batch_size : int
        Rows per step and member; the last step takes what is left.
    padded_size : int
        Size of a batch in the program, at least ``min(batch_size, longest order)``.

    Returns
    -------
    Schedule
    """
    n_rows = np.array([len(order) for order in orders])
    n_steps = int(-(-n_rows.max(initial=0) // batch_size))
    n_valid = np.clip(n_rows[None, :] - np.arange(n_steps)[:, None] * batch_size, 0, batch_size).astype(np.int32)
    indices = np.zeros((n_steps, len(orders), padded_size), dtype=np.int32)
    width = min(batch_size, padded_size)
    for member, order in enumerate(orders):
        if not len(order):
            continue
        steps = -(-len(order) // batch_size)
        padded = np.full((n_steps, batch_size), order[-1], dtype=np.int32)
        padded.reshape(-1)[: len(order)] = order
        indices[:, member, :width] = padded[:, :width]
        indices[:, member, width:] = indices[:, member, width - 1 : width]
        indices[steps:, member] = order[-1]
    return Schedule(indices, n_valid)


def padded_batch_size(batch_size, n_rows):
    """Batch size of a program: `batch_size`, or for fewer rows the next power of two, so that programs are reused."""
    if n_rows >= batch_size:
        return batch_size
    return min(batch_size, 1 << max(int(n_rows) - 1, 0).bit_length())
