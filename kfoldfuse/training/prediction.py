"""Predictions of all members, in batches of a few fixed sizes so that nothing is traced again for a new row count."""

import keras
import numpy as np

from kfoldfuse.training.engine import stacked_tensors
from kfoldfuse.training.program_cache import find_network, find_predictor

_SMALLEST, _LARGEST = 32, 4096  # rows per call; in between the next power of two


def predict(template, stacked, x, rows=None, batch_size=None):
    """Outputs of all members.

    Parameters
    ----------
    template : Template
    stacked : list of ndarray of shape (n_members, ...)
        In the order of ``template.model.variables``.
    x : structure of ndarray of shape (n_samples, ...)
        As the template's inputs.
    rows : list of ndarray of int, optional
        Rows of `x` for each member. None: all members see all of `x`.
    batch_size : int, optional
        Rows per call and member; by default up to 4096.

    Returns
    -------
    ndarray of shape (n_members, n_samples, ...), or list of ndarray of shape (n_rows_of_member, ...)
    """
    n_members = len(stacked[0]) if stacked else 1
    predictor = find_predictor(template, n_members)
    values = stacked_tensors(stacked, find_network(template, n_members))
    specs = keras.tree.flatten(template.graph.input)
    flat = [
        np.asarray(array).astype(keras.backend.standardize_dtype(spec.dtype), copy=False)
        for array, spec in zip(_flat(template, x), specs, strict=True)
    ]
    if rows is None:
        parts = []
        for start, stop, size in _cuts(len(flat[0]), batch_size):
            part = predictor.predict_shared(values, [_padded(array[start:stop], size) for array in flat])
            parts.append(np.asarray(part)[:, : stop - start])
        return np.concatenate(parts, axis=1)
    longest = max(len(each) for each in rows)
    own = np.stack([np.resize(each, longest) if len(each) else np.zeros(longest, int) for each in rows])
    parts = []
    for start, stop, size in _cuts(longest, batch_size):
        index = own[:, start:stop]
        batch = [np.stack([_padded(array[index[member]], size) for member in range(n_members)]) for array in flat]
        parts.append(np.asarray(predictor.predict_own(values, batch))[:, : stop - start])
    outputs = np.concatenate(parts, axis=1)
    return [outputs[member, : len(each)] for member, each in enumerate(rows)]


def _flat(template, x):
    structure = template.graph.input
    if isinstance(structure, dict) and isinstance(x, dict):
        return keras.tree.flatten({name: x[name] for name in structure})
    return keras.tree.flatten(x)


def _cuts(n_rows, batch_size):
    """(start, stop, padded size) of each call."""
    limit = batch_size or _LARGEST
    size = min(limit, max(_SMALLEST, 1 << max(n_rows - 1, 0).bit_length()))
    return [(start, min(start + size, n_rows), size) for start in range(0, max(n_rows, 1), size)]


def _padded(array, size):
    if len(array) == size:
        return array
    filler = array[-1:] if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)
    return np.concatenate([array, np.repeat(filler, size - len(array), axis=0)])
