"""Guarantee 6, as far as training goes: Ctrl-C keeps the epochs done; what the caller owns is not modified."""

import copy

import keras
import numpy as np
import pytest

from kfoldfuse.training import train


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def test_ctrl_c_keeps_the_epochs_done(make_jobs):
    interrupted, _ = train(make_jobs(epochs=5, callbacks=(Interrupt(),)))
    two_epochs, _ = train(make_jobs(epochs=2))
    for one, other in zip(interrupted, two_epochs, strict=True):
        assert one.interrupted
        assert one.n_epochs == 2
        assert one.history == other.history
        for a, b in zip(one.state.values, other.state.values, strict=True):
            np.testing.assert_array_equal(a, b)


class InterruptAtTheEnd(keras.callbacks.Callback):
    def __init__(self, member):
        super().__init__()
        self.member = member

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and self.member == 1:
            raise KeyboardInterrupt


def test_ctrl_c_amid_the_callbacks_of_an_epoch_goes_back_to_the_last_whole_one(make_jobs):
    jobs = [
        make_jobs.replace(job, settings=make_jobs.replace(job.settings, callbacks=(InterruptAtTheEnd(member),)))
        for member, job in enumerate(make_jobs(epochs=3))
    ]
    interrupted, _ = train(jobs)
    one_epoch, _ = train(make_jobs(epochs=1))
    for one, other in zip(interrupted, one_epoch, strict=True):
        assert one.n_epochs == 1
        assert one.history == other.history
        for a, b in zip(one.state.values + one.state.slots, other.state.values + other.state.slots, strict=True):
            np.testing.assert_array_equal(a, b)


def test_ctrl_c_before_the_first_epoch_is_passed_on(make_jobs):
    class AtOnce(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_jobs(callbacks=(AtOnce(),)))


def test_ctrl_c_keeps_programs_from_beginning_that_had_not(make_jobs):
    interrupted, _ = train(make_jobs(epochs=5, callbacks=(Interrupt(),)), max_fused=1)
    assert [result.n_epochs for result in interrupted] == [2, 0, 0]
    assert [result.failure is None for result in interrupted] == [True, False, False]
    assert interrupted[2].failure.cause == "training was interrupted before its first epoch"
    assert all(result.interrupted for result in interrupted)


def test_ctrl_c_leaves_members_as_they_were_that_had_been_trained_before(make_jobs):
    before, _ = train(make_jobs(epochs=1))
    jobs = make_jobs(epochs=5, callbacks=(Interrupt(),))
    jobs = [make_jobs.replace(job, start=result.state) for job, result in zip(jobs, before, strict=True)]
    interrupted, _ = train(jobs, max_fused=1)
    assert interrupted[2].failure is None
    np.testing.assert_array_equal(interrupted[2].state.values[0], before[2].state.values[0])


def test_training_touches_nothing_of_the_callers(make_jobs):
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=1, restore_best_weights=True)
    optimizer = keras.optimizers.Adam(0.05)
    jobs = make_jobs(weighted=True, validation=True, callbacks=(stop,), optimizer=optimizer, metrics=["mae"])
    job = jobs[0]
    arrays = [job.x, job.y, job.sample_weight, job.rows, job.validation_rows]
    before = [array.copy() for array in arrays]
    weights = [variable.numpy() for variable in job.template.model.variables]
    settings = copy.copy(vars(stop))
    results, _ = train(jobs)
    train([make_jobs.replace(job, start=result.state) for job, result in zip(jobs, results, strict=True)])
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)
    for variable, old in zip(job.template.model.variables, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    assert vars(stop) == settings
    assert not optimizer.built
    assert job.settings.metrics[0].variables[0].numpy() == 0
