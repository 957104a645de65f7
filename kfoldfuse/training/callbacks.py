"""Ordinary Keras callbacks, one copy per member, between the epochs of a fused program.

A callback talks to `MemberView` as if it were the member's Keras model.
"""

import copy

import keras
import numpy as np

from kfoldfuse.fusion.template import member_model
from kfoldfuse.training._keras_private import metrics_list

_BATCH_HOOKS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_begin",
    "on_test_end",
    "on_test_batch_begin",
    "on_test_batch_end",
)


def check_callbacks(callbacks):
    """Refuse, before any training, callbacks that would be called less often than they expect.

    Raises
    ------
    TypeError
        For what is not a Keras callback.
    ValueError
        For a callback with batch-level hooks (all members' batches are one step of one program), and for `CSVLogger`
        (all members would write one file).
    """
    for callback in callbacks:
        name = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"`callbacks` must be keras.callbacks.Callback objects. Got {callback!r}. Pass instances, not classes."
            )
        hooks = [hook for hook in _BATCH_HOOKS if _overrides(callback, hook)]
        if hooks:
            raise ValueError(
                f"`callbacks` must work by epochs. Got {name}, which has {', '.join(hooks)}. All members' batches are "
                "one step of one program, so there is no hook for a batch; use on_epoch_begin or on_epoch_end."
            )
        if isinstance(callback, keras.callbacks.CSVLogger):
            raise ValueError(
                "`callbacks` must not write one file for all members. Got CSVLogger. Read the histories from "
                "`history_` after the fit."
            )


def check_monitors(callbacks, names):
    """Refuse, before any training, a Keras callback that monitors what no epoch will report.

    Parameters
    ----------
    callbacks : sequence of keras.callbacks.Callback
    names : list of str
        Entries of the logs of an epoch. A callback of the user's own may add others, so then nothing is refused.
    """
    if any(not type(callback).__module__.startswith("keras.") for callback in callbacks):
        return
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in (*names, "learning_rate"):
            raise ValueError(
                f"`monitor` of {type(callback).__name__} must be one of {', '.join(names)}. Got {monitor!r}. Add the "
                "metric to `metrics`, or set `validation` for names that begin with val_."
            )


def _overrides(callback, hook):
    if hook in vars(callback):  # as LambdaCallback does it
        return True
    return getattr(type(callback), hook) is not getattr(keras.callbacks.Callback, hook)


class MemberView:
    """What a callback sees as ``self.model``: one member of a running program.

    Attributes that are not here come from an ordinary Keras model with the member's weights, made on first use in an
    epoch; what a callback changes in it is taken over.
    """

    def __init__(self, run, member):
        self._run = run
        self._member = member
        self._keras_model = None
        self.stop_training = False
        self.optimizer = _OptimizerView(run, member)

    @property
    def metrics(self):
        """The metrics, for callbacks that look for the direction of improvement."""
        return [metrics_list(self._run.metrics)]

    def get_weights(self):
        """The member's weights as `keras.Model.get_weights` gives them."""
        if self._keras_model is not None:
            return self._keras_model.get_weights()
        return [self._run.read_value(position, self._member) for position in self._run.weight_positions]

    def set_weights(self, weights):
        """Set what `get_weights` gave."""
        if self._keras_model is not None:
            self._keras_model.set_weights(weights)
            return
        for position, value in zip(self._run.weight_positions, weights, strict=True):
            self._run.write_value(position, self._member, value)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._as_keras_model(), name)

    def _as_keras_model(self):
        if self._keras_model is None:
            values = self._run.read_all(self._member)
            self._keras_model = member_model(self._run.template, values)
        return self._keras_model

    def take_over(self):
        """Take over what a callback changed in the Keras model, and forget the model: the next epoch makes it stale."""
        if self._keras_model is None:
            return
        model, self._keras_model = self._keras_model, None
        for position, variable in enumerate(model.variables):
            value = keras.ops.convert_to_numpy(variable.value)
            if not np.array_equal(value, self._run.read_value(position, self._member)):
                self._run.write_value(position, self._member, value)


class _OptimizerView:
    """What a callback sees as ``self.model.optimizer``: the learning rate of one member."""

    def __init__(self, run, member):
        self._run = run
        self._member = member

    @property
    def learning_rate(self):
        return self._run.read_slot("learning_rate", self._member)

    @learning_rate.setter
    def learning_rate(self, value):
        self._run.write_slot("learning_rate", self._member, value)

    @property
    def iterations(self):
        return self._run.read_slot("iteration", self._member)


class MemberCallbacks:
    """The callbacks of one member."""

    def __init__(self, callbacks, view, params):
        self.view = view
        self._callbacks = [copy.deepcopy(callback) for callback in callbacks]
        for callback in self._callbacks:
            callback.set_model(view)
            callback.set_params(params)

    def call(self, hook, *args):
        """Call one hook of each callback, in order."""
        for callback in self._callbacks:
            getattr(callback, hook)(*args)
        self.view.take_over()

    @property
    def best_epoch(self):
        """Epoch that an early-stopping callback restored, or None."""
        for callback in self._callbacks:
            if getattr(callback, "restore_best_weights", False) and getattr(callback, "best_weights", None) is not None:
                return callback.best_epoch
        return None
