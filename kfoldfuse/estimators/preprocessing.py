"""`preprocessor`: fitted on each member's own training rows, as data of its own or as statistics in its network."""

import keras
import numpy as np
from sklearn.base import clone

from kfoldfuse.estimators import inputs
from kfoldfuse.fusion.template import draw_initial_weights
from kfoldfuse.training import MemberState


def is_normalization(preprocessor):
    """Whether `preprocessor` is a Keras layer adapted per member."""
    return type(preprocessor) is keras.layers.Normalization


def check_preprocessor(preprocessor):
    """Problems of `preprocessor`, as sentences."""
    is_transformer = hasattr(preprocessor, "fit") and hasattr(preprocessor, "transform")
    if preprocessor is None or is_normalization(preprocessor) or is_transformer:
        return []
    return [
        "`preprocessor` must be None, a scikit-learn transformer or a keras.layers.Normalization. "
        f"Got {preprocessor!r}. Put other Keras layers into the model."
    ]


def fit_transformers(preprocessor, x, y, rows):
    """Clone and fit the transformer for each member, and transform all rows of X with each.

    Parameters
    ----------
    preprocessor : transformer
        Not modified.
    x : ndarray or DataFrame of shape (n_rows, n_features)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs)
    rows : list of ndarray of int
        Rows to fit on, for each member.

    Returns
    -------
    transformers : list of transformer
    transformed : list of ndarray of shape (n_rows, ...)

    Raises
    ------
    ValueError
        If members get arrays of different shapes, or sparse ones.
    """
    transformers, transformed = [], []
    for own in rows:
        transformer = clone(preprocessor)
        transformers.append(transformer.fit(inputs.take_rows(x, own), np.asarray(y)[own]))
        transformed.append(transform(transformer, x))
    shapes = [array.shape[1:] for array in transformed]
    if len(set(shapes)) > 1:
        odd = next(member for member, shape in enumerate(shapes) if shape != shapes[0])
        raise ValueError(
            f"`preprocessor` must give every member's rows the same shape. Got {shapes[0]} for member 0 and "
            f"{shapes[odd]} for member {odd}. Fix what it learns about columns, such as the categories of an encoder."
        )
    return transformers, transformed


def transform(transformer, x):
    """Transformed rows as an array."""
    array = transformer.transform(x)
    if hasattr(array, "tocsr") or hasattr(array, "tocoo"):
        raise ValueError(
            f"`preprocessor` must give dense arrays. Got a sparse {type(array).__name__}. "
            "Use sparse_output=False or sparse_threshold=0."
        )
    array = np.asarray(array)
    if array.dtype == object:
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and not inputs.all_finite(array):
        raise ValueError(
            f"`preprocessor` must give finite numbers. Got NaN or infinity from {type(transformer).__name__}. Fill "
            "missing values in it, such as with make_pipeline(SimpleImputer(), StandardScaler())."
        )
    return array


def prepend_normalization(preprocessor, build, shape, dtype):
    """A builder of the model behind a normalisation layer with the preprocessor's settings.

    Parameters
    ----------
    preprocessor : keras.layers.Normalization
        Not modified; statistics that it was adapted to are not used.
    build : callable
        Returns the model.
    shape : tuple of int
        Of one row of X.
    dtype : numpy.dtype
        Of X.

    Returns
    -------
    callable
    """

    def build_normalized():
        model = build()
        layer = _fresh(preprocessor)
        data = keras.Input(shape, dtype=dtype.name if dtype.kind in "iu" else keras.config.floatx())
        return keras.Model(data, model(layer(data)), name=f"normalized_{model.name}")

    return build_normalized


def _fresh(preprocessor):
    config = preprocessor.get_config()
    config.pop("name", None)
    return keras.layers.Normalization.from_config(config)


def adapted_states(preprocessor, template, x, rows, seeds):
    """First states of members, each with the statistics of its own rows.

    Parameters
    ----------
    preprocessor : keras.layers.Normalization
    template : Template
        Its model begins with the normalisation layer.
    x : ndarray of shape (n_rows, ...)
    rows : list of ndarray of int
    seeds : list of int

    Returns
    -------
    list of MemberState
    """
    layer = next(layer for layer in template.model.layers if type(layer) is keras.layers.Normalization)
    where = {id(variable): position for position, variable in enumerate(template.model.variables)}
    states = []
    for own, seed in zip(rows, seeds, strict=True):
        values = draw_initial_weights(template, seed)
        if layer.variables:  # none where mean and variance were given as numbers
            fresh = _fresh(preprocessor)
            fresh.adapt(x[own])
            for variable, adapted in zip(layer.variables, fresh.variables, strict=True):
                values[where[id(variable)]] = keras.ops.convert_to_numpy(adapted.value)
        states.append(MemberState(values))
    return states
