"""Which jobs share a program: jobs of one signature form a group, a group is cut into chunks that fit the memory."""

import dataclasses
import os

import keras
import numpy as np

from kfoldfuse.training._keras_private import all_layers
from kfoldfuse.training.signature import settings_signature, template_signature

_MEMORY_SHARE = 0.25  # of the machine's memory, for one program; the data and the user's own arrays need the rest
_OPEN_SIZE = 64  # guess for an axis of open length, such as the words of a text
_FALLBACK_MEMORY = 8 * 2**30  # bytes, where the system does not tell


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Jobs trained by one program.

    Attributes
    ----------
    group : int
        Chunks of one group have equal signatures.
    positions : list of int
        Of the jobs, in the list that was planned.
    """

    group: int
    positions: list


def plan(jobs, max_fused="auto"):
    """Group and chunk jobs. How they are cut never changes what a member learns.

    Parameters
    ----------
    jobs : list of FitJob
    max_fused : int or "auto"
        Members per program; "auto" estimates how many fit into a quarter of the memory.

    Returns
    -------
    list of Chunk
    """
    groups = {}
    for position, job in enumerate(jobs):
        groups.setdefault(_group_key(job), []).append(position)
    chunks = []
    for group, positions in enumerate(groups.values()):
        size = _members_in_memory(jobs[positions[0]]) if max_fused == "auto" else max_fused
        # Chunks of nearly equal size: 11 members at most 10 at a time are 6 and 5, two programs of similar cost.
        n_chunks = -(-len(positions) // size)
        chunks += [Chunk(group, part.tolist()) for part in np.array_split(positions, n_chunks)]
    return chunks


def _group_key(job):
    target = np.asarray(job.y)
    return (
        template_signature(job.template),
        settings_signature(job.settings),
        target.shape[1:],
        target.dtype,
    )


def _members_in_memory(job):
    """How many members of this kind a program may hold: weights, gradients, slots, and what backpropagation keeps."""
    template = job.template
    n_rows = min(job.settings.batch_size, max(len(job.rows), 1))
    activations = sum(_n_outputs(layer) for layer in all_layers(template.graph))
    # Weights, their gradient, about two slots, and one copy while a step makes the next; activations and gradients.
    n_values = 5 * template.n_weights + 3 * n_rows * activations
    n_bytes = n_values * np.dtype(keras.config.floatx()).itemsize
    return max(1, int(_MEMORY_SHARE * _memory() / max(n_bytes, 1)))


def _n_outputs(layer):
    """Numbers that the layer puts out for one row."""
    try:
        outputs = keras.tree.flatten(layer.output)
    except AttributeError:  # part of a wrapper or of a subclassed model: Keras does not tell, take its weights' widths
        return sum(int(variable.shape[-1]) for variable in layer.trainable_variables if len(variable.shape))
    return sum(int(np.prod([_OPEN_SIZE if size is None else size for size in tensor.shape[1:]])) for tensor in outputs)


def _memory():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _FALLBACK_MEMORY
