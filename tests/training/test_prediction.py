"""Predictions of all members."""

import keras
import numpy as np
import pytest

from kfoldfuse.fusion.template import draw_initial_weights, make_template, member_model
from kfoldfuse.training import predict


def members(build, n_members=3):
    template = make_template(build, seed=0)
    values = [draw_initial_weights(template, seed) for seed in range(n_members)]
    return template, [np.stack(each) for each in zip(*values, strict=True)], values


@pytest.mark.parametrize("n_rows", [1, 3, 31, 32, 33, 100])
def test_every_member_predicts_every_row_as_its_own_model(make_jobs, n_rows):
    template, stacked, values = members(make_jobs.small_net)
    x, _ = make_jobs.data(n_rows, "regression")
    outputs = predict(template, stacked, x, batch_size=64)
    assert outputs.shape == (3, n_rows, 1)
    for member in range(3):
        alone = keras.ops.convert_to_numpy(member_model(template, values[member])(x.astype("float32"), training=False))
        np.testing.assert_allclose(outputs[member], alone, rtol=1e-5, atol=1e-6)


def test_members_predict_rows_of_their_own(make_jobs):
    template, stacked, _ = members(make_jobs.small_net)
    x, _ = make_jobs.data(40, "regression")
    rows = [np.array([3, 1]), np.zeros(0, dtype=int), np.arange(40)]
    everything = predict(template, stacked, x)
    for member, output in enumerate(predict(template, stacked, x, rows=rows)):
        assert output.shape == (len(rows[member]), 1)
        np.testing.assert_allclose(output, everything[member, rows[member]], rtol=1e-5, atol=1e-6)


def test_several_inputs_by_name(make_jobs):
    def build():
        inputs = {"left": keras.Input((2,), name="left"), "right": keras.Input((3,), name="right")}
        return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([inputs["right"], inputs["left"]])))

    template, stacked, values = members(build)
    generator = np.random.default_rng(0)
    x = {"right": generator.normal(size=(5, 3)), "left": generator.normal(size=(5, 2))}
    outputs = predict(template, stacked, x)
    alone = member_model(template, values[1])({name: array.astype("float32") for name, array in x.items()})
    np.testing.assert_allclose(outputs[1], alone, rtol=1e-5, atol=1e-6)


def test_no_rows_give_no_predictions(make_jobs):
    template, stacked, _ = members(make_jobs.small_net)
    assert predict(template, stacked, np.zeros((0, 4))).shape == (3, 0, 1)
