"""Bootstrap: the rows an ensemble's members train on, each drawn from the member's own seed."""

from numbers import Integral, Real

import numpy as np

from kfoldfuse.splitting.folds import Split
from kfoldfuse.splitting.seeds import member_generator


def draw_rows(n_rows, n_members, *, bootstrap, max_samples, seeds):
    """Draw each member's training rows; the rows it did not draw are its out-of-bag rows.

    Parameters
    ----------
    n_rows : int
        Rows of X.
    n_members : int
        Members of the ensemble.
    bootstrap : bool
        True draws with replacement, so that a row may come several times. False draws without.
    max_samples : int or float
        Rows to draw: a float in (0, 1] is a share of `n_rows`, rounded down, at least one row; an int is a number of
        rows, with ``bootstrap=False`` no more than there are. As in scikit-learn's bagging.
    seeds : sequence of int, of length n_members
        The members' seeds.

    Returns
    -------
    list of Split
        ``train`` holds the drawn rows in the order of drawing, or all rows in their order if a draw without
        replacement takes all; ``test`` the out-of-bag rows in their order.

    Raises
    ------
    ValueError
        If `n_members` or `max_samples` is not of that kind or out of range.

    References
    ----------
    L. Breiman, "Bagging predictors", Machine Learning 24, 1996.

    Examples
    --------
    >>> (member,) = draw_rows(6, 1, bootstrap=True, max_samples=0.5, seeds=[1])
    >>> len(member.train), bool(np.isin(member.train, member.test).any())
    (3, False)
    """
    if not isinstance(n_members, Integral) or isinstance(n_members, bool) or n_members < 1:
        raise ValueError(
            f"`n_members` must be an int of at least 1. Got {n_members!r}. Use n_members=1 to train one network."
        )
    n_drawn = _count_drawn(n_rows, bootstrap, max_samples)
    splits = []
    for _, seed in zip(range(n_members), seeds, strict=True):
        if bootstrap:
            train = member_generator(seed, "rows").integers(n_rows, size=n_drawn, dtype=np.int64)
        elif n_drawn == n_rows:
            train = np.arange(n_rows, dtype=np.int64)
        else:
            train = member_generator(seed, "rows").permutation(n_rows)[:n_drawn].astype(np.int64)
        left_out = np.ones(n_rows, dtype=bool)
        left_out[train] = False
        splits.append(Split(train, np.flatnonzero(left_out).astype(np.int64)))
    return splits


def _count_drawn(n_rows, bootstrap, max_samples):
    is_number = isinstance(max_samples, Real) and not isinstance(max_samples, (bool, np.bool_))
    if is_number and isinstance(max_samples, Integral):
        if max_samples >= 1 and (bootstrap or max_samples <= n_rows):
            return int(max_samples)
    elif is_number and 0 < max_samples <= 1:
        return max(int(n_rows * max_samples), 1)
    most = "of at least 1" if bootstrap else f"from 1 to the {n_rows} rows of X"
    raise ValueError(
        f"`max_samples` must be an int {most}, or a float in (0, 1]. Got {max_samples!r}. "
        "Use max_samples=1.0 to draw as many rows as X has."
    )
