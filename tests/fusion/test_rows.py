import numpy as np
import pytest
from keras import ops

from kfoldfuse.fusion import rows

X = np.arange(24.0).reshape(2, 4, 3)


def test_outside_a_scope_every_row_counts():
    assert rows.current() is None
    assert rows.row_mask(4) is None
    np.testing.assert_array_equal(rows.take_valid(X, 1, None), X[1])


def test_scopes_nest_and_end_with_an_error():
    with rows.valid_rows([1, 2]):
        with pytest.raises(KeyError), rows.valid_rows([3, 4]):
            raise KeyError
        assert rows.current() == [1, 2]
        with rows.valid_rows(None):
            assert rows.current() is None
        assert rows.current() == [1, 2]
    assert rows.current() is None


def test_the_mask_has_the_leading_rows():
    with rows.valid_rows(ops.convert_to_tensor([0, 3], "int32")):
        np.testing.assert_array_equal(rows.row_mask(4), [[False] * 4, [True, True, True, False]])


def test_rows_are_taken_and_padded_with_the_last_that_counts():
    n_valid = ops.convert_to_tensor([0, 3], "int32")
    np.testing.assert_array_equal(rows.take_valid(X, 1, n_valid), X[1, :3])
    # A member without rows keeps one, so that means exist; nothing uses what comes of it.
    np.testing.assert_array_equal(rows.take_valid(X, 0, n_valid), X[0, :1])
    np.testing.assert_array_equal(rows.pad_rows(ops.convert_to_tensor(X[1, :3]), 4), X[1][[0, 1, 2, 2]])


def test_members_fold_into_the_batch_and_back():
    folded = rows.merge_members(ops.convert_to_tensor(X))
    np.testing.assert_array_equal(folded, X.reshape(8, 3))
    np.testing.assert_array_equal(rows.split_members(folded, 2), X)


def test_members_without_rows_keep_the_old_value():
    new, old = ops.convert_to_tensor(X), ops.convert_to_tensor(-X)
    assert rows.keep_active(new, old) is new
    with rows.valid_rows(ops.convert_to_tensor([0, 1], "int32")):
        np.testing.assert_array_equal(rows.keep_active(new, old), np.stack([-X[0], X[1]]))
