"""Folds: whatever `cv` is, a list of (train, test) row indices that has been checked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, StratifiedKFold, check_cv

_PROBLEMS_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one member: those it trains on and those it leaves out.

    Attributes
    ----------
    train : ndarray of shape (n_train_rows,), int64
        Rows the member trains on. A row drawn several times (bootstrap) stands there several times.
    test : ndarray of shape (n_test_rows,), int64
        Rows the member leaves out, each once; empty if it trains on all rows.
    repeat : int, default=0
        The pass of a repeated splitter that this split belongs to, from 0.
    """

    train: np.ndarray
    test: np.ndarray
    repeat: int = 0


def resolve_splits(cv, x_rows, y=None, groups=None, *, classifier, n_repeats=1, random_state=None, **split_params):
    """Turn `cv` into checked (train, test) rows, one pair a member.

    Any scikit-learn splitter is right, also those that hold out some rows never (ShuffleSplit, TimeSeriesSplit) or
    several times. What is refused would leak or break later: a row on both sides, an empty side, a row that X lacks.

    Parameters
    ----------
    cv : int, None, splitter or iterable of (train, test)
        As in scikit-learn: an int is a number of folds, stratified for a classifier with a binary or multiclass y, not
        shuffled; None is 5; a splitter has a ``split`` method; an iterable holds pairs of row indices or of boolean
        masks of shape (n_rows,).
    x_rows : int or array-like of shape (n_rows, ...)
        X, or just the number of its rows (if X is a dict or list of arrays). Splitters look at its length only.
    y : array-like of shape (n_rows, ...), default=None
        The targets, for stratification.
    groups : array-like of shape (n_rows,), default=None
        The group of each row, handed to the splitter if given.
    classifier : bool
        Whether an int may stratify; also names the estimator in an error.
    n_repeats : int, default=1
        Passes over the folds, each with another shuffle. Above 1, `cv` must be an int or None.
    random_state : None, int or numpy.random.RandomState, default=None
        For the shuffles of `n_repeats` > 1; not used otherwise. An int gives the folds of scikit-learn's RepeatedKFold
        and RepeatedStratifiedKFold with that `random_state`.
    **split_params
        Further keywords of the splitter's ``split`` method (metadata routing).

    Returns
    -------
    list of Split
        In the splitter's order.

    Raises
    ------
    ValueError
        If `cv` or `n_repeats` is of the wrong kind, there are fewer than 2 splits, or splits are not usable (all are
        named in one message); also scikit-learn's own, such as more folds than rows.

    Examples
    --------
    >>> splits = resolve_splits(3, 7, classifier=False)
    >>> [split.test.tolist() for split in splits]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    splitter = _make_splitter(cv, y, classifier, n_repeats, random_state)
    x = np.zeros((x_rows, 1)) if isinstance(x_rows, Integral) else x_rows
    n_rows = x_rows if isinstance(x_rows, Integral) else _count_rows(x_rows)
    if groups is not None:
        split_params["groups"] = groups

    # A list is taken as it is: scikit-learn's wrapper would unpack its pairs, and fail there without naming `cv`.
    pairs = list(cv if splitter is None else splitter.split(x, y, **split_params))
    if not pairs and isinstance(cv, Iterator):
        raise ValueError(
            "`cv` must yield at least 2 splits. Got a generator that has been used up, as by an earlier fit. "
            "Use cv=list(generator) to fit more than once."
        )
    if len(pairs) < 2:
        raise ValueError(_too_few_splits(len(pairs), classifier))

    splits_per_repeat = len(pairs)
    if isinstance(splitter, (RepeatedKFold, RepeatedStratifiedKFold)):
        splits_per_repeat //= splitter.n_repeats

    splits, problems = [], []
    for index, pair in enumerate(pairs):
        train, test = _unpack(pair, index)
        split = Split(_as_rows(train, n_rows), _as_rows(test, n_rows), repeat=index // splits_per_repeat)
        problems += [f"split {index}: {problem}" for problem in _find_problems(split, n_rows)]
        splits.append(split)
    if problems:
        shown = "; ".join(problems[:_PROBLEMS_SHOWN])
        more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
        raise ValueError(
            f"`cv` must yield train and test rows that are integers or boolean masks, not empty, among the {n_rows} "
            f"rows of X, and without a row in common. Got {shown}{more}. Correct these splits."
        )
    return splits


def _make_splitter(cv, y, classifier, n_repeats, random_state):
    """Return what has a `split` method; None if `cv` is the list of pairs itself."""
    if not isinstance(n_repeats, Integral) or isinstance(n_repeats, bool) or n_repeats < 1:
        raise ValueError(
            f"`n_repeats` must be an int of at least 1. Got {n_repeats!r}. Use n_repeats=1 for one pass over the folds."
        )
    is_splitter = hasattr(cv, "split") and not isinstance(cv, (str, bytes))
    is_list = isinstance(cv, Iterable) and not isinstance(cv, (str, bytes))
    is_int = (isinstance(cv, Integral) and not isinstance(cv, bool)) or cv is None
    if not (is_int or is_splitter or is_list):
        raise ValueError(
            "`cv` must be an int, a scikit-learn splitter, or a list of (train, test) pairs of row indices. "
            f"Got {cv!r}. Use cv=5 for five folds."
        )
    if not is_int:
        if n_repeats > 1:
            raise ValueError(
                f"`n_repeats` must be 1 unless `cv` is an int. Got n_repeats={n_repeats} with cv={cv!r}. "
                "Use a splitter that repeats, such as RepeatedKFold or RepeatedStratifiedKFold, and n_repeats=1."
            )
        return cv if is_splitter else None

    n_splits = 5 if cv is None else int(cv)
    if n_splits < 2:
        raise ValueError(_too_few_splits(n_splits, classifier))
    splitter = check_cv(n_splits, y, classifier=classifier)
    if n_repeats > 1:
        repeated = RepeatedStratifiedKFold if isinstance(splitter, StratifiedKFold) else RepeatedKFold
        splitter = repeated(n_splits=n_splits, n_repeats=int(n_repeats), random_state=random_state)
    return splitter


def _too_few_splits(n_splits, classifier):
    estimator = "FusedEnsembleClassifier" if classifier else "FusedEnsembleRegressor"
    return (
        f"`cv` must yield at least 2 splits. Got {n_splits}. "
        f"Use {estimator}(n_members=1) to train one network on all rows."
    )


def _count_rows(x):
    # Sparse matrices have a shape but no len(), lists a len() but no shape.
    return int(x.shape[0]) if hasattr(x, "shape") else len(x)


def _unpack(pair, index):
    try:
        train, test = pair
    except (TypeError, ValueError):
        raise ValueError(
            f"`cv` must yield (train, test) pairs of row indices. Got {pair!r} as split {index}. "
            "Pass a list such as [(train_0, test_0), (train_1, test_1)]."
        ) from None
    return train, test


def _as_rows(rows, n_rows):
    """Copy rows into an int64 array; what is neither indices nor a mask comes back as it is, for `_find_problems`."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n_rows,):
        return np.flatnonzero(rows).astype(np.int64)
    if rows.ndim == 1 and (rows.dtype.kind in "iu" or rows.size == 0):  # an empty list is a float array to numpy
        return np.array(rows, dtype=np.int64)
    return rows


def _find_problems(split, n_rows):
    problems = []
    for name, rows in (("train", split.train), ("test", split.test)):
        if rows.dtype != np.int64 or rows.ndim != 1:
            problems.append(f"{name} of shape {rows.shape} and dtype {rows.dtype}")
        elif rows.size == 0:
            problems.append(f"{name} is empty")
        elif rows.min() < 0 or rows.max() >= n_rows:
            outside = rows[(rows < 0) | (rows >= n_rows)]
            problems.append(f"{name} has row {outside[0]}")
    if problems:
        return problems
    tested = np.bincount(split.test, minlength=n_rows)
    if tested.max() > 1:
        problems.append(f"test has row {tested.argmax()} {tested.max()} times")
    shared = np.flatnonzero((tested > 0) & (np.bincount(split.train, minlength=n_rows) > 0))
    if shared.size:
        more = f" (and {shared.size - 1} more)" if shared.size > 1 else ""
        problems.append(f"row {shared[0]}{more} is in train and in test")
    return problems
