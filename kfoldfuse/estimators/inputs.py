"""X as the network sees it: one array, or several by name or in order; checked, never by index label, cast once."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import tree
from sklearn.utils.validation import check_array, check_consistent_length, validate_data


def has_several(x):
    """Whether X holds several inputs: a dict, or a list or tuple of arrays with at least two axes each.

    A list of lists or of 1-D arrays is one array, as in scikit-learn.
    """
    if isinstance(x, Mapping):
        return True
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(len(getattr(array, "shape", ())) >= 2 for array in x)


def read_inputs(estimator, x, *, reset, raw=False):
    """Check X and note or compare its number and names of features.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and, for a DataFrame, ``feature_names_in_`` if `reset`.
    x : array-like of shape (n_samples, ...), or dict or list of them
    reset : bool
        True in `fit`; False compares with what `fit` saw.
    raw : bool, default=False
        Leave the values to a preprocessor: they may be strings or missing.

    Returns
    -------
    ndarray, DataFrame (`raw`), or dict or list of ndarray
        Not copied where nothing had to be converted.

    Raises
    ------
    ValueError, TypeError
        For anything that no network can read, in scikit-learn's words where it has them.
    """
    refuse_sparse(x, "X")  # first of all: a dok_array is a dict
    several = has_several(x)
    for array in _flat(x) if several else []:
        refuse_sparse(array, "X")
    if not several:
        if raw:
            validate_data(estimator, x, reset=reset, skip_check_array=True)
            return x if hasattr(x, "iloc") else np.asarray(x)
        return validate_data(estimator, x, reset=reset, allow_nd=True, dtype="numeric")
    if raw:
        raise ValueError(
            "`preprocessor` must be None where X holds several inputs. Got a dict or list of arrays. "
            "Put the preprocessing into the model, as Keras layers."
        )
    checked = {
        name: check_array(
            array, allow_nd=True, ensure_2d=False, dtype="numeric", input_name=f"X[{name!r}]", estimator=estimator
        )
        for name, array in _named(x).items()
    }
    check_consistent_length(*checked.values())
    n_features = sum(array.shape[1] if array.ndim > 1 else 1 for array in checked.values())
    if reset:
        estimator.n_features_in_ = n_features
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input."
        )
    return checked if isinstance(x, Mapping) else list(checked.values())


def refuse_rows_as_inputs(x, y):
    """Raise where a list holds an array per row, such as images, which would be read as that many inputs."""
    if isinstance(x, Mapping) or not has_several(x) or not hasattr(y, "__len__"):
        return
    if len(x) == len(y) and any(array.shape[0] != len(y) for array in x):
        raise ValueError(
            f"`X` must be one array with a row per sample, or a list with one such array per input of the model. Got a "
            f"list of {len(x)} arrays, as many as y has rows, the first of shape {tuple(x[0].shape)}. Use np.stack(X)."
        )


def refuse_sparse(array, name):
    """Raise for a sparse matrix or array."""
    if hasattr(array, "tocsr") or hasattr(array, "tocoo"):
        raise TypeError(
            f"`{name}` must be dense. Got a sparse {type(array).__name__} of shape {array.shape}. "
            f"Use {name}.toarray() if it fits the memory."
        )


def count_rows(x):
    """Rows of one array or of several inputs."""
    first = _flat(x)[0] if has_several(x) else x
    return int(first.shape[0])


def take_rows(x, rows):
    """Rows of an array or DataFrame by position."""
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def shapes_of(x):
    """Shape of X; for several inputs a dict or list of shapes."""
    return _map(lambda array: tuple(array.shape), x)


def dtypes_of(x):
    """Name of the dtype of X; for several inputs a dict or list of names."""
    return _map(lambda array: array.dtype.name, x)


def input_specs(x):
    """Specs of a batch, for models that do not know their input yet: integers stay integers, all else is floatx."""

    def spec(array):
        dtype = array.dtype.name if array.dtype.kind in "iu" else keras.config.floatx()
        return keras.KerasTensor((None, *array.shape[1:]), dtype=dtype)

    return _map(spec, x)


def _map(function, x):
    if not has_several(x):
        return function(x)
    mapped = {name: function(array) for name, array in _named(x).items()}
    return mapped if isinstance(x, Mapping) else list(mapped.values())


def _named(x):
    return dict(x) if isinstance(x, Mapping) else dict(enumerate(x))


def _flat(x):
    return list(_named(x).values())


def fit_to_template(template, x):
    """X in the structure, shapes and dtypes of the template's inputs.

    Parameters
    ----------
    template : Template
    x : ndarray, or dict or list of ndarray

    Returns
    -------
    structure of ndarray
        As ``template.graph.input``; arrays that fit already are not copied.

    Raises
    ------
    ValueError
        If an input is missing or left over, has another shape, or does not survive the cast.
    """
    structure = template.graph.input
    specs = structure if isinstance(structure, Mapping) else {t.name: t for t in tree.flatten(structure)}
    if isinstance(x, Mapping):
        if set(x) != set(specs):
            raise ValueError(
                f"`X` must hold the model's inputs {sorted(specs)}. Got {sorted(map(str, x))}. "
                "Name the keys of X as the model's inputs."
            )
        arrays = {name: x[name] for name in specs}
    else:
        given = list(x) if has_several(x) else [x]
        if len(given) != len(specs):
            raise ValueError(
                f"`X` must hold {len(specs)} array{'s' * (len(specs) != 1)}, as the model has inputs. "
                f"Got {len(given)}. Pass a list of arrays, or a dict with the keys {list(specs)}."
            )
        arrays = dict(zip(specs, given, strict=True))
    fitted = {name: _fit_array(array, specs[name], "X" if len(specs) == 1 else name) for name, array in arrays.items()}
    if isinstance(structure, Mapping):
        return fitted
    return tree.pack_sequence_as(structure, list(fitted.values()))


def _fit_array(array, spec, name):
    if array.ndim == 1 and tuple(spec.shape[1:]) == (1,):
        array = array[:, None]
    expected = tuple(spec.shape[1:])
    matches = len(expected) == array.ndim - 1 and all(
        size in (None, given) for size, given in zip(expected, array.shape[1:], strict=False)
    )
    if not matches:
        wanted = ", ".join(["n_samples", *("any" if size is None else str(size) for size in expected)])
        raise ValueError(
            f"`{name}` must have the shape ({wanted}) of the model's input. Got {array.shape}. "
            "Change the model's input or reshape the data."
        )
    dtype = np.dtype(keras.backend.standardize_dtype(spec.dtype)) if spec.dtype != "bfloat16" else np.dtype("float32")
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if (dtype.kind in "iu" and not np.array_equal(cast, array)) or (dtype.kind == "f" and not all_finite(cast)):
        raise ValueError(
            f"`{name}` must hold values that {dtype.name}, the dtype of the model's input, can hold. Got values of "
            f"{array.dtype.name} that change in it. Round or scale them, or change the dtype of the model's input."
        )
    return cast


def all_finite(array):
    """Whether an array of floats holds neither NaN nor infinity."""
    # A sum is finite only if all terms are; the other way round it may overflow, so look closer then.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum(dtype=np.float64))) or bool(np.isfinite(array).all())
