"""y: read once, handed to the network as numbers, and given back in the form that `fit` saw."""

import dataclasses

import keras
import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, column_or_1d

from kfoldfuse.estimators.head import LOGITS, SIGMOID, SOFTMAX, is_of_keras
from kfoldfuse.estimators.inputs import all_finite, refuse_sparse

BINARY, MULTICLASS, MULTILABEL, REGRESSION = "binary", "multiclass", "multilabel", "regression"


@dataclasses.dataclass(frozen=True, eq=False)
class Targets:
    """What y holds, and its form.

    Attributes
    ----------
    kind : {"binary", "multiclass", "multilabel", "regression"}
    numbers : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Codes of classes (int), or the columns of y.
    classes : ndarray of shape (n_classes,) or None
        The user's labels in the order of the codes; column numbers where y is an indicator matrix.
    indicator : bool
        Whether y is a matrix of 0 and 1 with a column per class or label.
    dtype : numpy.dtype
        Of y.
    flat : bool
        Whether y has the shape (n_rows,).
    """

    kind: str
    numbers: np.ndarray
    classes: np.ndarray | None
    indicator: bool
    dtype: np.dtype
    flat: bool

    @property
    def n_outputs(self):
        """Units of a head that fits: one for binary labels."""
        if self.kind == BINARY:
            return 1
        if self.kind == MULTICLASS:
            return len(self.classes)
        return 1 if self.flat else self.numbers.shape[1]

    @property
    def codes(self):
        """Class of each row, an int; None where a row has no class."""
        return self.numbers if self.kind in (BINARY, MULTICLASS) else None

    def as_multilabel(self):
        """The same indicator matrix with each column a label by itself."""
        matrix = np.eye(len(self.classes))[self.numbers]
        return dataclasses.replace(self, kind=MULTILABEL, numbers=matrix)


def read_classes(estimator, y):
    """Read the y of a classifier.

    A matrix of 0 and 1 with exactly one 1 in every row is one-hot ("multiclass"), any other one multilabel. Where the
    model says otherwise (it ends in sigmoid units, or the loss is a binary one), every column is a label by itself.

    Parameters
    ----------
    estimator : estimator
        For messages.
    y : array-like of shape (n_rows,) or (n_rows, n_columns)

    Returns
    -------
    Targets
    """
    _require(estimator, y)
    refuse_sparse(y, "y")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=estimator)
    check_classification_targets(y)
    if y.ndim == 2:
        return _read_indicator(y)
    classes, codes = np.unique(column_or_1d(y), return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"`y` must hold at least 2 classes. Got 1 class, {classes.tolist()[0]!r}. "
            "Use sklearn.dummy.DummyClassifier to predict the same label always."
        )
    return Targets(
        kind=BINARY if len(classes) == 2 else MULTICLASS,
        numbers=codes.reshape(-1).astype(np.int64),
        classes=classes,
        indicator=False,
        dtype=y.dtype,
        flat=True,
    )


def _read_indicator(y):
    kind = type_of_target(y, input_name="y")
    if kind != "multilabel-indicator":
        raise ValueError(
            f"`y` must be labels of shape (n_samples,), or a matrix of 0 and 1 with a column per class or label. "
            f"Got {kind} of shape {y.shape}. Use sklearn.multioutput.MultiOutputClassifier for several targets."
        )
    matrix = np.asarray(y, dtype=np.float64)
    if not np.isin(matrix, (0, 1)).all():
        raise ValueError(
            f"`y` must hold 0 and 1 where it has a column per class or label. Got the values {np.unique(y).tolist()}. "
            "Use (y == value).astype(int)."
        )
    one_hot = bool((matrix.sum(axis=1) == 1).all())
    return Targets(
        kind=MULTICLASS if one_hot else MULTILABEL,
        numbers=matrix.argmax(axis=1) if one_hot else matrix,
        classes=np.arange(y.shape[1]),
        indicator=True,
        dtype=y.dtype,
        flat=False,
    )


def read_numbers(estimator, y):
    """Read the y of a regressor: of shape (n_rows,), (n_rows, 1) or (n_rows, n_outputs).

    Returns
    -------
    Targets
    """
    _require(estimator, y)
    refuse_sparse(y, "y")
    y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y", estimator=estimator)
    dtype = y.dtype if y.dtype.kind == "f" else np.dtype(np.float64)
    return Targets(
        kind=REGRESSION,
        numbers=y.astype(np.float64, copy=False),
        classes=None,
        indicator=False,
        dtype=dtype,
        flat=y.ndim == 1,
    )


def _require(estimator, y):
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Pass the targets."
        )


def settle_kind(targets, activation, loss):
    """Take a one-hot y as labels by themselves where the model or the loss says so.

    Parameters
    ----------
    targets : Targets
    activation : str or None
        What the model ends in.
    loss : keras.losses.Loss or None

    Returns
    -------
    Targets
    """
    one_hot = targets.kind == MULTICLASS and targets.indicator
    if one_hot and (activation == SIGMOID or is_binary_loss(loss)):
        return targets.as_multilabel()
    return targets


def is_binary_loss(loss):
    """Whether the loss looks at each unit by itself."""
    return isinstance(loss, (keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy))


def check_units(targets, units, activation):
    """Refuse a head that does not fit the targets.

    Parameters
    ----------
    targets : Targets
    units : int
        Of the model's output.
    activation : str or None

    Raises
    ------
    ValueError
    """
    has = f"The model's output has {units} unit{'s' * (units != 1)}"
    if targets.kind == REGRESSION:
        if units != targets.n_outputs:
            raise ValueError(
                f"{has}, and y has {targets.n_outputs} column{'s' * (targets.n_outputs != 1)}. "
                f"End the model in {targets.n_outputs} linear unit{'s' * (targets.n_outputs != 1)}."
            )
        return
    n_classes = len(targets.classes)
    if targets.kind == MULTILABEL:
        if units != n_classes:
            raise ValueError(f"{has}, and y has {n_classes} labels. End the model in {n_classes} sigmoid units.")
        if activation == SOFTMAX:
            raise ValueError(
                "The model must end in sigmoid units where a row may have several labels. Got softmax. "
                "Use activation='sigmoid' in the last layer."
            )
        return
    fitting = (1, 2) if n_classes == 2 and not targets.indicator else (n_classes,)
    if units not in fitting:
        advice = "1 sigmoid unit or 2 softmax units" if 1 in fitting else f"{n_classes} softmax units"
        raise ValueError(f"{has}, and y has {n_classes} classes. End the model in {advice}.")
    wrong = SOFTMAX if units == 1 else SIGMOID
    if activation == wrong:
        right = SIGMOID if units == 1 else SOFTMAX
        raise ValueError(
            f"The model must end in {right} for {n_classes} classes and {units} unit{'s' * (units != 1)}. "
            f"Got {wrong}. Use activation={right!r} in the last layer."
        )


def check_loss(targets, units, loss):
    """Refuse a loss over classes on a single unit: it would be 0 whatever the network does.

    Parameters
    ----------
    targets : Targets
    units : int
    loss : keras.losses.Loss or None

    Raises
    ------
    ValueError
    """
    if targets.classes is not None and units == 1 and isinstance(loss, _OVER_CLASSES):
        raise ValueError(
            f"`loss` must be a binary one for a model that ends in 1 unit. Got {type(loss).__name__}. "
            "Use loss='binary_crossentropy', or end the model in 2 softmax units."
        )


_OVER_CLASSES = (
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.CategoricalHinge,
    keras.losses.SparseCategoricalCrossentropy,
)


def default_loss(targets, units, outputs):
    """Loss for ``loss=None``.

    Parameters
    ----------
    targets : Targets
    units : int
    outputs : str
        "probabilities", "logits" or "numbers".

    Returns
    -------
    keras.losses.Loss
    """
    if targets.kind == REGRESSION:
        return keras.losses.MeanSquaredError()
    from_logits = outputs == LOGITS
    if targets.kind == MULTILABEL or units == 1:
        return keras.losses.BinaryCrossentropy(from_logits=from_logits)
    kind = keras.losses.CategoricalCrossentropy if targets.indicator else keras.losses.SparseCategoricalCrossentropy
    return kind(from_logits=from_logits)


def encode(targets, units, loss):
    """Numbers of y as the loss wants them.

    Keras' own losses get the shape of the outputs, except for the sparse cross-entropy, which gets codes of classes. A
    loss of the user's own gets what y was: codes for labels, a matrix for a matrix.

    Parameters
    ----------
    targets : Targets
    units : int
    loss : keras.losses.Loss

    Returns
    -------
    ndarray of shape (n_rows,), int, or (n_rows, units), float

    Raises
    ------
    ValueError
        If a number of a regressor's y does not survive the cast to the float type of Keras.
    """
    if targets.kind == REGRESSION:
        return _finite_floats(targets.numbers.reshape(len(targets.numbers), -1))
    if targets.kind == MULTILABEL:
        return _floats(targets.numbers)
    if units == 1:
        return _floats(targets.numbers[:, None])
    sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    if sparse or not (is_of_keras(loss) or targets.indicator):
        return targets.numbers.astype(np.int32)
    return _floats(np.eye(units)[targets.numbers])


def _finite_floats(array):
    with np.errstate(over="ignore"):
        cast = _floats(array)
    if not all_finite(cast):
        largest = array.flat[np.abs(array).argmax()]
        raise ValueError(
            f"`y` must hold numbers that {cast.dtype.name}, which the network computes in, can hold. Got {largest}. "
            "Scale y, for instance with sklearn.compose.TransformedTargetRegressor."
        )
    return cast


def _floats(array):
    return array.astype(keras.config.floatx(), copy=False)


def to_probabilities(raw, targets, outputs):
    """Probabilities from a classifier's outputs.

    Parameters
    ----------
    raw : ndarray of shape (..., units)
    targets : Targets
    outputs : "probabilities" or "logits"

    Returns
    -------
    ndarray of shape (..., n_classes)
    """
    independent = targets.kind == MULTILABEL or raw.shape[-1] == 1
    probabilities = raw
    if outputs == LOGITS:
        # float64 on the way: a float32 softmax sums to 1 within 1e-7 times the number of classes only.
        wide = raw.astype(np.float64)
        if independent:
            probabilities = 0.5 * (1.0 + np.tanh(0.5 * wide))  # a sigmoid that does not overflow
        else:
            exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True))
            probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
        probabilities = probabilities.astype(raw.dtype)
    if raw.shape[-1] == 1 and targets.kind == BINARY:
        probabilities = np.concatenate([1 - probabilities, probabilities], axis=-1)
    return probabilities


def to_labels(probabilities, targets):
    """Labels from probabilities, in the form of y; NaN probabilities give NaN where the labels' dtype has it.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows, n_classes)
    targets : Targets

    Returns
    -------
    ndarray of shape (n_rows,), or (n_rows, n_classes) for an indicator matrix
    """
    missing = np.isnan(probabilities).any(axis=1)
    if targets.kind == MULTILABEL:
        labels = (probabilities > 0.5).astype(targets.dtype)
    else:
        codes = np.where(missing[:, None], 0, probabilities).argmax(axis=1)
        if targets.indicator:
            labels = np.eye(len(targets.classes), dtype=targets.dtype)[codes]
        else:
            labels = targets.classes[codes]
    if missing.any():
        labels = labels.astype(np.float64 if labels.dtype.kind in "biuf" else object)
        labels[missing] = np.nan
    return labels


def to_numbers(raw, targets):
    """Predictions of a regressor from its outputs, (..., units): the last axis goes if y was flat."""
    numbers = raw.astype(targets.dtype, copy=False)
    return numbers[..., 0] if targets.flat else numbers
