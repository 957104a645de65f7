"""The geometric mean."""

import numpy as np
import pytest

from kfoldfuse.combining import combine_predictions


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_classes_equal_the_softmax_of_the_mean_logits():
    logits = np.random.default_rng(0).normal(size=(4, 6, 3), scale=5)
    combined = combine_predictions(softmax(logits), "geometric", is_probability="classes")
    np.testing.assert_allclose(combined, softmax(logits.mean(axis=0)), rtol=1e-12)  # log undoes exp to rounding


def test_labels_equal_the_sigmoid_of_the_mean_logits():
    logits = np.random.default_rng(0).normal(size=(4, 6, 3), scale=3)
    combined = combine_predictions(1 / (1 + np.exp(-logits)), "geometric", is_probability="labels")
    np.testing.assert_allclose(combined, 1 / (1 + np.exp(-logits.mean(axis=0))), rtol=1e-12)


def test_class_that_one_member_rules_out_gets_zero_without_a_warning():
    predictions = [[[0.0, 0.5, 0.5]], [[0.8, 0.1, 0.1]]]
    np.testing.assert_allclose(combine_predictions(predictions, "geometric", is_probability="classes"), [[0, 0.5, 0.5]])
    np.testing.assert_array_equal(
        combine_predictions([[[0.0]], [[0.9]]], "geometric", is_probability="labels"), [[0.0]]
    )
    np.testing.assert_array_equal(
        combine_predictions([[[1.0]], [[0.1]]], "geometric", is_probability="labels"), [[1.0]]
    )


def test_where_everything_is_ruled_out_the_mean_stands_in():
    combined = combine_predictions([[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]], "geometric", is_probability="classes")
    np.testing.assert_allclose(combined, [[0.5, 0.5]])
    combined = combine_predictions([[[1.0]], [[0.0]], [[0.0]]], "geometric", is_probability="labels")
    np.testing.assert_allclose(combined, [[1 / 3]])


@pytest.mark.parametrize("n_members", [2, 1000])
def test_tiny_probabilities_do_not_vanish(n_members):
    predictions = np.full((n_members, 1, 4), [1e-300, 3e-300, 1e-310, 0.0])
    combined = combine_predictions(predictions, "geometric", is_probability="classes")
    np.testing.assert_allclose(combined, [[0.25, 0.75, 2.5e-11, 0.0]], rtol=1e-9)


def test_nan_of_a_member_is_not_hidden():
    combined = combine_predictions([[[np.nan, np.nan]], [[0.5, 0.5]]], "geometric", is_probability="classes")
    assert np.isnan(combined).all()
