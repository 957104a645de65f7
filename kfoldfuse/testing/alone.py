"""The reference of every equivalence test: one member, trained by plain Keras without any of our engine."""

import copy
import dataclasses

import keras
import numpy as np

from kfoldfuse.fusion.template import member_model
from kfoldfuse.training.batches import row_order
from kfoldfuse.training.initial import initial_state
from kfoldfuse.training.metrics import copy_metric
from kfoldfuse.training.optimizer import copy_optimizer


@dataclasses.dataclass(frozen=True, eq=False)
class Alone:
    """A member trained alone.

    Attributes
    ----------
    model : keras.Model
        Ordinary, compiled, trained.
    history : dict of str to list of float
        As ``keras.callbacks.History.history``.
    """

    model: keras.Model
    history: dict


def train_alone(job):
    """Train the member of a job by `keras.Model.fit`, with the same start weights and the same batches.

    Parameters
    ----------
    job : FitJob

    Returns
    -------
    Alone
    """
    settings = job.settings
    model = member_model(job.template, (job.start or initial_state(job.template, job.seed)).values)
    model.compile(
        optimizer=copy_optimizer(settings.optimizer),
        loss=settings.loss,
        metrics=[copy_metric(metric) for metric in settings.metrics],
        weighted_metrics=[copy_metric(metric) for metric in settings.weighted_metrics],
    )
    # Built here, not inside Keras' traced step: ScheduleFreeAdamW starts from the weights, and Keras 3.15 loses that
    # start when it builds the optimizer while tracing.
    model.optimizer.build(model.trainable_variables)
    # `fit` is called per epoch, in the member's own order of rows; what it does after the last epoch must wait.
    finalize, model.optimizer.finalize_variable_values = model.optimizer.finalize_variable_values, lambda _: None

    callbacks = [copy.deepcopy(callback) for callback in settings.callbacks]
    for callback in callbacks:
        callback.set_model(model)
        callback.set_params({"epochs": settings.epochs})
        callback.on_train_begin()
    history = {}
    for epoch in range(job.first_epoch, job.first_epoch + settings.epochs):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        logs = _fit_epoch(model, job, row_order(job.rows, job.seed, epoch, settings.shuffle))
        for callback in callbacks:
            callback.on_epoch_end(epoch, logs)
        for name, value in logs.items():
            history.setdefault(name, []).append(float(value))
        if any(callback.model.stop_training for callback in callbacks):
            break
    finalize(model.trainable_variables)
    for callback in callbacks:
        callback.on_train_end()
    return Alone(model, history)


def _fit_epoch(model, job, order):
    validation = None if job.validation_rows is None else _data(job, job.validation_rows)
    x, y, *weight = _data(job, order)
    done = model.fit(
        x,
        y,
        sample_weight=weight[0] if weight else None,
        batch_size=job.settings.batch_size,
        shuffle=False,
        verbose=0,
        validation_data=validation,
    )
    return {name: values[-1] for name, values in done.history.items()}


def _data(job, rows):
    x = keras.tree.map_structure(lambda array: np.asarray(array)[rows], job.x)
    if job.sample_weight is None:
        return x, job.y[rows]
    return x, job.y[rows], job.sample_weight[rows]


def largest_difference(result, alone):
    """Largest absolute difference between a fused member and the same member alone.

    Parameters
    ----------
    result : FitResult
    alone : Alone

    Returns
    -------
    dict of str to float
        For "values" (weights, batch statistics, random states), "slots" (of the optimizer) and "history".
    """
    if set(result.history) != set(alone.history):
        raise AssertionError(f"Fused history has {sorted(result.history)}, alone {sorted(alone.history)}.")
    pairs = {
        "values": zip(result.state.values, _arrays(alone.model.variables), strict=True),
        "slots": zip(result.state.slots, _arrays(alone.model.optimizer.variables), strict=True),
        "history": ((np.asarray(result.history[name]), np.asarray(alone.history[name])) for name in alone.history),
    }
    return {name: max((_difference(*pair) for pair in each), default=0.0) for name, each in pairs.items()}


def _arrays(variables):
    return [keras.ops.convert_to_numpy(variable.value) for variable in variables]


def _difference(fused, alone):
    if fused.shape != alone.shape:
        raise AssertionError(f"Fused has shape {fused.shape}, alone {alone.shape}.")
    fused, alone = fused.astype("float64"), alone.astype("float64")
    if not np.array_equal(np.isfinite(fused), np.isfinite(alone)):
        return np.inf
    return float(np.abs(fused - alone)[np.isfinite(fused)].max(initial=0.0))
