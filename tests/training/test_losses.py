"""Every loss of Keras per member, over padded batches, against the loss on each member's own rows."""

import keras
import numpy as np
import pytest

from kfoldfuse.fusion import rows
from kfoldfuse.training.losses import FunctionLoss, is_row_wise_loss, member_losses, resolve_loss

N_VALID = np.array([4, 2, 0, 3], dtype="int32")  # of 4 rows; one member has none


def targets(kind, generator):
    one_hot = np.eye(3)[generator.integers(0, 3, (4, 4))]
    probabilities = generator.dirichlet(np.ones(3), (4, 4))
    return {
        "probabilities": (one_hot, probabilities),
        "classes": (generator.integers(0, 3, (4, 4)), probabilities),
        "binary": (generator.integers(0, 2, (4, 4, 3)).astype("float64"), generator.uniform(0.1, 0.9, (4, 4, 3))),
        "numbers": (generator.uniform(0.5, 2, (4, 4, 3)), generator.uniform(0.5, 2, (4, 4, 3))),
        "one number": (generator.normal(size=(4, 4)), generator.normal(size=(4, 4, 1))),
        "sequences": (generator.normal(size=(4, 4, 5, 2)), generator.normal(size=(4, 4, 5, 2))),
        "signals": (generator.integers(1, 3, (4, 4, 2)), generator.normal(size=(4, 4, 6, 3))),
    }[kind]


KINDS = {
    "CategoricalCrossentropy": "probabilities",
    "CategoricalFocalCrossentropy": "probabilities",
    "CategoricalGeneralizedCrossEntropy": "classes",
    "CategoricalHinge": "probabilities",
    "KLDivergence": "probabilities",
    "SparseCategoricalCrossentropy": "classes",
    "Circle": "one label",
    "BinaryCrossentropy": "binary",
    "BinaryFocalCrossentropy": "binary",
    "Dice": "binary",
    "Tversky": "binary",
    "CTC": "signals",
    "CosineSimilarity": "numbers",
    "Hinge": "binary",
    "SquaredHinge": "binary",
    "Huber": "numbers",
    "LogCosh": "numbers",
    "MeanAbsoluteError": "numbers",
    "MeanAbsolutePercentageError": "numbers",
    "MeanSquaredError": "numbers",
    "MeanSquaredLogarithmicError": "numbers",
    "Poisson": "numbers",
}
KINDS["Circle"] = "classes"
CLASSES = {
    name
    for name, value in vars(keras.losses).items()
    if isinstance(value, type) and issubclass(value, keras.losses.Loss) and value is not keras.losses.Loss
}


def assert_each_member_as_alone(loss, y_true, y_pred, weight=None, tolerance=1e-12):
    arrays = [keras.ops.convert_to_tensor(array) for array in (y_true, y_pred)]
    tensor_weight = None if weight is None else keras.ops.convert_to_tensor(weight)
    with rows.valid_rows(keras.ops.convert_to_tensor(N_VALID)):
        fused = keras.ops.convert_to_numpy(member_losses(loss, *arrays, tensor_weight))
    for member, n in enumerate(N_VALID):
        if n:
            own = None if weight is None else weight[member, :n]
            alone = loss(y_true[member, :n], y_pred[member, :n], sample_weight=own)
            np.testing.assert_allclose(fused[member], alone, rtol=tolerance, atol=tolerance)
    assert np.isfinite(fused).all()


def test_every_loss_of_keras_has_a_case():
    assert set(KINDS) == CLASSES


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_loss_of_each_member_is_the_loss_of_its_own_rows(name, weighted):
    generator = np.random.default_rng(0)
    y_true, y_pred = targets(KINDS[name], generator)
    loss = getattr(keras.losses, name)()
    tolerance = 1e-6 if name == "CTC" else 1e-12  # TensorFlow's kernel works in float32
    weight = generator.uniform(0.1, 2, (4, 4)) if weighted else None
    assert_each_member_as_alone(loss, y_true, y_pred, weight, tolerance)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("reduction", ["sum", "mean", "mean_with_sample_weight", "sum_over_batch_size"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_every_reduction_divides_by_what_keras_divides_by(reduction, weighted):
    generator = np.random.default_rng(0)
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    weight = generator.uniform(0.1, 2, (4, 4)) if weighted else None
    assert_each_member_as_alone(loss, *targets("numbers", generator), weight)


@pytest.mark.usefixtures("float64")
def test_targets_of_one_axis_meet_predictions_of_two():
    # The rank trap: (members, batch) against (members, batch, 1) must not average over the batch.
    assert_each_member_as_alone(keras.losses.MeanSquaredError(), *targets("one number", np.random.default_rng(0)))
    assert_each_member_as_alone(resolve_loss("mse"), *targets("one number", np.random.default_rng(0)))


@pytest.mark.usefixtures("float64")
def test_a_value_per_time_step_is_averaged_over_steps_too():
    assert_each_member_as_alone(keras.losses.MeanSquaredError(), *targets("sequences", np.random.default_rng(0)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight", "sum_over_batch_size"])
def test_a_mask_of_the_predictions_leaves_time_steps_out_as_in_keras(reduction):
    from kfoldfuse.fusion._keras_private import set_mask

    generator = np.random.default_rng(0)
    y_true, y_pred = targets("sequences", generator)
    mask = generator.random((4, 4, 5)) < 0.6
    mask[:, :, 0] = True
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    prediction = keras.ops.convert_to_tensor(y_pred)
    set_mask(prediction, keras.ops.convert_to_tensor(mask))
    with rows.valid_rows(keras.ops.convert_to_tensor(N_VALID)):
        fused = keras.ops.convert_to_numpy(member_losses(loss, keras.ops.convert_to_tensor(y_true), prediction))
    for member, n in enumerate(N_VALID):
        if n:
            own = keras.ops.convert_to_tensor(y_pred[member, :n])
            set_mask(own, keras.ops.convert_to_tensor(mask[member, :n]))
            np.testing.assert_allclose(fused[member], loss(y_true[member, :n], own), rtol=1e-12)


def test_only_losses_known_to_be_row_wise_are_folded():
    assert is_row_wise_loss(keras.losses.MeanSquaredError())
    assert is_row_wise_loss(resolve_loss("binary_crossentropy"))
    assert not is_row_wise_loss(keras.losses.Dice())
    assert not is_row_wise_loss(resolve_loss("dice"))
    assert not is_row_wise_loss(resolve_loss(lambda y_true, y_pred: keras.ops.mean(y_true - y_pred)))

    class OwnError(keras.losses.MeanSquaredError):
        def call(self, y_true, y_pred):
            return super().call(y_true, y_pred) - keras.ops.mean(y_pred)

    assert not is_row_wise_loss(OwnError())


def test_a_loss_function_becomes_a_loss_object():
    loss = resolve_loss("mse")
    assert isinstance(loss, FunctionLoss)
    assert isinstance(resolve_loss("MeanSquaredError"), keras.losses.MeanSquaredError)
    own = keras.losses.Huber(delta=2.0)
    assert resolve_loss(own) is own
