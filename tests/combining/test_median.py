"""The median."""

import numpy as np

from kfoldfuse.combining import combine_predictions


def test_one_wild_member_does_not_move_the_median():
    np.testing.assert_array_equal(combine_predictions([[1.0], [2.0], [1e9]], "median"), [2.0])


def test_class_probabilities_are_divided_by_their_sum():
    predictions = [[[0.6, 0.4, 0.0]], [[0.6, 0.0, 0.4]], [[0.1, 0.2, 0.7]]]
    combined = combine_predictions(predictions, "median", is_probability="classes")
    np.testing.assert_allclose(combined, [[0.6 / 1.2, 0.2 / 1.2, 0.4 / 1.2]], rtol=1e-15)


def test_labels_are_not_divided_by_their_sum():
    predictions = [[[0.9, 0.8]], [[0.9, 0.7]], [[0.1, 0.1]]]
    np.testing.assert_array_equal(combine_predictions(predictions, "median", is_probability="labels"), [[0.9, 0.7]])


def test_members_certain_of_different_classes_give_their_mean():
    combined = combine_predictions(np.eye(3)[:, np.newaxis], "median", is_probability="classes")
    np.testing.assert_allclose(combined, np.full((1, 3), 1 / 3), rtol=1e-15)
