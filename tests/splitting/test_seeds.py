"""Seeds depend on the entropy, the index and the purpose, and on nothing else."""

import re

import numpy as np
import pytest

from kfoldfuse.splitting import draw_entropy, member_generator, member_seed


def test_same_int_gives_the_same_entropy_and_another_int_another():
    assert draw_entropy(0) == draw_entropy(0)
    assert draw_entropy(0) != draw_entropy(1)


def test_same_seed_gives_the_same_numbers_in_every_release():
    # Written down: a change here changes every user's results.
    entropy = draw_entropy(0)
    assert entropy == 900450186894289455
    seeds = [304653051, 1496424735, 84859883]
    assert [member_seed(entropy, index) for index in range(3)] == seeds
    assert member_generator(seeds[0], "shuffle", 1).integers(1000, size=3).tolist() == [242, 513, 747]


def test_random_state_is_advanced_by_a_draw():
    random_state = np.random.RandomState(0)
    first = draw_entropy(random_state)
    assert first == draw_entropy(0)
    assert draw_entropy(random_state) != first


@pytest.mark.parametrize("random_state", [None, 0])
def test_global_generator_is_left_as_found(random_state):
    before = np.random.get_state()  # noqa: NPY002 -- the global generator is what is looked at
    assert draw_entropy(random_state) >= 0
    after = np.random.get_state()  # noqa: NPY002
    assert before[2:] == after[2:]
    np.testing.assert_array_equal(before[1], after[1])


def test_none_gives_fresh_entropy_each_time():
    assert draw_entropy(None) != draw_entropy(None)


def test_unusable_random_state_is_refused():
    with pytest.raises(
        ValueError, match=re.escape("'seven' cannot be used to seed a numpy.random.RandomState instance")
    ):
        draw_entropy("seven")


def test_members_of_one_fit_have_seeds_of_their_own_that_fit_32_bits():
    seeds = [member_seed(5, index) for index in range(200)]
    assert len(set(seeds)) == 200
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert set(seeds).isdisjoint(member_seed(6, index) for index in range(200))


def test_streams_of_different_purposes_and_epochs_differ():
    keys = [(), ("shuffle",), ("shuffle", 0), ("shuffle", 1), ("rows",), ("rows", 0), (0,), (1,), (0, 1), (1, 0)]
    draws = {tuple(member_generator(3, *key).integers(2**31, size=4)) for key in keys}
    assert len(draws) == len(keys)


def test_drawing_from_one_stream_does_not_move_another():
    expected = member_generator(3, "shuffle", 1).permutation(10)
    member_generator(3, "shuffle", 0).permutation(1000)
    np.testing.assert_array_equal(member_generator(3, "shuffle", 1).permutation(10), expected)
