"""The members' votes."""

import numpy as np


def combine_vote(predictions, is_probability):
    """Count the members that vote for each class, whatever their confidence.

    For classes: the fraction of members whose most probable class it is; a member in doubt between classes votes for
    the lowest one, and so does the argmax of the result, as in scikit-learn's ``VotingClassifier(voting="hard")``. For
    labels: the fraction of members with a probability above 0.5.

    Parameters
    ----------
    predictions : ndarray of shape (n_members, n_samples, ...)
        The members' probabilities.
    is_probability : {"classes", "labels"}
        Whether the last axis sums to 1, or each number is the probability of a label by itself.

    Returns
    -------
    ndarray of shape (n_samples, ...)
        Fractions of members, multiples of 1 / n_members.

    References
    ----------
    L. K. Hansen, P. Salamon, "Neural network ensembles", IEEE Transactions on Pattern Analysis and Machine
    Intelligence 12, 1990.

    Examples
    --------
    >>> combine_vote(np.array([[[0.6, 0.4]], [[0.1, 0.9]]]), "classes")
    array([[0.5, 0.5]])
    """
    if is_probability == "labels":
        votes = predictions > 0.5
    else:
        choices = predictions.argmax(axis=-1)
        votes = choices[..., np.newaxis] == np.arange(predictions.shape[-1])
    return votes.mean(axis=0, dtype=np.float64).astype(predictions.dtype, copy=False)
