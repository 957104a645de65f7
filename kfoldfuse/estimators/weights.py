"""Weights of rows: the user's `sample_weight`, times the `class_weight` of each member's own training rows."""

from numbers import Real

import numpy as np
from sklearn.utils.validation import check_array


def read_sample_weight(sample_weight, n_rows):
    """Check the user's weights.

    Parameters
    ----------
    sample_weight : None or array-like of shape (n_rows,)
        Never modified.
    n_rows : int

    Returns
    -------
    None or ndarray of shape (n_rows,), float64

    Raises
    ------
    ValueError
        If it has another shape, or holds negative, missing or only zero weights.
    """
    if sample_weight is None:
        return None
    weight = check_array(
        sample_weight, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="sample_weight", copy=True
    )
    if weight.shape != (n_rows,):
        raise ValueError(
            f"`sample_weight` must have the shape ({n_rows},), one weight per row of X. Got {weight.shape}. "
            "Pass a 1-D array."
        )
    if (weight < 0).any():
        raise ValueError(
            f"`sample_weight` must not be negative. Got {weight.min()} for row {weight.argmin()}. "
            "Use 0 to leave a row out of the training."
        )
    if not weight.any():
        raise ValueError(
            f"`sample_weight` must have a weight that is not zero. Got {n_rows} zeros. Give the rows to train on a "
            "positive weight."
        )
    return weight


def check_class_weight(class_weight, classes, kind):
    """Refuse a `class_weight` that does not fit the labels.

    Parameters
    ----------
    class_weight : None, "balanced" or dict
        Keyed by the user's labels.
    classes : ndarray of shape (n_classes,)
    kind : str
        The kind of the targets; several labels per row have no class.

    Raises
    ------
    ValueError
        If it is something else, or has a key that is no label or a weight that is no number of at least 0.
    """
    if class_weight is None:
        return
    if kind == "multilabel":
        raise ValueError(
            f"`class_weight` must be None where a row may have several labels. Got {class_weight!r}. "
            "Use sample_weight to weight rows."
        )
    if isinstance(class_weight, str) and class_weight == "balanced":
        return
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"`class_weight` must be None, 'balanced' or a dict of labels to weights. Got {class_weight!r}. "
            "Use class_weight='balanced' to give all classes the same total weight."
        )
    known = set(classes.tolist())
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(
            f"`class_weight` must have labels of y as keys: {classes.tolist()}. Got {unknown}. "
            "Correct the keys; labels without a key weigh 1."
        )
    wrong = [label for label, weight in class_weight.items() if not _is_weight(weight)]
    if wrong:
        raise ValueError(
            f"`class_weight` must hold finite numbers of at least 0. Got {class_weight[wrong[0]]!r} for the label "
            f"{wrong[0]!r}. Use 0 for a class that the loss is not to count."
        )
    if not any(class_weight.get(label, 1) for label in known):
        raise ValueError(
            f"`class_weight` must have a weight that is not zero. Got {class_weight!r}. Give the classes to learn a "
            "positive weight."
        )


def _is_weight(value):
    return isinstance(value, Real) and np.isfinite(value) and value >= 0


def weigh_classes(class_weight, classes, codes, rows, sample_weight):
    """Weight of each class for one member.

    Parameters
    ----------
    class_weight : "balanced" or dict
    classes : ndarray of shape (n_classes,)
    codes : ndarray of shape (n_rows,), int
        The class of every row of X.
    rows : ndarray of shape (n_member_rows,), int
        The member's own training rows.
    sample_weight : None or ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_classes,)
        For "balanced", as `sklearn.utils.class_weight.compute_class_weight` of the member's rows; 1 for a class that it
        does not have.
    """
    if isinstance(class_weight, dict):
        return np.array([class_weight.get(label, 1.0) for label in classes.tolist()], dtype=np.float64)
    weight = None if sample_weight is None else sample_weight[rows]
    counts = np.bincount(codes[rows], weights=weight, minlength=len(classes)).astype(np.float64)
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)
