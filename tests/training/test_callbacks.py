"""Ordinary Keras callbacks per member, against the same callbacks alone."""

import re

import keras
import numpy as np
import pytest

from kfoldfuse.testing import largest_difference, train_alone
from kfoldfuse.training import check_callbacks, train

EarlyStopping = keras.callbacks.EarlyStopping


def assert_equal_alone(jobs):
    results, report = train(jobs)
    assert len(report) == 1
    for job, result in zip(jobs, results, strict=True):
        difference = largest_difference(result, train_alone(job))
        assert max(difference.values()) < 1e-9, (job.name, difference)
    return results


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "arguments",
    [
        {"patience": 1},
        {"patience": 2, "restore_best_weights": True},
        {"patience": 1, "restore_best_weights": True, "min_delta": 0.05, "start_from_epoch": 2},
        {"patience": 1, "baseline": 0.1, "restore_best_weights": True},
        {"patience": 2, "monitor": "val_mae", "mode": "auto", "restore_best_weights": True},
        {"patience": 100, "restore_best_weights": True},
    ],
    ids=str,
)
def test_each_member_stops_where_it_would_alone_with_the_weights_it_would_have(make_jobs, arguments):
    jobs = make_jobs(
        optimizer=keras.optimizers.Adam(0.1),
        validation=True,
        epochs=9,
        metrics=["mae"],
        callbacks=(EarlyStopping(**arguments),),
    )
    results = assert_equal_alone(jobs)
    if arguments["patience"] < 100:
        assert len({result.n_epochs for result in results}) > 1  # they do not stop together


@pytest.mark.usefixtures("float64")
def test_the_best_epoch_is_reported(make_jobs):
    stop = EarlyStopping(patience=2, restore_best_weights=True)
    results, _ = train(make_jobs(optimizer=keras.optimizers.Adam(0.1), validation=True, epochs=9, callbacks=(stop,)))
    for result in results:
        assert result.best_epoch == int(np.argmin(result.history["val_loss"]))


@pytest.mark.usefixtures("float64")
def test_a_learning_rate_is_lowered_per_member(make_jobs):
    lower = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=0.05)
    jobs = make_jobs(optimizer=keras.optimizers.Adam(0.1), validation=True, epochs=6, callbacks=(lower,))
    results = assert_equal_alone(jobs)
    assert len({tuple(result.history["learning_rate"]) for result in results}) > 1


@pytest.mark.usefixtures("float64")
def test_a_learning_rate_schedule_by_epochs_is_followed(make_jobs):
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7 if epoch else rate)
    results = assert_equal_alone(make_jobs(epochs=3, callbacks=(schedule,)))
    np.testing.assert_allclose(results[0].history["learning_rate"], [0.1, 0.07, 0.049])


class ClipWeights(keras.callbacks.Callback):
    """A user's own: changes weights through the model between epochs and stops by its own rule."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.set_weights([np.clip(weight, -0.5, 0.5) for weight in self.model.get_weights()])

    def on_epoch_end(self, epoch, logs=None):
        kernel = self.model.layers[0].kernel
        kernel.assign(kernel * 0.9)
        logs["norm"] = float(np.abs(self.model.get_weights()[0]).sum())
        if logs["loss"] < 1.2:
            self.model.stop_training = True


@pytest.mark.usefixtures("float64")
def test_a_users_callback_may_read_and_change_its_member(make_jobs):
    jobs = make_jobs(epochs=4, callbacks=(ClipWeights(),))
    results = assert_equal_alone(jobs)
    assert "norm" in results[0].history


def test_two_fits_with_the_same_callback_give_the_same_history(make_jobs):
    stop = EarlyStopping(patience=1, restore_best_weights=True)
    jobs = make_jobs(optimizer=keras.optimizers.Adam(0.1), validation=True, epochs=6, callbacks=(stop,))
    first, second = train(jobs)[0], train(jobs)[0]
    for one, other in zip(first, second, strict=True):
        assert one.history == other.history
        assert one.n_epochs == other.n_epochs


@pytest.mark.parametrize(
    ("callback", "error", "message"),
    [
        (
            keras.callbacks.EarlyStopping,
            TypeError,
            "`callbacks` must be keras.callbacks.Callback objects. Got "
            f"{EarlyStopping!r}. Pass instances, not classes.",
        ),
        (
            keras.callbacks.TerminateOnNaN(),
            ValueError,
            "`callbacks` must work by epochs. Got TerminateOnNaN, which has on_batch_end. All members' batches are one "
            "step of one program, so there is no hook for a batch; use on_epoch_begin or on_epoch_end.",
        ),
        (
            keras.callbacks.LambdaCallback(on_train_batch_end=print),
            ValueError,
            "`callbacks` must work by epochs. Got LambdaCallback, which has on_train_batch_end. All members' batches "
            "are one step of one program, so there is no hook for a batch; use on_epoch_begin or on_epoch_end.",
        ),
        (
            keras.callbacks.CSVLogger("log.csv"),
            ValueError,
            "`callbacks` must not write one file for all members. Got CSVLogger. Read the histories from `history_` "
            "after the fit.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_callbacks_that_cannot_work_are_refused(callback, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        check_callbacks([callback])


def test_callbacks_are_checked_before_anything_is_trained(make_jobs):
    with pytest.raises(ValueError, match="must work by epochs"):
        train(make_jobs(callbacks=(keras.callbacks.TerminateOnNaN(),)))


def test_a_monitor_that_no_epoch_reports_is_refused_before_training(make_jobs):
    def refusal(**settings):
        with pytest.raises(ValueError) as refused:
            train(make_jobs(**settings))
        return str(refused.value)

    message = (
        "`monitor` of EarlyStopping must be one of {}. Got {!r}. Add the metric to `metrics`, or set `validation` for "
        "names that begin with val_."
    )
    stop = EarlyStopping(monitor="val_accuracy")
    assert refusal(callbacks=(stop,), validation=True) == message.format("loss, val_loss", "val_accuracy")
    stop = EarlyStopping(monitor="val_loss")
    assert refusal(callbacks=(stop,), metrics=["mae"]) == message.format("loss, mae", "val_loss")


def test_a_monitor_may_be_what_another_callback_reports(make_jobs):
    stop = EarlyStopping(monitor="norm", mode="min")
    results, _ = train(make_jobs(epochs=1, callbacks=(ClipWeights(), stop)))
    assert "norm" in results[0].history
