"""Which jobs share a program."""

import re

import keras
import pytest

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.fusion.template import make_template
from kfoldfuse.training import plan as planning
from kfoldfuse.training import train
from kfoldfuse.training.plan import plan


def sizes(jobs, max_fused="auto"):
    return [(chunk.group, len(chunk.positions)) for chunk in plan(jobs, max_fused)]


def test_jobs_of_one_kind_are_one_program(make_jobs):
    assert sizes(make_jobs(n_folds=5)) == [(0, 5)]


@pytest.mark.parametrize(("max_fused", "expected"), [(1, [1] * 7), (3, [3, 2, 2]), (4, [4, 3]), (7, [7]), (9, [7])])
def test_chunks_are_of_nearly_equal_size(make_jobs, max_fused, expected):
    assert [n for _, n in sizes(make_jobs(n_folds=7), max_fused)] == expected


def test_separately_built_templates_of_one_architecture_share_a_program(make_jobs):
    assert sizes(make_jobs(n_folds=2) + make_jobs(n_folds=3)) == [(0, 5)]


@pytest.mark.parametrize(
    "other",
    [
        {"build": lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])},
        {"optimizer": keras.optimizers.Adam(0.1)},
        {"optimizer": keras.optimizers.SGD(0.1, momentum=0.5)},
        {"loss": "mae"},
        {"batch_size": 8},
        {"metrics": ["mae"]},
        {"target": "binary", "loss": "binary_crossentropy"},
    ],
    ids=lambda other: "other " + next(iter(other)),
)
def test_what_a_trace_bakes_in_makes_another_group(make_jobs, other):
    assert sizes(make_jobs(n_folds=2) + make_jobs(n_folds=3, **other)) == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    "other",
    [{"optimizer": keras.optimizers.SGD(0.7)}, {"epochs": 9}, {"n_rows": 40}],
    ids=lambda other: next(iter(other)),
)
def test_what_members_may_differ_in_does_not(make_jobs, other):
    assert sizes(make_jobs(n_folds=2) + make_jobs(n_folds=3, **other)) == [(0, 5)]


def test_networks_with_a_normalization_of_their_own_share_a_program(make_jobs):
    def build():
        return keras.Sequential([keras.Input((4,)), keras.layers.Normalization(), keras.layers.Dense(1)])

    assert sizes(make_jobs(n_folds=2, build=build) + make_jobs(n_folds=2, build=build)) == [(0, 4)]


def test_functions_of_one_name_are_not_taken_for_one_another(make_jobs):
    def loss_by(factor):
        def loss(y_true, y_pred):
            return factor * keras.ops.mean(keras.ops.square(y_true - y_pred))

        return loss

    assert sizes(make_jobs(n_folds=2, loss=loss_by(1.0)) + make_jobs(n_folds=2, loss=loss_by(2.0))) == [(0, 2), (1, 2)]


def test_lambda_layers_are_not_taken_for_one_another(make_jobs):
    def net(factor):
        return lambda: keras.Sequential(
            [keras.Input((4,)), keras.layers.Lambda(lambda x: x * factor), keras.layers.Dense(1)]
        )

    assert sizes(make_jobs(n_folds=2, build=net(1.0)) + make_jobs(n_folds=2, build=net(2.0))) == [(0, 2), (1, 2)]


class Scaled:
    """An activation or regulariser whose config, for Keras, is the name of its class."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


class Penalty(Scaled):
    def __call__(self, weights):
        return self.factor * keras.ops.sum(keras.ops.square(weights))


@pytest.mark.parametrize(
    "settings",
    [
        lambda factor: {"activation": Scaled(factor)},
        lambda factor: {"kernel_regularizer": Penalty(factor)},
        lambda factor: {"bias_constraint": Scaled(factor)},
    ],
    ids=["activation", "regularizer", "constraint"],
)
def test_objects_that_can_be_called_are_not_taken_for_one_another(make_jobs, settings):
    def net(factor):
        return lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, **settings(factor))])

    assert sizes(make_jobs(n_folds=2, build=net(0.5)) + make_jobs(n_folds=2, build=net(2.0))) == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (keras.losses.Huber(delta=0.1), keras.losses.Huber(delta=3.0)),
        (keras.losses.CosineSimilarity(axis=-1), keras.losses.CosineSimilarity(axis=1)),
        (keras.losses.Tversky(alpha=0.1), keras.losses.Tversky(alpha=0.9)),
    ],
    ids=["huber", "cosine", "tversky"],
)
def test_losses_differ_by_arguments_that_their_config_lacks(make_jobs, one, other):
    jobs = [*make_jobs(n_folds=2, loss=one), *make_jobs(n_folds=2, loss=other), *make_jobs(n_folds=2, loss=one)]
    assert sizes(jobs) == [(0, 4), (1, 2)]


def test_auto_cuts_by_memory(make_jobs, monkeypatch):
    jobs = make_jobs(n_folds=6)
    one = planning._members_in_memory(jobs[0])
    assert one > 6
    # A quarter of the memory must hold the members: leave room for two of them.
    monkeypatch.setattr(planning, "_memory", lambda: planning._FALLBACK_MEMORY)
    per_member = 0.25 * planning._FALLBACK_MEMORY / planning._members_in_memory(jobs[0])
    monkeypatch.setattr(planning, "_memory", lambda: 4 * 2.5 * per_member)
    assert [n for _, n in sizes(jobs)] == [2, 2, 2]
    monkeypatch.setattr(planning, "_memory", lambda: 0)
    assert [n for _, n in sizes(jobs)] == [1] * 6


def test_wide_and_recurrent_networks_are_estimated_too():
    layers = keras.layers
    recurrent = [keras.Input((None, 3)), layers.Bidirectional(layers.LSTM(8)), layers.Dense(1)]
    template = make_template(lambda: keras.Sequential(recurrent), seed=0)
    assert sum(planning._n_outputs(layer) for layer in planning.all_layers(template.graph)) > 16


def test_a_network_without_weights_is_refused(make_jobs):
    net = keras.Sequential([keras.Input((4,)), keras.layers.Activation("tanh")], name="still")
    message = "`model` must have weights. Got 'still' without any. Add a layer that learns, such as Dense."
    with pytest.raises(UnfusableModelError, match=f"^{re.escape(message)}$"):
        train(make_jobs(build=lambda: net))
