"""Each member's rows come from its own seed; the rows left over are out-of-bag."""

import numpy as np
import pytest

from kfoldfuse.splitting import draw_rows

SEEDS = [11, 12, 13, 14]


def test_bootstrap_draws_with_replacement_and_leaves_the_rest_out():
    for split in draw_rows(50, 4, bootstrap=True, max_samples=1.0, seeds=SEEDS):
        assert len(split.train) == 50
        assert len(np.unique(split.train)) < 50
        np.testing.assert_array_equal(split.test, np.setdiff1d(np.arange(50), split.train))
        assert split.train.dtype == split.test.dtype == np.int64


def test_bootstrap_leaves_out_the_expected_part_of_rows():
    # A row is missed with probability (1 - 1/n)^n = 0.368; 200 members of 100 rows have a standard error below 0.003.
    splits = draw_rows(100, 200, bootstrap=True, max_samples=1.0, seeds=range(200))
    assert abs(np.mean([len(split.test) for split in splits]) / 100 - 0.366) < 0.01


def test_without_bootstrap_all_rows_come_in_their_order():
    for max_samples in (1.0, 7):
        for split in draw_rows(7, 4, bootstrap=False, max_samples=max_samples, seeds=SEEDS):
            np.testing.assert_array_equal(split.train, np.arange(7))
            assert split.test.shape == (0,)


@pytest.mark.parametrize(("max_samples", "n_drawn"), [(0.5, 5), (0.29, 2), (0.01, 1), (4, 4), (np.int64(4), 4)])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_max_samples_is_a_number_of_rows_or_a_share_of_them(max_samples, n_drawn, bootstrap):
    for split in draw_rows(10, 4, bootstrap=bootstrap, max_samples=max_samples, seeds=SEEDS):
        assert len(split.train) == n_drawn
        assert set(split.train) | set(split.test) == set(range(10))
        assert bootstrap or len(split.train) + len(split.test) == 10


def test_bootstrap_may_draw_more_rows_than_there_are():
    split = draw_rows(3, 1, bootstrap=True, max_samples=8, seeds=[0])[0]
    assert len(split.train) == 8
    assert split.train.max() <= 2


@pytest.mark.parametrize("bootstrap", [True, False])
def test_rows_of_a_member_depend_on_its_own_seed_only(bootstrap):
    together = draw_rows(30, 4, bootstrap=bootstrap, max_samples=0.6, seeds=SEEDS)
    alone = draw_rows(30, 1, bootstrap=bootstrap, max_samples=0.6, seeds=SEEDS[2:3])[0]
    np.testing.assert_array_equal(together[2].train, alone.train)
    assert len({tuple(split.train) for split in together}) == 4


@pytest.mark.parametrize(
    ("bootstrap", "max_samples", "most"),
    [
        (False, 11, "from 1 to the 10 rows of X"),
        (False, 0, "from 1 to the 10 rows of X"),
        (False, 1.5, "from 1 to the 10 rows of X"),
        (True, 0, "of at least 1"),
        (True, 0.0, "of at least 1"),
        (True, float("nan"), "of at least 1"),
        (True, True, "of at least 1"),
        (True, "all", "of at least 1"),
    ],
)
def test_max_samples_out_of_range_is_refused(bootstrap, max_samples, most):
    with pytest.raises(ValueError) as caught:
        draw_rows(10, 1, bootstrap=bootstrap, max_samples=max_samples, seeds=[0])
    assert str(caught.value) == (
        f"`max_samples` must be an int {most}, or a float in (0, 1]. Got {max_samples!r}. "
        "Use max_samples=1.0 to draw as many rows as X has."
    )


@pytest.mark.parametrize("n_members", [0, -2, 1.0, True, None])
def test_n_members_of_another_kind_is_refused(n_members):
    with pytest.raises(ValueError) as caught:
        draw_rows(10, n_members, bootstrap=True, max_samples=1.0, seeds=[])
    assert str(caught.value) == (
        f"`n_members` must be an int of at least 1. Got {n_members!r}. Use n_members=1 to train one network."
    )
