"""The arithmetic mean."""

import numpy as np

from kfoldfuse.combining import combine_predictions


def test_mean_is_the_sum_over_members_divided_by_their_number():
    predictions = np.array([[[1.0, 2.0]], [[3.0, 8.0]], [[5.0, 5.0]]])
    np.testing.assert_array_equal(combine_predictions(predictions, "mean"), [[3.0, 5.0]])


def test_integers_are_averaged_as_floats():
    np.testing.assert_array_equal(combine_predictions([[1, 2], [2, 2]], "mean"), [1.5, 2.0])


def test_float32_is_summed_in_float64():
    predictions = np.array([[1e8], [1.0], [-1e8]], dtype=np.float32)  # float32: 1e8 + 1 - 1e8 = 0
    assert combine_predictions(predictions, "mean")[0] == np.float32(1 / 3)
