"""Combining: the members' predictions to one prediction. One combiner a file."""

import difflib

import numpy as np

from kfoldfuse.combining.geometric import combine_geometric
from kfoldfuse.combining.mean import combine_mean
from kfoldfuse.combining.median import combine_median
from kfoldfuse.combining.vote import combine_vote
from kfoldfuse.combining.weighted import combine_weighted

__all__ = ["COMBINERS", "check_combine", "combine_predictions"]

COMBINERS = {
    "mean": combine_mean,
    "median": combine_median,
    "geometric": combine_geometric,
    "vote": combine_vote,
    "weighted": combine_weighted,
}
_PROBABILITIES_ONLY = {"geometric", "vote"}


def check_combine(method, *, is_probability=False):
    """Refuse a `combine` that does not exist or does not fit, before anything is trained.

    Parameters
    ----------
    method : str or callable
        A key of ``COMBINERS``, or a function.
    is_probability : {False, "classes", "labels"}, default=False
        What the predictions are, as in `combine_predictions`.

    Raises
    ------
    ValueError
        If there is no such combiner, or it needs probabilities and the predictions are not.

    Examples
    --------
    >>> check_combine("median")
    """
    if callable(method):
        return
    if not isinstance(method, str) or method not in COMBINERS:
        names = ", ".join(repr(name) for name in COMBINERS)
        close = difflib.get_close_matches(method, COMBINERS, n=1) if isinstance(method, str) else []
        advice = f"Did you mean {close[0]!r}?" if close else "Use 'mean' if in doubt."
        raise ValueError(f"`combine` must be one of {names}, or a function. Got {method!r}. {advice}")
    if method in _PROBABILITIES_ONLY and not is_probability:
        raise ValueError(
            f"`combine` must be a way to combine numbers for regression. Got {method!r}, which needs probabilities. "
            "Use 'mean', 'median' or 'weighted'."
        )


def combine_predictions(predictions, method="mean", *, weights=None, is_probability=False):
    """Combine the members' predictions into one.

    Parameters
    ----------
    predictions : array-like of shape (n_members, n_samples, ...)
        The members' predictions, failed members left out; (n_members, n_samples, n_classes) if they are probabilities
        of classes.
    method : {"mean", "median", "geometric", "vote", "weighted"} or callable, default="mean"
        The name of a combiner. A function is called with the array and returns an array of shape (n_samples, ...).
    weights : array-like of shape (n_members,), default=None
        For "weighted" only, which needs them: no less than 0, not all 0; only their ratios matter.
    is_probability : {False, "classes", "labels"}, default=False
        False: numbers (regression). "classes": probabilities that sum to 1 over the last axis. "labels": each number
        is the probability of a label by itself (multilabel).

    Returns
    -------
    ndarray of shape (n_samples, ...)
        In the predictions' dtype (float64 for integers); for a function, what it returned.

    Raises
    ------
    ValueError
        If the combiner does not exist or does not fit (see `check_combine`), there is no member, `weights` is missing,
        unusable or not asked for, or a function returned another shape.

    Examples
    --------
    >>> combine_predictions([[1.0, 2.0], [3.0, 6.0]], "mean")
    array([2., 4.])
    >>> combine_predictions([[[0.9, 0.1]], [[0.2, 0.8]], [[0.4, 0.6]]], "vote", is_probability="classes").round(2)
    array([[0.33, 0.67]])
    """
    check_combine(method, is_probability=is_probability)
    if is_probability not in (False, "classes", "labels"):
        raise ValueError(
            f"`is_probability` must be False, 'classes' or 'labels'. Got {is_probability!r}. "
            "Use 'classes' if the last axis sums to 1, 'labels' for multilabel, False for regression."
        )
    predictions = np.asarray(predictions)
    if predictions.dtype.kind != "f":
        predictions = predictions.astype(np.float64)
    if predictions.ndim < 2 or len(predictions) == 0:
        raise ValueError(
            "`predictions` must have the shape (n_members, n_samples, ...) with at least one member. "
            f"Got the shape {predictions.shape}. Stack the members' predictions along axis 0."
        )
    if weights is not None and method != "weighted":
        raise ValueError(
            f"`weights` must be None unless `combine` is 'weighted'. Got weights with combine={method!r}. "
            "Use combine='weighted', or leave the weights out."
        )
    if callable(method):
        return _call(method, predictions)
    if method == "weighted":
        return combine_weighted(predictions, weights)
    return COMBINERS[method](predictions, is_probability)


def _call(function, predictions):
    combined = np.asarray(function(predictions))
    if combined.shape != predictions.shape[1:]:
        raise ValueError(
            f"`combine` must return an array of shape {predictions.shape[1:]} for predictions of shape "
            f"{predictions.shape}. Got the shape {combined.shape}. Reduce axis 0, the member axis, and keep the others."
        )
    return combined
