"""Probabilities of classes that sum to 1 again after an operation on each class by itself."""

import numpy as np


def normalise_or_mean(combined, predictions):
    """Divide by the sum over the classes; where that is 0, take the members' mean.

    Parameters
    ----------
    combined : ndarray of shape (n_samples, ..., n_classes)
        Numbers of at least 0.
    predictions : ndarray of shape (n_members, n_samples, ..., n_classes)
        The members' probabilities.

    Returns
    -------
    ndarray of shape (n_samples, ..., n_classes)
    """
    total = combined.sum(axis=-1, keepdims=True)
    nobody = total == 0  # every class is ruled out by some member
    combined = combined / np.where(nobody, 1.0, total)
    if nobody.any():
        combined = np.where(nobody, predictions.mean(axis=0, dtype=np.float64), combined)
    return combined
