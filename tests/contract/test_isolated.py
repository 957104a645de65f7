"""Guarantee 3: NaN, divergence, an early stop or an exception in one member changes no bit of another."""

import keras
import numpy as np
import pytest
from keras import layers

from kfoldfuse.fusion.template import draw_initial_weights, make_template
from kfoldfuse.training import MemberState, train
from kfoldfuse.training.batches import row_order


def assert_same_bits(results, reference, members):
    for member in members:
        for a, b in zip(
            results[member].state.values + results[member].state.slots,
            reference[member].state.values + reference[member].state.slots,
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
        assert results[member].history == reference[member].history


def with_own_rows(make_jobs, **settings):
    """Three members; rows of x that only member 1 trains on."""
    jobs = make_jobs(n_rows=24, **settings)
    rows = [np.arange(0, 8), np.arange(8, 17), np.arange(17, 24)]
    return [make_jobs.replace(job, rows=own) for job, own in zip(jobs, rows, strict=True)], rows


def poisoned(job, make_jobs, rows, value):
    x = job.x.copy()
    x[rows] = value
    return x


def image_net():
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Reshape((4, 1)),
            layers.Conv1D(3, 2, activation="relu"),
            layers.LayerNormalization(),
            layers.GRU(3),
            layers.Dense(1),
        ]
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30], ids=["nan", "inf", "huge"])
def test_members_are_unchanged_by_poisoned_rows_of_another(make_jobs, value):
    jobs, rows = with_own_rows(make_jobs, optimizer=keras.optimizers.Adam(0.05, global_clipnorm=1.0))
    reference, _ = train(jobs)
    x = poisoned(jobs[0], make_jobs, rows[1], value)
    results, _ = train([make_jobs.replace(job, x=x) for job in jobs])
    assert_same_bits(results, reference, [0, 2])
    assert results[1].failure is not None
    assert results[0].failure is None


def test_members_are_unchanged_by_poisoned_rows_of_another_through_any_lowering(make_jobs):
    jobs, rows = with_own_rows(make_jobs, build=image_net)
    reference, _ = train(jobs)
    x = poisoned(jobs[0], make_jobs, rows[1], np.nan)
    results, _ = train([make_jobs.replace(job, x=x) for job in jobs])
    assert_same_bits(results, reference, [0, 2])
    assert results[1].failure is not None


def test_members_are_unchanged_by_poisoned_weights_of_another(make_jobs):
    jobs = make_jobs()
    reference, _ = train(jobs)
    values = [np.full_like(v, np.nan) if v.dtype.kind == "f" else v for v in draw_initial_weights(jobs[1].template, 1)]
    jobs[1] = make_jobs.replace(jobs[1], start=MemberState(values))
    results, _ = train(jobs)
    assert_same_bits(results, reference, [0, 2])
    assert results[1].failure.epoch == 0


def test_members_are_unchanged_by_a_diverging_one(make_jobs):
    jobs = make_jobs(epochs=4)
    reference, _ = train(jobs)
    wild = make_jobs.replace(jobs[1].settings, optimizer=keras.optimizers.SGD(1e12))
    jobs[1] = make_jobs.replace(jobs[1], settings=wild)
    results, report = train(jobs)
    assert len(report) == 1
    assert_same_bits(results, reference, [0, 2])
    assert results[1].failure is not None


def test_a_failed_member_keeps_its_last_finite_state(make_jobs):
    jobs, rows = with_own_rows(make_jobs, epochs=3)
    x = poisoned(jobs[0], make_jobs, rows[1], np.nan)
    results, _ = train([make_jobs.replace(job, x=x) for job in jobs])
    start = draw_initial_weights(jobs[1].template, jobs[1].seed)
    for kept, first in zip(results[1].state.values, start, strict=True):
        np.testing.assert_array_equal(kept, first)
    assert np.isnan(results[1].history["loss"]).all()
    assert results[1].n_epochs == 1


def test_a_failed_member_stands_still_from_the_step_that_failed(make_jobs):
    jobs = make_jobs(epochs=2)
    order = row_order(jobs[1].rows, jobs[1].seed, 0)
    x = jobs[1].x.copy()
    x[order[7]] = np.nan  # the first row of its second batch of three; the third one would be sound again
    jobs[1] = make_jobs.replace(jobs[1], x=x)
    failed = train(jobs)[0][1]
    first_batch = make_jobs.replace(
        jobs[1], rows=order[:7], settings=make_jobs.replace(jobs[1].settings, epochs=1, shuffle=False)
    )
    assert failed.failure.epoch == 0
    assert failed.state.slots[0] == 1
    for kept, expected in zip(failed.state.values, train([first_batch])[0][0].state.values, strict=True):
        np.testing.assert_allclose(kept, expected, rtol=1e-6, atol=1e-7)


def test_members_are_unchanged_by_an_early_stop_of_another(make_jobs):
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=0, mode="max", min_delta=100)
    jobs = make_jobs(epochs=5)
    reference, _ = train(jobs)
    stopping = make_jobs.replace(jobs[1].settings, callbacks=(stop,))
    results, _ = train([jobs[0], make_jobs.replace(jobs[1], settings=stopping), jobs[2]])
    assert_same_bits(results, reference, [0, 2])
    assert results[1].n_epochs < 5
    short = make_jobs.replace(jobs[1], settings=make_jobs.replace(jobs[1].settings, epochs=results[1].n_epochs))
    assert_same_bits(train([jobs[0], short, jobs[2]])[0], results, [1])


def test_a_row_that_a_member_does_not_train_on_may_be_nan(make_jobs):
    template = make_template(make_jobs.small_net, seed=0)
    jobs = [make_jobs.replace(job, template=template) for job in make_jobs(validation=False)]
    reference, _ = train(jobs)
    held_out = np.setdiff1d(np.arange(23), jobs[0].rows)
    x, y = jobs[0].x.copy(), jobs[0].y.copy()
    x[held_out], y[held_out] = np.nan, np.nan
    results, _ = train([make_jobs.replace(job, x=x, y=y) for job in jobs])
    assert_same_bits(results, reference, [0])
    assert results[1].failure is not None
