"""Guarantee 6, as far as training goes: Ctrl-C keeps the epochs done; what the caller owns is not modified."""

import copy

import keras
import numpy as np

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
