"""Guarantee 2: a member depends on its own seed and data only, not on its company."""

import joblib
import keras
import numpy as np
import pytest

from kfoldfuse.fusion.template import draw_initial_weights, make_template
from kfoldfuse.training import train


def assert_same(one, other, tolerance=1e-12):
    for a, b in zip(one.state.values + one.state.slots, other.state.values + other.state.slots, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    for name in one.history:
        np.testing.assert_allclose(one.history[name], other.history[name], rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("float64")
def test_fold_2_of_5_equals_the_same_split_as_the_only_member(make_jobs):
    jobs = make_jobs(n_folds=5, optimizer=keras.optimizers.Adam(0.05), validation=True)
    together, _ = train(jobs)
    by_itself, _ = train([jobs[2]])
    assert_same(together[2], by_itself[0])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("max_fused", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5])])
def test_how_many_share_a_program_changes_nothing(make_jobs, max_fused, sizes):
    jobs = make_jobs(n_folds=5, optimizer=keras.optimizers.Adam(0.05))
    reference, _ = train(jobs)
    results, report = train(jobs, max_fused=max_fused)
    assert [chunk.n_members for chunk in report] == sizes
    for one, other in zip(reference, results, strict=True):
        assert_same(one, other)


@pytest.mark.usefixtures("float64")
def test_the_order_of_members_and_other_members_change_nothing(make_jobs):
    jobs = make_jobs(n_folds=4)
    forward, _ = train(jobs)
    backward, _ = train(jobs[::-1])
    fewer, _ = train([jobs[1], jobs[3]])
    for member in range(4):
        assert_same(forward[member], backward[3 - member])
    assert_same(forward[1], fewer[0])
    assert_same(forward[3], fewer[1])


@pytest.mark.usefixtures("float64")
def test_programs_at_a_time_change_nothing(make_jobs):
    jobs = make_jobs(n_folds=4)
    one_by_one, _ = train(jobs, max_fused=2)
    two_at_a_time, _ = train(jobs, max_fused=2, n_jobs=2)
    for one, other in zip(one_by_one, two_at_a_time, strict=True):
        for a, b in zip(one.state.values, other.state.values, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_programs_in_other_processes_change_nothing(make_jobs):
    jobs = make_jobs(n_folds=3, validation=True, metrics=["mae"], optimizer=keras.optimizers.Adam(0.05))
    here, _ = train(jobs, max_fused=2)
    with joblib.parallel_config(backend="loky"):
        there, report = train(jobs, max_fused=2, n_jobs=2)
    assert [chunk.n_members for chunk in report] == [2, 1]
    for one, other in zip(here, there, strict=True):
        assert_same(one, other, tolerance=1e-5)


def test_members_draw_different_weights_orders_and_masks(make_jobs):
    jobs = make_jobs(n_folds=2)
    same_rows = [make_jobs.replace(job, rows=jobs[0].rows) for job in jobs]
    first, second = train(same_rows)[0]
    assert not np.allclose(first.state.values[0], second.state.values[0])
    assert first.history["loss"] != second.history["loss"]


def test_initial_weights_depend_on_the_members_seed_only(make_jobs):
    template, again = (make_template(make_jobs.small_net, seed=seed) for seed in (0, 99))
    one, same, other = (draw_initial_weights(t, seed) for t, seed in ((template, 5), (again, 5), (template, 6)))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one[0], other[0])


def test_a_program_of_an_earlier_fit_gives_the_same_bits(make_jobs):
    from kfoldfuse.training import clear_programs

    clear_programs()
    fresh, report = train(make_jobs())
    train(make_jobs(optimizer=keras.optimizers.SGD(0.01)))
    again, second_report = train(make_jobs())
    assert report[0].trace_seconds > 0
    assert second_report[0].trace_seconds == 0
    for one, other in zip(fresh, again, strict=True):
        for a, b in zip(one.state.values, other.state.values, strict=True):
            np.testing.assert_array_equal(a, b)
