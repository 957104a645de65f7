"""The only place in `kfoldfuse.training` that touches what Keras does not export.

`tests/training/test_keras_private.py` fails when Keras changes one of these.
"""

import copy

from keras import ops
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import MetricsList


class _StatelessOptimizer(TFOptimizer):
    """Keras' backend-neutral optimizer methods, put before those of its TensorFlow class.

    The TensorFlow class refuses `stateless_apply` and replaces the rest by versions for `tf.distribute`, which need
    real variables. Standing between the user's optimizer class and the TensorFlow class in the method order, this one
    leaves all that the optimizer or the user wrote in charge.
    """

    assign = BaseOptimizer.assign
    assign_add = BaseOptimizer.assign_add
    assign_sub = BaseOptimizer.assign_sub
    _var_key = BaseOptimizer._var_key
    _apply_weight_decay = BaseOptimizer._apply_weight_decay
    _backend_update_step = BaseOptimizer._backend_update_step
    _clip_by_norm = BaseOptimizer._clip_by_norm
    stateless_apply = BaseOptimizer.stateless_apply

    def _backend_apply_gradients(self, grads, trainable_variables):
        """As in the base class, with its two branches chosen by `where`.

        `ops.cond` traces each branch into a graph of its own, and what a branch assigns in a stateless scope cannot
        leave that graph.
        """
        accumulate = self.gradient_accumulation_steps
        if accumulate:
            collected = [self._accumulated_gradients[self._get_variable_index(v)] for v in trainable_variables]
            is_update = (self._iterations + 1) % accumulate == 0
            before = self._current_values()
            sums = [ops.add(grad, total) for grad, total in zip(grads, collected, strict=True)]
            grads = [total / accumulate for total in sums]
        grads = self._clip_gradients(grads)
        self._apply_weight_decay(trainable_variables)
        self._backend_update_step(grads, trainable_variables, self.learning_rate)
        if accumulate:
            for variable, value in before:
                variable.assign(ops.where(is_update, ops.convert_to_tensor(variable.value), value))
            for total, value in zip(collected, sums, strict=True):
                total.assign(ops.where(is_update, ops.zeros_like(value), value))
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)
            if self.ema_overwrite_frequency:
                overwrites = (self.iterations + 1) % self.ema_overwrite_frequency == 0
                for variable, average in zip(self._trainable_variables, moving_averages(self), strict=True):
                    variable.assign(ops.where(overwrites, average.value, variable.value))

    def _current_values(self):
        variables = [*self._trainable_variables, *self.variables]
        return [(variable, ops.convert_to_tensor(variable.value)) for variable in variables]


_stateless_types = {}


def make_stateless(optimizer):
    """Give an unbuilt Keras optimizer a working `stateless_apply`; returns the same object, of a derived class."""
    kind = type(optimizer)
    if kind not in _stateless_types:
        _stateless_types[kind] = type(kind.__name__, (kind, _StatelessOptimizer), {"__module__": kind.__module__})
    optimizer.__class__ = _stateless_types[kind]
    return optimizer


def weight_decay_exclusions(optimizer):
    """What `optimizer.exclude_from_weight_decay` was told: (ids of variables, pattern of names). No config has it."""
    variables = getattr(optimizer, "_exclude_from_weight_decay", set())
    return variables, getattr(optimizer, "_exclude_from_weight_decay_pattern", None)


def exclude_from_weight_decay(optimizer, variables, pattern):
    """Tell another optimizer what `weight_decay_exclusions` read."""
    if variables or pattern is not None:
        optimizer._exclude_from_weight_decay = set(variables)
        optimizer._exclude_from_weight_decay_pattern = pattern


def moving_averages(optimizer):
    """The variables of an optimizer with `use_ema` that hold the averages, one per trainable variable."""
    return optimizer._model_variables_moving_average


def metrics_list(metrics):
    """Metrics in the container in which callbacks look for the direction of a metric."""
    return MetricsList(list(metrics))


def wrapped_function(metric):
    """The (function, keyword arguments) behind a `keras.metrics.MeanMetricWrapper`."""
    return metric._fn, metric._fn_kwargs


def own_learning_rate(optimizer):
    """The schedule or function of the user's own that gives the learning rate, None where Keras can copy it."""
    rate = optimizer._learning_rate
    return rate if callable(rate) and not type(rate).__module__.startswith("keras.") else None


def config_of(optimizer):
    """A copy of an optimizer's config; a schedule of the user's own stands in it as an object, not by name."""
    rate = own_learning_rate(optimizer)
    if rate is None:
        return copy.deepcopy(optimizer.get_config())
    stand_in = object.__new__(type(optimizer))
    vars(stand_in).update(vars(optimizer), _learning_rate=0.0)
    return {**copy.deepcopy(stand_in.get_config()), "learning_rate": rate}


def wrapped_arguments(value):
    """Keyword arguments that a loss or metric of Keras hands to its function; its config does not hold all of them."""
    return getattr(value, "_fn_kwargs", {})


def take_wrapped_arguments(fresh, metric):
    """Give a copy what the config of a Keras metric leaves out, such as the axis of CosineSimilarity."""
    arguments = wrapped_arguments(metric)
    if arguments and type(metric).__module__.startswith("keras."):
        fresh._fn_kwargs = dict(arguments)


def all_layers(model):
    """The model, its layers, and the layers inside those. Public `layers` stops at wrappers such as Bidirectional."""
    return list(model._flatten_layers())
