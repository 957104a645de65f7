"""The geometric mean of the members' probabilities."""

import numpy as np

from kfoldfuse.combining._normalise import normalise_or_mean


def combine_geometric(predictions, is_probability):
    """Average the members' log-probabilities: a class needs the consent of all members.

    With g = ``exp(mean_k log p_k)``: for classes, ``g / sum over classes of g`` (the same as a softmax of the averaged
    logits); for labels, ``g(p) / (g(p) + g(1 - p))``. A class that one member gives probability 0 gets 0, so members
    should not be overconfident. Where each class (or both p and 1 - p) is ruled out by some member, the mean stands in.

    Parameters
    ----------
    predictions : ndarray of shape (n_members, n_samples, ...)
        The members' probabilities.
    is_probability : {"classes", "labels"}
        Whether the last axis sums to 1, or each number is the probability of a label by itself.

    Returns
    -------
    ndarray of shape (n_samples, ...)

    References
    ----------
    G. E. Hinton, "Training products of experts by minimizing contrastive divergence", Neural Computation 14, 2002.

    C. Genest, J. V. Zidek, "Combining probability distributions: a critique and an annotated bibliography",
    Statistical Science 1, 1986 (the logarithmic opinion pool).

    Examples
    --------
    >>> combine_geometric(np.array([[[0.5, 0.5]], [[0.9, 0.1]]]), "classes")
    array([[0.75, 0.25]])
    """
    if is_probability == "labels":  # a label is a class of two: yes and no
        both = np.stack([predictions, 1.0 - predictions], axis=-1)
        return combine_geometric(both, "classes")[..., 0]
    probabilities = predictions.astype(np.float64, copy=False)
    # np.log(0) warns; `where` leaves those at -inf in silence, and the mean of logs is -inf then, as it should be.
    logs = np.log(probabilities, out=np.full_like(probabilities, -np.inf), where=probabilities != 0)
    geometric = np.exp(logs.mean(axis=0))  # a product would underflow to 0 with many members
    return normalise_or_mean(geometric, predictions).astype(predictions.dtype, copy=False)
