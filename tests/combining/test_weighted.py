"""The weighted mean."""

import numpy as np
import pytest

from kfoldfuse.combining import combine_predictions


@pytest.mark.parametrize("scale", [1.0, 7.0, 1e-320, 1e308])
def test_only_ratios_of_the_weights_matter(scale):
    weights = np.array([1.0, 0.0, 0.5]) * scale
    combined = combine_predictions([[[2.0]], [[100.0]], [[5.0]]], "weighted", weights=weights)
    np.testing.assert_allclose(combined, [[3.0]], rtol=1e-3)  # 1e-320 is subnormal: few digits are left


def test_equal_weights_give_the_mean():
    predictions = np.random.default_rng(0).normal(size=(5, 3, 2))
    combined = combine_predictions(predictions, "weighted", weights=[2] * 5)
    np.testing.assert_allclose(combined, combine_predictions(predictions, "mean"), rtol=1e-14)


def test_member_of_weight_zero_is_left_out_even_if_nan():
    np.testing.assert_array_equal(combine_predictions([[np.nan], [3.0]], "weighted", weights=[0, 1]), [3.0])


@pytest.mark.parametrize(
    "weights", [None, [1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("nan")], [1.0, float("inf")], [[1.0, 1.0]]], ids=repr
)
def test_unusable_weights_are_refused(weights):
    with pytest.raises(ValueError) as caught:
        combine_predictions([[1.0], [2.0]], "weighted", weights=weights)
    assert str(caught.value) == (
        f"`weights` must be 2 finite numbers of at least 0, one a member, and not all 0. Got {weights!r}. "
        "Use combine='mean' to give all members the same weight."
    )
