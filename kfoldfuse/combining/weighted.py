"""The weighted mean of the members' predictions."""

import numpy as np


def combine_weighted(predictions, weights):
    """Average the members with weights: for members whose quality differs and is known.

    ``sum_k w_k p_k / sum_k w_k``. A member of weight 0 is left out, even if its predictions are NaN. Weights fitted on
    the rows that are scored afterwards make that score optimistic.

    Parameters
    ----------
    predictions : ndarray of shape (n_members, n_samples, ...)
        The members' predictions.
    weights : array-like of shape (n_members,)
        No less than 0, not all 0; only their ratios matter.

    Returns
    -------
    ndarray of shape (n_samples, ...)

    Raises
    ------
    ValueError
        If `weights` is missing, of another shape, negative, not finite, or all 0.

    References
    ----------
    M. P. Perrone, L. N. Cooper, "When networks disagree: ensemble methods for hybrid neural networks", in Neural
    Networks for Speech and Image Processing, 1993 (the generalized ensemble method).

    Examples
    --------
    >>> combine_weighted(np.array([[1.0], [5.0]]), [3, 1])
    array([2.])
    """
    given = weights
    weights = None if given is None else np.asarray(given, dtype=np.float64)
    n_members = len(predictions)
    if weights is None or weights.shape != (n_members,) or not _are_usable(weights):
        raise ValueError(
            f"`weights` must be {n_members} finite numbers of at least 0, one a member, and not all 0. Got {given!r}. "
            "Use combine='mean' to give all members the same weight."
        )
    used = weights > 0
    weights = weights[used] / weights[used].max()  # in range, however large or small the given numbers are
    combined = np.tensordot(weights / weights.sum(), predictions[used], axes=1)
    return combined.astype(predictions.dtype, copy=False)


def _are_usable(weights):
    return np.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()
