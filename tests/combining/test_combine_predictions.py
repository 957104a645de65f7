"""What holds for every combiner: the table, the refusals, shapes and dtypes."""

import numpy as np
import pytest

from kfoldfuse.combining import COMBINERS, check_combine, combine_predictions

RNG = np.random.default_rng(0)
CLASSES = RNG.dirichlet(np.ones(3), size=(5, 7))
LABELS = RNG.uniform(size=(5, 7, 4))
NUMBERS = RNG.normal(size=(5, 7, 2))
FITTING = [
    *[(name, CLASSES, "classes") for name in COMBINERS],
    *[(name, LABELS, "labels") for name in COMBINERS],
    *[(name, NUMBERS, False) for name in COMBINERS if name not in ("geometric", "vote")],
]


def weights_for(name, n_members):
    return np.arange(1, n_members + 1) if name == "weighted" else None


@pytest.mark.parametrize(("name", "predictions", "kind"), FITTING)
def test_members_that_agree_are_left_unchanged(name, predictions, kind):
    same = np.repeat(predictions[:1], 4, axis=0)
    expected = predictions[0]
    if name == "vote":
        expected = np.eye(3)[expected.argmax(-1)] if kind == "classes" else (expected > 0.5)
    combined = combine_predictions(same, name, weights=weights_for(name, 4), is_probability=kind)
    np.testing.assert_allclose(combined, expected, rtol=1e-14)  # rounding of a mean and a normalisation


@pytest.mark.parametrize(("name", "predictions", "kind"), FITTING)
def test_order_of_the_members_does_not_matter(name, predictions, kind):
    weights = weights_for(name, 5)
    order = [3, 1, 4, 0, 2]
    reordered = None if weights is None else weights[order]
    combined = combine_predictions(predictions, name, weights=weights, is_probability=kind)
    again = combine_predictions(predictions[order], name, weights=reordered, is_probability=kind)
    np.testing.assert_allclose(again, combined, rtol=1e-13)  # sums in another order


@pytest.mark.parametrize(("name", "predictions", "kind"), FITTING)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_trailing_shape_are_kept_and_the_input_untouched(name, predictions, kind, dtype):
    predictions = predictions.astype(dtype)
    before = predictions.copy()
    combined = combine_predictions(predictions, name, weights=weights_for(name, 5), is_probability=kind)
    assert combined.dtype == dtype
    assert combined.shape == predictions.shape[1:]
    np.testing.assert_array_equal(predictions, before)


@pytest.mark.parametrize("name", COMBINERS)
def test_combined_class_probabilities_sum_to_one(name):
    combined = combine_predictions(CLASSES, name, weights=weights_for(name, 5), is_probability="classes")
    np.testing.assert_allclose(combined.sum(axis=-1), 1.0, rtol=1e-14)
    assert combined.min() >= 0.0


@pytest.mark.parametrize("name", ["mean", "median", "weighted"])
def test_regression_of_any_rank_is_combined_number_by_number(name):
    numbers = RNG.normal(size=(3, 4, 5, 2))
    weights = weights_for(name, 3)
    combined = combine_predictions(numbers, name, weights=weights)
    flat = combine_predictions(numbers.reshape(3, -1), name, weights=weights)
    np.testing.assert_allclose(combined.ravel(), flat, rtol=1e-14)
    assert combine_predictions(numbers[:, :, 0, 0], name, weights=weights).shape == (4,)


def test_function_gets_the_members_and_its_result_is_returned():
    result = combine_predictions(NUMBERS, lambda predictions: predictions.max(axis=0))
    np.testing.assert_array_equal(result, NUMBERS.max(axis=0))


def test_function_that_returns_another_shape_is_refused():
    with pytest.raises(ValueError) as caught:
        combine_predictions(NUMBERS, lambda predictions: predictions.max(axis=1))
    assert str(caught.value) == (
        "`combine` must return an array of shape (7, 2) for predictions of shape (5, 7, 2). Got the shape (5, 2). "
        "Reduce axis 0, the member axis, and keep the others."
    )


@pytest.mark.parametrize(
    ("method", "advice"),
    [("medain", "Did you mean 'median'?"), ("xyz", "Use 'mean' if in doubt."), (3, "Use 'mean' if in doubt.")],
)
def test_unknown_combiner_is_refused_with_the_valid_ones(method, advice):
    expected = (
        "`combine` must be one of 'mean', 'median', 'geometric', 'vote', 'weighted', or a function. "
        f"Got {method!r}. {advice}"
    )
    with pytest.raises(ValueError) as caught:
        combine_predictions(NUMBERS, method)
    assert str(caught.value) == expected
    with pytest.raises(ValueError) as caught:
        check_combine(method)
    assert str(caught.value) == expected


@pytest.mark.parametrize("method", ["geometric", "vote"])
def test_regression_is_refused_where_probabilities_are_needed(method):
    with pytest.raises(ValueError) as caught:
        combine_predictions(NUMBERS, method)
    assert str(caught.value) == (
        f"`combine` must be a way to combine numbers for regression. Got {method!r}, which needs probabilities. "
        "Use 'mean', 'median' or 'weighted'."
    )
    check_combine(method, is_probability="labels")


def test_unknown_kind_of_probability_is_refused():
    with pytest.raises(ValueError) as caught:
        combine_predictions(CLASSES, "mean", is_probability=True)
    assert str(caught.value) == (
        "`is_probability` must be False, 'classes' or 'labels'. Got True. "
        "Use 'classes' if the last axis sums to 1, 'labels' for multilabel, False for regression."
    )


@pytest.mark.parametrize("shape", [(0, 3, 2), (4,)])
def test_predictions_without_members_or_rows_are_refused(shape):
    with pytest.raises(ValueError) as caught:
        combine_predictions(np.zeros(shape), "mean")
    assert str(caught.value) == (
        "`predictions` must have the shape (n_members, n_samples, ...) with at least one member. "
        f"Got the shape {shape}. Stack the members' predictions along axis 0."
    )


def test_weights_that_nothing_asks_for_are_refused():
    with pytest.raises(ValueError) as caught:
        combine_predictions(NUMBERS, "mean", weights=np.ones(5))
    assert str(caught.value) == (
        "`weights` must be None unless `combine` is 'weighted'. Got weights with combine='mean'. "
        "Use combine='weighted', or leave the weights out."
    )
