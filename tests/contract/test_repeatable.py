"""Guarantee 5: the same seed gives the same bits, and global random state is left as found."""

import random

import keras
import numpy as np
import pytest

from kfoldfuse.training import clear_programs, predict, train


def test_the_same_jobs_give_the_same_bits_even_when_traced_again(make_jobs):
    first, _ = train(make_jobs(optimizer=keras.optimizers.Adam(0.05)))
    clear_programs()
    second, _ = train(make_jobs(optimizer=keras.optimizers.Adam(0.05)))
    for one, other in zip(first, second, strict=True):
        for a, b in zip(one.state.values + one.state.slots, other.state.values + other.state.slots, strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.history == other.history


@pytest.mark.parametrize("touched", [False, True], ids=["fresh", "drawn from"])
def test_global_random_state_is_left_as_found(make_jobs, touched):
    if touched:
        keras.random.normal((1,))
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the legacy state is what users may have seeded
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    jobs = make_jobs()
    results, _ = train(jobs)
    stacked = [np.stack(values) for values in zip(*[result.state.values for result in results], strict=True)]
    predict(jobs[0].template, stacked, jobs[0].x)
    assert random.getstate() == python_state
    for before, after in zip(numpy_state, np.random.get_state(), strict=True):  # noqa: NPY002
        np.testing.assert_array_equal(before, after)


def test_keras_global_seed_goes_on_as_if_nothing_had_been_trained(make_jobs):
    state = random.getstate(), np.random.get_state()  # noqa: NPY002
    keras.utils.set_random_seed(7)
    expected = keras.ops.convert_to_numpy(keras.random.normal((3,)))
    keras.utils.set_random_seed(7)
    train(make_jobs())
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.random.normal((3,))), expected)
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
