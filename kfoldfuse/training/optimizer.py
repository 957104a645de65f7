"""The user's own Keras optimizer, run once per member.

A copy of the optimizer is built on one member's variables; its stateless step is then vectorised over the member axis
of the stacked values and slots. Clipping by norms, counters and schedules therefore stay each member's own. Running
the optimizer on the stacked variables instead would mix members in Lamb, Adafactor, Muon and every clipping by norm.
"""

import functools

import keras
import numpy as np
from keras import ops

from kfoldfuse.training._keras_private import (
    config_of,
    exclude_from_weight_decay,
    make_stateless,
    moving_averages,
    weight_decay_exclusions,
)
from kfoldfuse.training.copies import checked_copy
from kfoldfuse.training.engine_members import over_members
from kfoldfuse.training.signature import has_learning_rate_variable


class MemberOptimizer:
    """Optimizer of all members of a program.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        The user's; copied.
    variables : list of keras.Variable
        Trainable variables of the template; not modified.
    """

    def __init__(self, optimizer, variables):
        self._original = optimizer
        self._optimizer = _stateless_copy(optimizer)
        self._optimizer.build(variables)
        self._variables = variables
        # A user's own class may do what vectorising changes without an error; Keras' own are tested one by one.
        self._vectorized = getattr(keras.optimizers, type(optimizer).__name__, None) is type(optimizer)

    @property
    def specs(self):
        """Shape without the member axis and dtype of each slot."""
        return [(tuple(variable.shape), variable.dtype) for variable in self._optimizer.variables]

    @property
    def names(self):
        """Names of the slots, in their order."""
        return [variable.name for variable in self._optimizer.variables]

    def initial_slots(self, values, optimizer):
        """Fresh slots of one member.

        Parameters
        ----------
        values : list of ndarray
            The member's trainable values; a few optimizers start from them.
        optimizer : keras.optimizers.Optimizer
            The member's settings: its learning rate is what the slot gets.

        Returns
        -------
        list of ndarray
        """
        if self._starts_from_values:
            slots = self._slots_built_on(values)
        else:
            slots = [_numpy(variable) for variable in self._optimizer.variables]
        if has_learning_rate_variable(optimizer):
            # A loss-scaling optimizer has an unused one of its own before that of the optimizer inside.
            position = max(i for i, name in enumerate(self.names) if name == "learning_rate")
            slots[position] = np.asarray(ops.convert_to_numpy(optimizer.learning_rate), dtype=slots[position].dtype)
        return slots

    @functools.cached_property
    def _starts_from_values(self):
        """Whether fresh slots depend on the weights, as those of ScheduleFreeAdamW do. Found out by trying."""
        tries = [self._slots_built_on([np.full(v.shape, fill, v.dtype) for v in self._variables]) for fill in (0, 1)]
        return not all(np.array_equal(*slots) for slots in zip(*tries, strict=True))

    def _slots_built_on(self, values):
        fresh = _stateless_copy(self._original)
        fresh.build(
            [
                keras.Variable(value, dtype=value.dtype, name=variable.name)
                for value, variable in zip(values, self._variables, strict=True)
            ]
        )
        return [_numpy(variable) for variable in fresh.variables]

    def scale(self, losses, slots):
        """Losses of shape (n_members,) times each member's loss scale, as the gradients must see them."""
        optimizer = self._optimizer
        if optimizer.loss_scale_factor is None and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return losses
        scaled = []
        for member in range(losses.shape[0]):
            state = [(variable, slot[member]) for variable, slot in zip(optimizer.variables, slots, strict=True)]
            with keras.StatelessScope(state_mapping=state):
                scaled.append(optimizer.scale_loss(losses[member]))
        return ops.stack(scaled)

    def update(self, values, slots, gradients):
        """One step of every member.

        Parameters
        ----------
        values, gradients : list of tensor of shape (n_members, ...)
            A gradient may be None.
        slots : list of tensor of shape (n_members, ...)

        Returns
        -------
        values, slots : lists of tensors of shape (n_members, ...)
        """
        connected = [i for i, gradient in enumerate(gradients) if gradient is not None]

        def step(state):
            member_values, member_slots, given = state
            full = [None] * len(member_values)
            for position, gradient in zip(connected, given, strict=True):
                full[position] = gradient
            return self._optimizer.stateless_apply(member_slots, full, member_values)

        return over_members(step, (values, slots, [gradients[i] for i in connected]), vectorized=self._vectorized)

    def finalize(self, values, slots):
        """What Keras does to the weights after the last epoch: with EMA, the average takes their place."""
        if not self._optimizer.use_ema:
            return values

        where = {id(variable): position for position, variable in enumerate(self._optimizer.variables)}
        return [slots[where[id(average)]] for average in moving_averages(self._optimizer)]


def check_optimizer(optimizer):
    """Refuse, before training, an optimizer that cannot be run per member.

    Raises
    ------
    ValueError
        For `MultiOptimizer`, whose parts Keras cannot copy, and for weight decay that leaves out one model's variables.
    """
    if isinstance(optimizer, getattr(keras.optimizers, "MultiOptimizer", ())):
        raise ValueError(
            "`optimizer` must be one optimizer for all variables. Got MultiOptimizer. Train with one optimizer, or "
            "freeze layers by `trainable=False` instead."
        )
    variables, _ = weight_decay_exclusions(optimizer)
    if variables:
        raise ValueError(
            "`optimizer` must leave variables out of weight decay by name. Got "
            "exclude_from_weight_decay(var_list=...). "
            "Members have variables of their own. Use exclude_from_weight_decay(var_names=[...])."
        )


def copy_optimizer(optimizer, **changes):
    """A fresh, unbuilt optimizer with the same settings, but for `changes` of its config."""
    fresh = checked_copy(optimizer, type(optimizer).from_config(config_of(optimizer)), "optimizer")
    if changes:
        fresh = type(optimizer).from_config({**config_of(optimizer), **changes})
    exclude_from_weight_decay(fresh, *weight_decay_exclusions(optimizer))
    return fresh


def _stateless_copy(optimizer):
    stateless = make_stateless(copy_optimizer(optimizer))
    inner = getattr(stateless, "inner_optimizer", None)
    if inner is not None:
        make_stateless(inner)
    return stateless


def _numpy(variable):
    return ops.convert_to_numpy(variable.value)
