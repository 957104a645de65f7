"""Validation rows come from the member's own training rows and leak nothing."""

import numpy as np
import pytest

from kfoldfuse.splitting import split_validation

ROWS = np.array([3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 93, 23, 84, 62, 64, 33, 83, 27, 95])


@pytest.mark.parametrize(("fraction", "n_validation"), [(0.1, 2), (0.33, 7), (0.001, 1), (0.999, 19)])
def test_both_sides_together_are_the_members_rows(fraction, n_validation):
    fit_rows, validation_rows = split_validation(ROWS, fraction, seed=0)
    assert len(validation_rows) == n_validation
    assert len(fit_rows) == 20 - n_validation
    assert set(fit_rows) | set(validation_rows) == set(ROWS)
    np.testing.assert_array_equal(fit_rows, [row for row in ROWS if row in fit_rows])


def test_rows_are_shuffled_by_the_members_seed_only():
    chosen = {tuple(split_validation(ROWS, 0.2, seed=seed)[1]) for seed in range(10)}
    assert len(chosen) > 5
    np.testing.assert_array_equal(split_validation(ROWS, 0.2, seed=3)[1], split_validation(ROWS, 0.2, seed=3)[1])


def test_every_row_is_set_aside_sometimes():
    seen = np.concatenate([split_validation(ROWS, 0.2, seed=seed)[1] for seed in range(100)])
    counts = np.unique(seen, return_counts=True)[1]
    # 100 draws at 0.2: mean 20, standard deviation 4; below 4 or above 36 has a probability of 1e-4 a row.
    assert len(counts) == 20
    assert counts.min() >= 4
    assert counts.max() <= 36


def test_copies_of_a_row_stay_on_one_side():
    rows = np.random.default_rng(0).integers(30, size=60)
    strata = np.arange(30) % 3
    for seed in range(20):
        for keywords in ({}, {"strata": strata}, {"groups": np.arange(30) // 4}):
            fit_rows, validation_rows = split_validation(rows, 0.2, seed, **keywords)
            assert set(fit_rows).isdisjoint(validation_rows)
            np.testing.assert_array_equal(np.sort(np.concatenate([fit_rows, validation_rows])), np.sort(rows))


def test_strata_are_divided_in_proportion():
    strata = np.repeat([0, 1, 2], [60, 30, 10])
    for seed in range(10):
        validation_rows = split_validation(np.arange(100), 0.2, seed, strata=strata)[1]
        np.testing.assert_array_equal(np.bincount(strata[validation_rows], minlength=3), [12, 6, 2])
        validation_rows = split_validation(np.arange(100), 0.15, seed, strata=strata)[1]
        counts = np.bincount(strata[validation_rows], minlength=3)
        assert counts[0] == 9
        assert sorted(counts[1:]) in ([1, 5], [2, 4])  # 4.5 and 1.5: either gets the odd row


def test_strata_are_looked_up_by_row_not_by_position():
    rows = np.arange(50, 100)
    strata = np.concatenate([np.zeros(50, dtype=int), np.repeat([5, 6], 25)])
    validation_rows = split_validation(rows, 0.2, seed=1, strata=strata)[1]
    np.testing.assert_array_equal(np.bincount(strata[validation_rows])[5:], [5, 5])


def test_only_row_of_a_class_is_trained_on():
    strata = np.array([0] * 9 + [1])
    for seed in range(30):
        assert 9 in split_validation(np.arange(10), 0.5, seed, strata=strata)[0]


def test_every_class_keeps_a_row_to_train_on():
    strata = np.repeat([0, 1, 2, 3], [10, 2, 2, 2])
    for seed in range(10):
        fit_rows, validation_rows = split_validation(np.arange(16), 0.7, seed, strata=strata)
        assert set(strata[fit_rows]) == {0, 1, 2, 3}
        assert len(validation_rows) == 11


def test_strata_are_ignored_where_nearly_every_class_has_one_row():
    fit_rows, validation_rows = split_validation(np.arange(10), 0.3, seed=0, strata=np.arange(10))
    assert len(validation_rows) == 3
    assert len(fit_rows) == 7


def test_groups_stay_whole_and_their_rows_come_near_the_fraction():
    groups = np.repeat(np.arange(20), np.arange(1, 21))
    for seed in range(10):
        fit_rows, validation_rows = split_validation(np.arange(210), 0.3, seed, groups=groups)
        assert set(groups[fit_rows]).isdisjoint(groups[validation_rows])
        assert abs(len(validation_rows) - 63) <= 10  # within half of the largest group


def test_a_group_is_left_to_train_on_however_large_the_fraction():
    groups = np.array([0, 0, 0, 1, 1, 1])
    fit_rows, validation_rows = split_validation(np.arange(6), 0.99, seed=0, groups=groups)
    assert len(fit_rows) == len(validation_rows) == 3


@pytest.mark.parametrize(
    ("rows", "groups", "kind", "got"),
    [
        ([4], None, "row", "1 distinct row"),
        ([4, 4, 4], None, "row", "1 distinct row"),
        ([], None, "row", "0 distinct rows"),
        ([0, 1, 2], [5, 5, 5], "group", "1 distinct group"),
    ],
)
def test_too_few_rows_or_groups_for_two_sides_are_refused(rows, groups, kind, got):
    with pytest.raises(ValueError) as caught:
        split_validation(np.array(rows, dtype=np.int64), 0.5, seed=0, groups=groups)
    assert str(caught.value) == (
        f"`validation` must leave a member at least one {kind} to train on and one to look at. "
        f"Got {got} in a member's training rows. "
        f"Pass more {kind}s, or use validation=None and early_stopping=False."
    )


@pytest.mark.parametrize("fraction", [0.0, 1.0, 1, -0.1, True, "0.1", float("nan")], ids=repr)
def test_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(ValueError) as caught:
        split_validation(ROWS, fraction, seed=0)
    assert str(caught.value) == (
        "`validation` must be a float between 0 and 1, the part of a member's training rows to look at. "
        f"Got {fraction!r}. Use validation=0.1 for a tenth, or validation=None for no validation rows."
    )
