"""Out-of-fold predictions: for each row, the mean over the members that left it out."""

import numpy as np


def gather_out_of_fold(member_predictions, splits, n_rows):
    """Put the members' predictions for the rows they left out together, row by row.

    Parameters
    ----------
    member_predictions : sequence of (ndarray of shape (n_test_rows, ...) or None)
        For each split, its member's predictions for ``split.test``, in that order. None for a failed member, which is
        left out. Probabilities, not class labels: those follow from the mean probability.
    splits : sequence of Split
        The members' splits; each test row stands once in its split.
    n_rows : int
        Rows of X.

    Returns
    -------
    out_of_fold : ndarray of shape (n_rows, ...)
        The mean over the members that left the row out, computed in float64, returned in the widest dtype of the
        predictions (float64 for integers). NaN where no member left the row out: 0 would look like a prediction.
    counts : ndarray of shape (n_rows,), int64
        How many members left the row out and did not fail.

    Raises
    ------
    ValueError
        If all predictions are None, or one has another number of rows than its split's test rows.

    Examples
    --------
    >>> from kfoldfuse.splitting import Split
    >>> splits = [Split(np.array([1, 2]), np.array([0])), Split(np.array([2]), np.array([0, 1]))]
    >>> gather_out_of_fold([np.array([1.0]), np.array([3.0, 5.0])], splits, 3)
    (array([ 2.,  5., nan]), array([2, 1, 0]))
    """
    pairs = zip(member_predictions, splits, strict=True)
    present = [(np.asarray(predictions), split.test) for predictions, split in pairs if predictions is not None]
    if not present:
        raise ValueError(
            f"`member_predictions` must hold the predictions of at least one member. Got None for all {len(splits)}. "
            "Leave a failed member out only if another one is left."
        )
    for predictions, test in present:
        if predictions.shape[:1] != test.shape:
            raise ValueError(
                f"`member_predictions` must hold one prediction for each test row. Got an array of shape "
                f"{predictions.shape} for {len(test)} test rows. Predict the rows X[split.test]."
            )

    total = np.zeros((n_rows, *present[0][0].shape[1:]), dtype=np.float64)
    counts = np.zeros(n_rows, dtype=np.int64)
    for predictions, test in present:
        total[test] += predictions
        counts[test] += 1
    divisor = np.where(counts > 0, counts, np.nan).reshape(n_rows, *[1] * (total.ndim - 1))
    dtype = np.result_type(*(predictions.dtype for predictions, _ in present))
    return (total / divisor).astype(dtype if dtype.kind == "f" else np.float64, copy=False), counts
