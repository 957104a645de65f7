"""Traced programs are kept for the next fit, a bounded number of them, and nothing of Python runs per step."""

import collections
import re

import keras
import numpy as np
import pytest

from kfoldfuse.training import clear_programs, engine, predict, program_cache, train


@pytest.fixture
def calls(monkeypatch):
    """How often traced functions were traced and called, and data put on the device."""
    counts = collections.Counter()
    call, data = engine._Traced.__call__, engine.device_data

    def call_counted(traced, *arguments):
        counts["traced"] += not traced.is_traced
        counts["called"] += 1
        return call(traced, *arguments)

    def data_counted(*arrays):
        counts["data"] += 1
        return data(*arrays)

    monkeypatch.setattr(engine._Traced, "__call__", call_counted)
    monkeypatch.setattr(engine, "device_data", data_counted)
    clear_programs()
    yield counts
    clear_programs()


def test_an_epoch_of_all_members_is_one_call_and_data_go_to_the_device_once(make_jobs, calls):
    train(make_jobs(epochs=4, batch_size=2))
    assert calls == {"traced": 1, "called": 4, "data": 1}


def test_validation_adds_one_call_per_epoch(make_jobs, calls):
    train(make_jobs(epochs=3, batch_size=2, validation=True))
    assert calls == {"traced": 2, "called": 6, "data": 1}


def test_another_fit_of_other_rows_and_rates_traces_nothing(make_jobs, calls):
    train(make_jobs(n_rows=40, optimizer=keras.optimizers.Adam(0.1)))
    calls.clear()
    train(make_jobs(n_rows=61, optimizer=keras.optimizers.Adam(0.001), epochs=2))
    assert calls == {"traced": 0, "called": 2, "data": 1}


def test_a_bounded_number_of_programs_is_kept_the_latest_used(make_jobs, calls, monkeypatch):
    monkeypatch.setattr(program_cache, "_MAX_ENTRIES", 2)

    def fit(units):
        build = lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])  # noqa: E731
        calls.clear()
        jobs = make_jobs(build=build, epochs=1)
        (result, *_), _ = train(jobs)
        predict(jobs[0].template, [value[None] for value in result.state.values], jobs[0].x)
        return calls["traced"]

    assert [fit(units) for units in (1, 2, 1, 3, 1, 2)] == [2, 2, 0, 2, 0, 2]
    caches = (program_cache._networks, program_cache._programs, program_cache._predictors)
    assert [len(cache._entries) for cache in caches] == [2, 2, 2]


def test_code_of_the_users_own_that_changes_between_fits_is_never_stale(make_jobs):
    factor = [1.0]

    def loss(y_true, y_pred):
        return factor[0] * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    def first_loss():
        build = lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])  # noqa: E731
        return train(make_jobs(build=build, loss=loss, epochs=1, batch_size=64))[0][0].history["loss"][0]

    once = first_loss()
    factor[0] = 3.0
    assert first_loss() == pytest.approx(3 * once)


def test_members_of_one_fit_share_a_program_with_the_users_code(make_jobs, calls):
    train(make_jobs(loss=lambda y_true, y_pred: keras.ops.square(y_true - y_pred), epochs=1))
    assert calls["traced"] == 1


def test_a_value_that_tensorflow_refuses_is_told_in_words(make_jobs):
    from kfoldfuse.fusion.template import make_template

    def build():
        layers = keras.layers
        return keras.Sequential(
            [keras.Input((2,), dtype="int32"), layers.Embedding(3, 2), layers.Flatten(), layers.Dense(1)]
        )

    template = make_template(build, seed=0)
    jobs = [make_jobs.replace(job, template=template, x=np.full((23, 2), 7)) for job in make_jobs(epochs=1)]
    with pytest.raises(ValueError) as refused:
        train(jobs)
    assert re.fullmatch(
        "X and y must hold values that the network, loss and metrics can take. Got one that TensorFlow refuses: "
        r"indices\[[0-9,]+\] = 7 is not in \[0, 3\)\. Check integers in X against `input_dim` of an Embedding, and "
        "labels against the units of the output.",
        str(refused.value),
    )


def test_a_metric_whose_shapes_do_not_fit_is_refused_before_training(make_jobs, calls):
    build = lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])  # noqa: E731
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with pytest.raises(ValueError, match=r"^`metrics` must take targets of shape \('n_rows',\) and predictions"):
        train(make_jobs(build=build, target="multiclass", loss=loss, metrics=["mse"]))
    assert calls["called"] == 0
