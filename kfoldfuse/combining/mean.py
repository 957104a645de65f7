"""The arithmetic mean of the members' predictions."""

import numpy as np


def combine_mean(predictions, is_probability=False):
    """Average the members: what to use unless there is a reason not to.

    ``mean_k p_k``. Probabilities stay probabilities: the combined prediction is the equal mixture of the members'.
    Its log loss and squared error are no more than the members' mean log loss and mean squared error.

    Parameters
    ----------
    predictions : ndarray of shape (n_members, n_samples, ...)
        The members' predictions.
    is_probability : {False, "classes", "labels"}, default=False
        Makes no difference here.

    Returns
    -------
    ndarray of shape (n_samples, ...)

    References
    ----------
    B. Lakshminarayanan, A. Pritzel, C. Blundell, "Simple and scalable predictive uncertainty estimation using deep
    ensembles", NeurIPS 2017.

    Examples
    --------
    >>> combine_mean(np.array([[1.0, 2.0], [3.0, 6.0]]))
    array([2., 4.])
    """
    return np.mean(predictions, axis=0, dtype=np.float64).astype(predictions.dtype, copy=False)
