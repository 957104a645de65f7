"""Whatever `cv` is becomes checked rows; what would leak is refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    LeavePGroupsOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)

from kfoldfuse.splitting import resolve_splits

X = np.arange(24.0).reshape(12, 2)
LABELS = np.array(["a", "b", "c"] * 4)
NUMBERS = np.linspace(0.0, 1.1, 12)
GROUPS = np.repeat([3, 1, 2, 7], 3)


def assert_same_rows(splits, pairs):
    pairs = list(pairs)
    assert len(splits) == len(pairs)
    for split, (train, test) in zip(splits, pairs, strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)
        assert split.train.dtype == split.test.dtype == np.int64


SPLITTERS = [
    GroupKFold(3),
    KFold(3),
    KFold(5, shuffle=True, random_state=1),
    LeaveOneGroupOut(),
    LeaveOneOut(),
    LeavePGroupsOut(2),
    LeavePOut(2),
    PredefinedSplit(np.repeat([0, 1, -1], 4)),
    RepeatedKFold(n_splits=3, n_repeats=2, random_state=1),
    RepeatedStratifiedKFold(n_splits=2, n_repeats=3, random_state=1),
    ShuffleSplit(4, test_size=0.25, random_state=1),
    StratifiedGroupKFold(2),
    StratifiedKFold(4),
    StratifiedShuffleSplit(3, test_size=0.25, random_state=1),
    TimeSeriesSplit(3),
]


@pytest.mark.parametrize("splitter", SPLITTERS, ids=lambda splitter: type(splitter).__name__)
def test_every_splitter_of_scikit_learn_gives_its_own_rows(splitter):
    needs_groups = "Group" in type(splitter).__name__
    groups = GROUPS if needs_groups else None
    labels = np.tile([0, 1], 6)
    splits = resolve_splits(splitter, X, labels, groups, classifier=True)
    assert_same_rows(splits, splitter.split(X, labels, groups) if needs_groups else splitter.split(X, labels))


@pytest.mark.parametrize("cv", [None, 3, np.int64(3)])
def test_int_is_stratified_for_a_classifier_and_plain_otherwise(cv):
    n_splits = 5 if cv is None else 3
    labels = np.tile([0, 1], 6)
    assert_same_rows(resolve_splits(cv, X, labels, classifier=True), StratifiedKFold(n_splits).split(X, labels))
    assert_same_rows(resolve_splits(cv, X, NUMBERS, classifier=False), KFold(n_splits).split(X))
    assert_same_rows(resolve_splits(cv, X, np.eye(2)[labels], classifier=True), KFold(n_splits).split(X))


def test_rows_of_x_may_be_given_as_their_number_or_as_a_frame():
    expected = KFold(3).split(X)
    assert_same_rows(resolve_splits(3, 12, NUMBERS, classifier=False), expected)
    frame = pd.DataFrame(X, index=np.arange(12)[::-1] * 10)
    assert_same_rows(resolve_splits(3, frame, pd.Series(NUMBERS), classifier=False), KFold(3).split(X))


def test_repeats_of_an_int_are_those_of_the_repeated_splitters():
    splits = resolve_splits(3, X, LABELS, classifier=True, n_repeats=2, random_state=4)
    assert_same_rows(splits, RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=4).split(X, LABELS))
    assert [split.repeat for split in splits] == [0, 0, 0, 1, 1, 1]
    splits = resolve_splits(2, X, NUMBERS, classifier=False, n_repeats=3, random_state=4)
    assert_same_rows(splits, RepeatedKFold(n_splits=2, n_repeats=3, random_state=4).split(X))
    assert [split.repeat for split in splits] == [0, 0, 1, 1, 2, 2]


def test_repeats_of_a_repeated_splitter_are_told_apart():
    splits = resolve_splits(RepeatedKFold(n_splits=2, n_repeats=2, random_state=0), X, classifier=False)
    assert [split.repeat for split in splits] == [0, 0, 1, 1]
    assert [split.repeat for split in resolve_splits(3, X, classifier=False)] == [0, 0, 0]


def test_lists_may_hold_indices_masks_or_come_from_a_generator():
    mask = np.arange(12) < 4
    pairs = [(~mask, mask), ([0, 1, 2, 3], range(4, 12)), ((~mask).tolist(), mask.tolist())]
    expected = [(np.arange(4, 12), np.arange(4)), (np.arange(4), np.arange(4, 12)), (np.arange(4, 12), np.arange(4))]
    assert_same_rows(resolve_splits(pairs, X, classifier=False), expected)
    assert_same_rows(resolve_splits(iter(pairs), X, classifier=False), expected)


def test_rows_are_copies_of_the_callers_arrays():
    train, test = np.arange(6, dtype=np.int64), np.arange(6, 12, dtype=np.int64)
    splits = resolve_splits([(train, test), (test, train)], X, classifier=False)
    splits[0].train[:] = -1
    np.testing.assert_array_equal(train, np.arange(6))


def test_further_keywords_reach_the_splitter():
    class ByDay:
        def get_n_splits(self, X=None, y=None, groups=None):
            return 2

        def split(self, X, y=None, *, day):
            return [(np.flatnonzero(day != value), np.flatnonzero(day == value)) for value in np.unique(day)]

    day = np.tile([0, 1], 6)
    splits = resolve_splits(ByDay(), X, classifier=False, day=day)
    np.testing.assert_array_equal(splits[1].test, np.flatnonzero(day == 1))


def test_training_rows_may_repeat_and_rows_may_be_held_out_several_times_or_never():
    splits = resolve_splits([([0, 0, 1], [2, 3]), ([0, 1], [2, 3])], X, classifier=False)
    np.testing.assert_array_equal(splits[0].train, [0, 0, 1])


RULE = (
    "`cv` must yield train and test rows that are integers or boolean masks, not empty, among the 12 rows of X, "
    "and without a row in common. Got "
)
GOOD = ([0, 1], [2, 3])
REFUSED_PAIRS = {
    "row in both": ([GOOD, ([0, 5, 1], [5])], "split 1: row 5 is in train and in test"),
    "rows in both": ([GOOD, ([0, 5, 1], [1, 5])], "split 1: row 1 (and 1 more) is in train and in test"),
    "no training row": ([([], [2]), GOOD], "split 0: train is empty"),
    "no test row": ([GOOD, ([2], np.zeros(12, dtype=bool))], "split 1: test is empty"),
    "row outside": ([GOOD, ([0, 12], [2])], "split 1: train has row 12"),
    "negative row": ([GOOD, ([0], [2, -1])], "split 1: test has row -1"),
    "float rows": ([([0.0, 1.0], [2]), GOOD], "split 0: train of shape (2,) and dtype float64"),
    "short mask": ([([True, False], [2]), GOOD], "split 0: train of shape (2,) and dtype bool"),
    "two axes": ([([[0, 1]], [2]), GOOD], "split 0: train of shape (1, 2) and dtype int64"),
    "test row twice": ([GOOD, ([0], [2, 2])], "split 1: test has row 2 2 times"),
    "all are named": ([([], [99]), ([1], [1])], "split 0: train is empty; split 0: test has row 99; split 1: row 1 is "
                      "in train and in test"),
    "five are shown": ([([1], [1])] * 7, "; ".join(f"split {i}: row 1 is in train and in test" for i in range(5))
                       + "; and 2 more"),
}  # fmt: skip


@pytest.mark.parametrize(("pairs", "problem"), REFUSED_PAIRS.values(), ids=REFUSED_PAIRS)
def test_splits_that_would_leak_or_break_are_refused(pairs, problem):
    with pytest.raises(ValueError) as caught:
        resolve_splits(pairs, X, classifier=False)
    assert str(caught.value) == f"{RULE}{problem}. Correct these splits."


KIND = (
    "`cv` must be an int, a scikit-learn splitter, or a list of (train, test) pairs of row indices. Got {}. "
    "Use cv=5 for five folds."
)


@pytest.mark.parametrize("cv", ["five", 2.0, True, object], ids=repr)
def test_cv_of_another_kind_is_refused(cv):
    with pytest.raises(ValueError) as caught:
        resolve_splits(cv, X, classifier=False)
    assert str(caught.value) == KIND.format(repr(cv))


@pytest.mark.parametrize("cv", [1, [GOOD], ShuffleSplit(1)], ids=["int", "list", "splitter"])
@pytest.mark.parametrize("classifier", [True, False])
def test_a_single_split_is_refused(cv, classifier):
    with pytest.raises(ValueError) as caught:
        resolve_splits(cv, X, np.tile([0, 1], 6), classifier=classifier)
    estimator = "FusedEnsembleClassifier" if classifier else "FusedEnsembleRegressor"
    assert str(caught.value) == (
        f"`cv` must yield at least 2 splits. Got 1. Use {estimator}(n_members=1) to train one network on all rows."
    )


def test_a_generator_that_has_been_used_up_is_named():
    cv = iter([(np.arange(4), np.arange(4, 6)), (np.arange(2, 6), np.arange(2))])
    resolve_splits(cv, 6, classifier=False)
    with pytest.raises(ValueError) as caught:
        resolve_splits(cv, 6, classifier=False)
    assert str(caught.value) == (
        "`cv` must yield at least 2 splits. Got a generator that has been used up, as by an earlier fit. Use "
        "cv=list(generator) to fit more than once."
    )


@pytest.mark.parametrize("pair", [7, [0, 1, 2]], ids=repr)
def test_what_is_not_a_pair_is_refused(pair):
    with pytest.raises(ValueError) as caught:
        resolve_splits([GOOD, pair], X, classifier=False)
    assert str(caught.value) == (
        f"`cv` must yield (train, test) pairs of row indices. Got {pair!r} as split 1. "
        "Pass a list such as [(train_0, test_0), (train_1, test_1)]."
    )


@pytest.mark.parametrize("n_repeats", [0, -1, 1.5, True, None])
def test_n_repeats_of_another_kind_is_refused(n_repeats):
    with pytest.raises(ValueError) as caught:
        resolve_splits(3, X, classifier=False, n_repeats=n_repeats)
    assert str(caught.value) == (
        f"`n_repeats` must be an int of at least 1. Got {n_repeats!r}. Use n_repeats=1 for one pass over the folds."
    )


def test_n_repeats_with_a_splitter_is_refused():
    with pytest.raises(ValueError) as caught:
        resolve_splits(LeaveOneOut(), X, classifier=False, n_repeats=2)
    assert str(caught.value) == (
        "`n_repeats` must be 1 unless `cv` is an int. Got n_repeats=2 with cv=LeaveOneOut(). "
        "Use a splitter that repeats, such as RepeatedKFold or RepeatedStratifiedKFold, and n_repeats=1."
    )


def test_more_folds_than_rows_are_refused_by_scikit_learn():
    with pytest.raises(
        ValueError,
        match=r"^Cannot have number of splits n_splits=13 greater than the number of samples: n_samples=12\.$",
    ):
        resolve_splits(13, X, classifier=False)


def test_missing_groups_are_refused_by_scikit_learn():
    with pytest.raises(ValueError, match=r"^The 'groups' parameter should not be None\.$"):
        resolve_splits(LeaveOneGroupOut(), X, classifier=False)
