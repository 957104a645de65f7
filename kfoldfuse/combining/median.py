"""The median of the members' predictions."""

import numpy as np

from kfoldfuse.combining._normalise import normalise_or_mean


def combine_median(predictions, is_probability=False):
    """Take the middle member's prediction, output by output: one wild member does no harm.

    ``median_k p_k``; probabilities of classes are then divided by their sum over the classes. Where that sum is 0
    (members certain of different classes) the mean stands in. Of two members, the median is the mean.

    Parameters
    ----------
    predictions : ndarray of shape (n_members, n_samples, ...)
        The members' predictions.
    is_probability : {False, "classes", "labels"}, default=False
        "classes" makes the last axis sum to 1 again.

    Returns
    -------
    ndarray of shape (n_samples, ...)

    References
    ----------
    J. Kittler, M. Hatef, R. P. W. Duin, J. Matas, "On combining classifiers", IEEE Transactions on Pattern Analysis and
    Machine Intelligence 20, 1998 (the median rule).

    Examples
    --------
    >>> combine_median(np.array([[1.0], [2.0], [900.0]]))
    array([2.])
    """
    median = np.median(predictions.astype(np.float64, copy=False), axis=0)
    if is_probability == "classes":
        median = normalise_or_mean(median, predictions)
    return median.astype(predictions.dtype, copy=False)
