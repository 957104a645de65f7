import keras
import numpy as np
import pytest
from keras import tree

from kfoldfuse import fuse, unfuse
from kfoldfuse.fusion import rows
from kfoldfuse.fusion._keras_private import default_dtype, get_mask
from kfoldfuse.fusion.template import assign_values


@pytest.fixture
def float64():
    with default_dtype("float64"):
        yield


@pytest.fixture
def random_models():
    """Models from one function, each with weights and random states of its own."""

    def build_all(build, n_members, seed=0):
        generator = np.random.default_rng(seed)
        models = [build() for _ in range(n_members)]
        for model in models:
            assign_values(model, [_other_value(variable, generator) for variable in model.variables])
        return models

    return build_all


def _other_value(variable, generator):
    if str(variable.dtype).startswith("float"):
        return variable.numpy() + generator.uniform(-0.5, 0.5, size=variable.shape)
    if variable.name == "seed_generator_state":
        return np.array([generator.integers(1, 2**31), 3])
    return variable.numpy()


@pytest.fixture
def check_same_as_alone(float64, random_models):
    """Fuse models of one function and compare outputs, masks, state, penalties with those of the models alone."""

    def check(build, *shapes, n_valid=(2, 4, 0), n_rows=4, inputs=None, lowerings=None, tolerance=1e-9):
        generator = np.random.default_rng(1)
        n_members = len(n_valid)
        if inputs is None:
            inputs = [generator.normal(size=(n_members, n_rows, *shape)) for shape in shapes]
            inputs = inputs[0] if len(inputs) == 1 else inputs
        models = random_models(build, n_members)
        fused = fuse(models)
        if lowerings is not None:
            assert list(fused.fused_network.value.lowerings.values()) == lowerings
        _check_call(fused, models, inputs, [n_rows] * n_members, tolerance=tolerance)
        _check_call(fused, models, inputs, n_valid, tolerance=tolerance, training=True)
        members = unfuse(fused)
        for member, model in zip(members, models, strict=True):
            for variable, own in zip(member.variables, model.variables, strict=True):
                np.testing.assert_allclose(variable.numpy(), own.numpy(), rtol=tolerance, atol=tolerance)
        return fused

    return check


def _check_call(fused, models, inputs, n_valid, *, tolerance, training=False):
    with rows.valid_rows(keras.ops.convert_to_tensor(n_valid, "int32") if training else None):
        outputs = fused(inputs, training=training)
        penalties = [loss.numpy() for loss in fused.losses]
    for member, model in enumerate(models):
        n_rows = n_valid[member]
        if n_rows == 0:
            continue  # its state is compared by the round trip
        alone = model(tree.map_structure(lambda x, m=member, n=n_rows: x[m, :n], inputs), training=training)
        tree.assert_same_structure(outputs, alone)
        for one, other in zip(tree.flatten(outputs), tree.flatten(alone), strict=True):
            np.testing.assert_allclose(one[member, :n_rows], other, rtol=tolerance, atol=tolerance)
            assert (get_mask(one) is None) == (get_mask(other) is None)
            if get_mask(one) is not None:
                np.testing.assert_array_equal(get_mask(one)[member, :n_rows], get_mask(other))
        np.testing.assert_allclose(
            sum(penalty[member] for penalty in penalties), sum(float(loss) for loss in model.losses), rtol=tolerance
        )
