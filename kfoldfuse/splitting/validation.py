"""Validation rows: a part of a member's own training rows that it does not train on but looks at."""

from numbers import Integral, Real

import numpy as np

from kfoldfuse.splitting.seeds import member_generator


def split_validation(rows, fraction, seed, *, strata=None, groups=None):
    """Set a fraction of a member's training rows aside, shuffled, stratified or by whole groups.

    Early stopping and ``val_*`` metrics look at these rows. The rows that the member's split leaves out never come
    into it, so an out-of-fold score stays honest.

    Parameters
    ----------
    rows : ndarray of shape (n_member_rows,)
        The member's training rows. One that stands there several times (bootstrap) goes to one side with all its
        copies: the member never looks at a row it trains on.
    fraction : float
        The part to set aside, in (0, 1): of the distinct rows, rounded to a whole number of rows, at least one.
    seed : int
        The member's seed.
    strata : ndarray of shape (n_rows,), default=None
        The class of every row of X. Validation rows are then divided among classes in proportion (largest remainders)
        and every class keeps at least one row to train on: the only row of a class is never set aside. Where that
        leaves too few rows (nearly every class has one row), strata are ignored.
    groups : ndarray of shape (n_rows,), default=None
        The group of every row of X. Whole groups are set aside, in random order, until the number of rows comes
        nearest to the fraction. Groups go before strata, which are then ignored.

    Returns
    -------
    fit_rows : ndarray of shape (n_fit_rows,)
        The rows to train on, in the order of `rows`.
    validation_rows : ndarray of shape (n_validation_rows,)
        The rows to look at, in the order of `rows`.

    Raises
    ------
    ValueError
        If `fraction` is not in (0, 1), or one side would be empty: fewer than two distinct rows or groups.

    Examples
    --------
    >>> fit_rows, validation_rows = split_validation(np.arange(10), 0.3, seed=0)
    >>> len(fit_rows), len(validation_rows)
    (7, 3)
    """
    if not isinstance(fraction, Real) or isinstance(fraction, Integral) or not 0 < fraction < 1:
        raise ValueError(
            f"`validation` must be a float between 0 and 1, the part of a member's training rows to look at. "
            f"Got {fraction!r}. Use validation=0.1 for a tenth, or validation=None for no validation rows."
        )
    rows = np.asarray(rows)
    distinct = np.unique(rows)
    units = distinct if groups is None else np.unique(np.asarray(groups)[distinct])
    if len(units) < 2:
        kind = "row" if groups is None else "group"
        raise ValueError(
            f"`validation` must leave a member at least one {kind} to train on and one to look at. "
            f"Got {len(units)} distinct {kind}{'s' * (len(units) != 1)} in a member's training rows. "
            f"Pass more {kind}s, or use validation=None and early_stopping=False."
        )

    generator = member_generator(seed, "validation")
    n_validation = min(max(round(fraction * len(distinct)), 1), len(distinct) - 1)
    chosen = None
    if groups is not None:
        chosen = _choose_groups(distinct, np.asarray(groups)[distinct], n_validation, generator)
    elif strata is not None:
        chosen = _choose_strata(distinct, np.asarray(strata)[distinct], n_validation, generator)
    if chosen is None:
        chosen = generator.permutation(distinct)[:n_validation]
    held = np.isin(rows, chosen)
    return rows[~held], rows[held]


def _choose_groups(distinct, groups, n_validation, generator):
    names, group_of = np.unique(groups, return_inverse=True)
    order = generator.permutation(len(names))
    rows_reached = np.cumsum(np.bincount(group_of)[order])[:-1]  # the last group always stays with the fit rows
    n_groups = np.abs(rows_reached - n_validation).argmin() + 1
    return distinct[np.isin(group_of, order[:n_groups])]


def _choose_strata(distinct, strata, n_validation, generator):
    _, class_of, class_size = np.unique(strata, return_inverse=True, return_counts=True)
    spare = class_size - 1
    if spare.sum() < n_validation:
        return None

    share = n_validation * class_size / class_size.sum()
    taken = np.minimum(np.floor(share).astype(np.int64), spare)
    while (missing := n_validation - taken.sum()) > 0:
        remainder = np.where(taken < spare, share - taken, -np.inf)
        ties = generator.permutation(len(class_size))
        order = np.lexsort((ties, -remainder))
        taken[order[: min(missing, np.count_nonzero(taken < spare))]] += 1

    order = np.lexsort((generator.permutation(len(distinct)), class_of))  # by class, shuffled within it
    rank_in_class = np.arange(len(distinct)) - (np.cumsum(class_size) - class_size)[class_of[order]]
    return distinct[order[rank_in_class < taken[class_of[order]]]]
