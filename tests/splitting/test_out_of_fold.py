"""A row's out-of-fold prediction comes from the members that left it out, and only from them."""

import numpy as np
import pytest

from kfoldfuse.splitting import Split, gather_out_of_fold, resolve_splits

NOTHING = np.array([], dtype=np.int64)


def held_out(*tests):
    return [Split(NOTHING, np.array(test, dtype=np.int64)) for test in tests]


@pytest.mark.parametrize("n_rows", [10, 11, 12, 13])
def test_each_row_of_a_k_fold_comes_from_the_member_that_left_it_out(n_rows):
    splits = resolve_splits(4, n_rows, classifier=False)
    predictions = [100.0 * member + split.test for member, split in enumerate(splits)]
    out_of_fold, counts = gather_out_of_fold(predictions, splits, n_rows)
    for member, split in enumerate(splits):
        np.testing.assert_array_equal(out_of_fold[split.test], 100.0 * member + split.test)
    np.testing.assert_array_equal(counts, np.ones(n_rows))


def test_rows_held_out_several_times_are_averaged_and_never_ones_are_nan():
    predictions = [np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0]])]
    out_of_fold, counts = gather_out_of_fold(predictions, held_out([2, 0], [2]), 4)
    np.testing.assert_array_equal(out_of_fold, [[0.5, 0.5], [np.nan, np.nan], [0.5, 0.5], [np.nan, np.nan]])
    np.testing.assert_array_equal(counts, [1, 0, 2, 0])
    assert counts.dtype == np.int64


def test_failed_member_is_left_out():
    out_of_fold, counts = gather_out_of_fold([None, np.array([4.0, 6.0])], held_out([0, 1], [1, 2]), 3)
    np.testing.assert_array_equal(out_of_fold, [np.nan, 4.0, 6.0])
    np.testing.assert_array_equal(counts, [0, 1, 1])


@pytest.mark.parametrize(
    ("given", "returned"), [(np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)]
)
def test_dtype_of_the_predictions_is_kept_unless_it_cannot_hold_nan(given, returned):
    assert gather_out_of_fold([np.ones((1, 2, 3), given)], held_out([0]), 2)[0].dtype == returned


def test_out_of_fold_predictions_of_failed_members_only_are_refused():
    with pytest.raises(ValueError) as caught:
        gather_out_of_fold([None, None], held_out([0], [1]), 2)
    assert str(caught.value) == (
        "`member_predictions` must hold the predictions of at least one member. Got None for all 2. "
        "Leave a failed member out only if another one is left."
    )


def test_one_prediction_for_many_rows_is_refused():
    with pytest.raises(ValueError) as caught:
        gather_out_of_fold([np.ones((1, 2))], held_out([0, 1, 2]), 3)
    assert str(caught.value) == (
        "`member_predictions` must hold one prediction for each test row. Got an array of shape (1, 2) for 3 test "
        "rows. Predict the rows X[split.test]."
    )
