"""Does an operation treat the rows of a batch one by one? Decided by trying it, not by its name.

Only such an operation may see the rows of several members in one batch. `ops.mean(x)`, `ops.flip(x, axis=0)` or a
`Concatenate(axis=0)` do not, whatever their class.
"""

import inspect

import keras
import numpy as np
from keras import tree

_N_ROWS, _CUT, _FREE_SIZE = 5, 2, 3
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5  # float32 sums over longer axes; looking across rows is off by far more


def is_row_wise(operation, args, kwargs):
    """Try `operation` on a batch and on its two parts, and compare.

    Parameters
    ----------
    operation : keras.Operation
        Without variables.
    args, kwargs : structures
        Arguments of its call in the template; a KerasTensor stands for a batch of rows.

    Returns
    -------
    bool
        True where every output row came out the same in both, in training and in inference.
    """
    modes = [{}]
    if isinstance(operation, keras.layers.Layer) and "training" in inspect.signature(operation.call).parameters:
        modes = [{"training": False}, {"training": True}]
    generator = np.random.default_rng(0)
    batch = tree.map_structure(lambda value: _random_rows(value, generator), (args, kwargs))
    try:
        return all(_same_by_parts(operation, *batch, mode) for mode in modes)
    except Exception:
        return False


class _Rows:
    def __init__(self, values):
        self.values = values


def _random_rows(value, generator):
    if not isinstance(value, keras.KerasTensor):
        return value
    shape = (_N_ROWS, *(_FREE_SIZE if size is None else size for size in value.shape[1:]))
    dtype = keras.backend.standardize_dtype(value.dtype)
    if keras.backend.is_float_dtype(dtype):
        return _Rows(generator.normal(size=shape).astype("float32"))
    if dtype == "bool":
        return _Rows(generator.random(size=shape) < 0.5)
    return _Rows(generator.integers(0, 2, size=shape))


def _same_by_parts(operation, args, kwargs, mode):
    def run(rows):
        cut = tree.map_structure(
            lambda value: keras.ops.convert_to_tensor(value.values[rows]) if isinstance(value, _Rows) else value,
            (args, kwargs),
        )
        outputs = operation(*cut[0], **{**cut[1], **mode})
        return [keras.ops.convert_to_numpy(output) for output in tree.flatten(outputs)]

    whole = run(slice(None))
    parts = [run(slice(None, _CUT)), run(slice(_CUT, None))]
    if any(output.shape[:1] != (_N_ROWS,) for output in whole):
        return False
    return all(
        np.allclose(full, np.concatenate(pieces), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
        for full, *pieces in zip(whole, *parts, strict=True)
    )
