import keras
import numpy as np
import pytest
from keras import tree

from kfoldfuse import fuse, unfuse
from kfoldfuse.fusion import rows
from kfoldfuse.fusion._keras_private import default_dtype, get_mask


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
            for variable in model.variables:
                if str(variable.dtype).startswith("float"):
                    variable.assign(variable.numpy() + generator.uniform(-0.5, 0.5, size=variable.shape))
                elif variable.name == "seed_generator_state":
                    variable.assign([generator.integers(1, 2**31), 3])
        return models

    return build_all


@pytest.fixture
def check_same_as_alone(float64, random_models):
    """Fuse models of one function and compare outputs, masks, state, penalties with those of the models alone."""

    def check(build, *shapes, n_valid=(2, 4, 0), n_rows=4, inputs=None, lowerings=None):
        generator = np.random.default_rng(1)
        n_members = len(n_valid)
        if inputs is None:
            inputs = [generator.normal(size=(n_members, n_rows, *shape)) for shape in shapes]
            inputs = inputs[0] if len(inputs) == 1 else inputs
        models = random_models(build, n_members)
        fused = fuse(models)
        if lowerings is not None:
            assert list(fused.fused_network.value.lowerings.values()) == lowerings
        _check_call(fused, models, inputs, [n_rows] * n_members, training=False, declare=False)
        _check_call(fused, models, inputs, n_valid, training=True, declare=True)
        members = unfuse(fused)
        for member, model in zip(members, models, strict=True):
            for variable, own in zip(member.variables, model.variables, strict=True):
                np.testing.assert_allclose(variable.numpy(), own.numpy(), rtol=1e-9, atol=1e-9)
        return fused

    return check


def _check_call(fused, models, inputs, n_valid, *, training, declare):
    with rows.valid_rows(keras.ops.convert_to_tensor(n_valid, "int32") if declare else None):
        outputs = fused(inputs, training=training)
        penalties = [loss.numpy() for loss in fused.losses]
    for member, model in enumerate(models):
        n_rows = n_valid[member]
        if n_rows == 0:
            continue  # its state is compared by the round trip
        alone = model(tree.map_structure(lambda x, m=member, n=n_rows: x[m, :n], inputs), training=training)
        tree.assert_same_structure(outputs, alone)
        for one, other in zip(tree.flatten(outputs), tree.flatten(alone), strict=True):
            np.testing.assert_allclose(one[member, :n_rows], other, rtol=1e-9, atol=1e-9)
            assert (get_mask(one) is None) == (get_mask(other) is None)
            if get_mask(one) is not None:
                np.testing.assert_array_equal(get_mask(one)[member, :n_rows], get_mask(other))
        np.testing.assert_allclose(
            sum(penalty[member] for penalty in penalties), sum(float(loss) for loss in model.losses), rtol=1e-9
        )
