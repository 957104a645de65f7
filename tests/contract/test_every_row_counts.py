"""Guarantee 4: every row of a member is seen once an epoch, and no other row ever is."""

import keras
import numpy as np
import pytest

from kfoldfuse.training import train
from kfoldfuse.training.batches import make_schedule, padded_batch_size, row_order


class RowLog(keras.layers.Layer):
    """Adds up, in a weight that is not trained, how often it saw each value in training."""

    def __init__(self, n_rows, **kwargs):
        super().__init__(**kwargs)
        self.n_rows = n_rows

    def build(self, shape):
        self.seen = self.add_weight(shape=(self.n_rows,), initializer="zeros", trainable=False, name="seen")
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

    def call(self, x, training=False):
        if training:
            self.seen.assign_add(
                keras.ops.sum(keras.ops.one_hot(keras.ops.cast(x[:, 0], "int32"), self.n_rows), axis=0)
            )
            self.steps.assign_add(1.0)
        return x / self.n_rows

    def get_config(self):
        return {**super().get_config(), "n_rows": self.n_rows}


@pytest.mark.parametrize("n_rows", [12, 13, 14, 15, 16, 17])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 64])
def test_each_member_sees_each_of_its_rows_once_an_epoch_and_no_other(make_jobs, n_rows, batch_size):
    def build():
        return keras.Sequential([keras.Input((1,)), RowLog(17), keras.layers.Dense(1)])

    from kfoldfuse.fusion.template import make_template

    template = make_template(build, seed=0)
    x = np.arange(n_rows, dtype="float32")[:, None]
    jobs = [
        make_jobs.replace(job, template=template, x=x)
        for job in make_jobs(n_rows=n_rows, n_folds=5, batch_size=batch_size, epochs=2)
    ]
    results, _ = train(jobs)
    names = [variable.name for variable in template.model.variables]
    for job, result in zip(jobs, results, strict=True):
        expected = np.zeros(17)
        expected[job.rows] = 2
        np.testing.assert_array_equal(result.state.values[names.index("seen")], expected)
        n_steps = 2 * -(-len(job.rows) // batch_size)
        assert result.state.values[names.index("steps")] == n_steps
        assert result.state.slots[0] == n_steps  # the optimizer's own count


def test_poisoned_held_out_rows_do_not_move_the_member(make_jobs):
    jobs = make_jobs(optimizer=keras.optimizers.Adam(0.05))
    reference, _ = train(jobs)
    for member, job in enumerate(jobs):
        x = job.x.copy()
        x[np.setdiff1d(np.arange(23), job.rows)] = 1e30
        results, _ = train([make_jobs.replace(other, x=x) for other in jobs])
        for a, b in zip(results[member].state.values, reference[member].state.values, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_schedule_holds_each_row_once_and_pads_with_rows_of_the_same_batch():
    orders = [np.array([5, 3, 9, 1, 7]), np.array([2, 4]), np.zeros(0, dtype=int), np.array([8, 6, 0])]
    schedule = make_schedule(orders, batch_size=2, padded_size=3)
    assert schedule.indices.shape == (3, 4, 3)
    np.testing.assert_array_equal(schedule.n_valid, [[2, 2, 0, 2], [2, 0, 0, 1], [1, 0, 0, 0]])
    for member, order in enumerate(orders):
        valid = [schedule.indices[step, member, : schedule.n_valid[step, member]].tolist() for step in range(3)]
        assert [row for rows in valid for row in rows] == order.tolist()
        if len(order):
            assert set(schedule.indices[:, member].ravel()) <= set(order.tolist())
    assert schedule.indices[2, 0].tolist() == [7, 7, 7]


def test_the_order_of_rows_is_new_each_epoch_and_the_members_own():
    rows = np.arange(50)
    orders = [row_order(rows, seed, epoch).tolist() for seed in (1, 2) for epoch in (0, 1)]
    assert all(sorted(order) == rows.tolist() for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert row_order(rows, 1, 0, shuffle=False).tolist() == rows.tolist()


def test_a_short_batch_is_padded_to_a_power_of_two_so_that_programs_are_reused():
    assert [padded_batch_size(32, n) for n in (1, 2, 3, 17, 31, 32, 1000)] == [1, 2, 4, 32, 32, 32, 32]
    assert padded_batch_size(20, 17) == 20
