"""Traced programs are kept for the next fit, a bounded number of them, and nothing of Python runs per step."""

import collections

import keras
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
