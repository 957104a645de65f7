"""Keras metrics with a state per member, over the rows that count."""

import keras
from keras import ops

from kfoldfuse.fusion import rows
from kfoldfuse.fusion._keras_private import get_logits, set_logits
from kfoldfuse.training._keras_private import take_wrapped_arguments, wrapped_function
from kfoldfuse.training.copies import checked_copy
from kfoldfuse.training.engine_members import over_members, try_vectorized
from kfoldfuse.training.losses import with_attachments


def resolve_metrics(identifiers, y_true_shape, y_pred_shape):
    """Metric objects from names, functions, configs or objects, as `keras.Model.compile` would make them.

    Parameters
    ----------
    identifiers : list
    y_true_shape, y_pred_shape : tuple
        Shapes of a batch; "accuracy" means another metric for each kind of target.

    Returns
    -------
    tuple of keras.metrics.Metric
        Copies; the caller's objects are not used.
    """
    return tuple(_resolve(identifier, y_true_shape, y_pred_shape) for identifier in identifiers)


def _resolve(identifier, y_true_shape, y_pred_shape):
    if isinstance(identifier, keras.metrics.Metric):
        return copy_metric(identifier)
    name = identifier if isinstance(identifier, str) else getattr(identifier, "__name__", None)
    if isinstance(identifier, str) and identifier.lower() in ("accuracy", "acc"):
        if y_pred_shape[-1] == 1:
            return keras.metrics.BinaryAccuracy(name=name)
        sparse = len(y_true_shape) < len(y_pred_shape) or (y_true_shape[-1] == 1 and y_pred_shape[-1] > 1)
        kind = keras.metrics.SparseCategoricalAccuracy if sparse else keras.metrics.CategoricalAccuracy
        return kind(name=name)
    metric = keras.metrics.get(identifier)
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric, name=name or type(metric).__name__)
    elif isinstance(identifier, str):
        metric.name = name
    return metric


def copy_metric(metric):
    """A fresh metric with the same settings and no state."""
    if type(metric) is keras.metrics.MeanMetricWrapper:  # its config cannot hold a lambda
        function, arguments = wrapped_function(metric)
        return keras.metrics.MeanMetricWrapper(function, name=metric.name, dtype=metric.dtype, **arguments)
    fresh = type(metric).from_config(metric.get_config())
    take_wrapped_arguments(fresh, metric)
    return checked_copy(metric, fresh, "metrics")


class MemberMetrics:
    """The metrics of all members of a program.

    Parameters
    ----------
    metrics, weighted_metrics : sequence of keras.metrics.Metric
        Copied.
    y_true, y_pred : ndarray of shape (n_rows, ...)
        A few rows to build the metrics' variables with.
    """

    def __init__(self, metrics, weighted_metrics, y_true, y_pred):
        self.metrics = [copy_metric(metric) for metric in (*metrics, *weighted_metrics)]
        self._weighted = [False] * len(metrics) + [True] * len(weighted_metrics)
        for metric in self.metrics:
            _build(metric, y_true, y_pred)
        self.names = _unique_names([metric.name for metric in self.metrics], len(metrics))

    def initial_states(self, n_members):
        """Stacked variables of all metrics, empty: a list of lists of tensors of shape (n_members, ...)."""
        return [
            [
                ops.repeat(ops.expand_dims(ops.convert_to_tensor(variable.value), 0), n_members, axis=0)
                for variable in metric.variables
            ]
            for metric in self.metrics
        ]

    def update(self, states, y_true, y_pred, sample_weight=None):
        """States after a batch of shape (n_members, batch, ...); only rows that count are seen."""
        return [
            _update(metric, state, y_true, y_pred, sample_weight if weighted else None)
            for metric, weighted, state in zip(self.metrics, self._weighted, states, strict=True)
        ]

    def results(self, states):
        """Values of shape (n_members,) by name; of a metric with a value per class, their mean."""
        return {
            name: over_members(
                lambda state, metric=metric: ops.mean(metric.stateless_result(state)),
                state,
                vectorized=_ships_with_keras(metric),
            )
            for name, metric, state in zip(self.names, self.metrics, states, strict=True)
        }


def _build(metric, y_true, y_pred):
    """Make the metric's variables; where it cannot take such targets, this tells so before any training."""
    try:
        metric.update_state(y_true, y_pred)
    except Exception as error:
        raise ValueError(
            f"`metrics` must take targets of shape {('n_rows', *y_true.shape[1:])} and predictions of shape "
            f"{('n_rows', *y_pred.shape[1:])}. Got {metric.name!r}, and Keras says: {str(error).strip()} "
            "Give y in the form that the metric needs (one-hot, for many), or take another metric."
        ) from error
    metric.reset_state()


def _update(metric, state, y_true, y_pred, sample_weight):
    n_valid = rows.current()
    new = None
    if _is_vectorizable(metric):
        new = _update_vectorized(metric, state, y_true, y_pred, sample_weight, n_valid)
    if new is None:
        new = _update_one_by_one(metric, state, y_true, y_pred, sample_weight, n_valid)
    return [rows.keep_active(after, before) for after, before in zip(new, state, strict=True)]


def _is_vectorizable(metric):
    """Keras' own metrics leave a row of weight zero out; counts of whole numbers take no such weights."""
    counts = any(not keras.backend.is_float_dtype(variable.dtype) for variable in metric.variables)
    return _ships_with_keras(metric) and not counts and type(metric) is not keras.metrics.MeanMetricWrapper


def _ships_with_keras(metric):
    return getattr(keras.metrics, type(metric).__name__, None) is type(metric)


def _update_vectorized(metric, state, y_true, y_pred, sample_weight, n_valid):
    """All members in one call, with weight zero for padding; None where Keras' operations cannot be vectorised."""
    weight = sample_weight
    if n_valid is not None:
        counts = ops.cast(rows.row_mask(ops.shape(y_pred)[1]), metric.dtype)
        weight = counts if weight is None else ops.cast(weight, metric.dtype) * counts
    optional = {"weight": weight, "logits": get_logits(y_pred)}
    given = {name: value for name, value in optional.items() if value is not None}

    def update(elements):
        member_state, target, prediction, extra = elements
        set_logits(prediction, extra.get("logits"))
        return metric.stateless_update_state(member_state, target, prediction, sample_weight=extra.get("weight"))

    return try_vectorized(update, (state, y_true, y_pred, given))


def _update_one_by_one(metric, state, y_true, y_pred, sample_weight, n_valid):
    states = []
    for member in range(y_pred.shape[0]):
        prediction = with_attachments(y_pred, lambda value, m=member: rows.take_valid(value, m, n_valid))
        given = {}
        if sample_weight is not None:
            given["sample_weight"] = rows.take_valid(sample_weight, member, n_valid)
        target = rows.take_valid(y_true, member, n_valid)
        states.append(
            metric.stateless_update_state([variable[member] for variable in state], target, prediction, **given)
        )
    return [ops.stack(variables) for variables in zip(*states, strict=True)]


def _unique_names(names, n_unweighted):
    """Keys of the history as Keras makes them: a repeated name gets a number or the prefix "weighted"."""
    unique = []
    for position, name in enumerate(names):
        if name in unique and position >= n_unweighted and f"weighted_{name}" not in unique:
            name = f"weighted_{name}"
        base, count = name, 0
        while name in unique:
            count += 1
            name = f"{base}_{count}"
        unique.append(name)
    return unique
