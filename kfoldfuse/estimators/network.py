"""The trained members behind an estimator: template, stacked values, and the Keras models made of them on demand."""

import pickle
from collections.abc import Sequence

import keras
import numpy as np
from keras import tree

from kfoldfuse.fusion.fuse import build_fused
from kfoldfuse.fusion.template import Template, copy_model, functional_graph, isolated_randomness, member_model
from kfoldfuse.training import MemberState, predict
from kfoldfuse.training.metrics import copy_metric
from kfoldfuse.training.optimizer import config_of, copy_optimizer


class TrainedMembers:
    """All members of a fit: arrays, with what is needed to run them.

    Pickles as the template's .keras bytes and the arrays; Keras models are made again on first use.

    Parameters
    ----------
    template : Template
    states : list of MemberState
    settings : Settings
    keep_slots : bool
        Whether to keep the optimizer's state of each member, for a warm start.
    """

    def __init__(self, template, states, settings, keep_slots):
        self._template = template
        self._template_bytes = None
        self._specs = tree.map_structure(_plain_spec, template.graph.input)
        self.n_members = len(states)
        self.stacked = [np.stack(values) for values in zip(*(state.values for state in states), strict=True)]
        self._slots = [state.slots for state in states] if keep_slots else None
        self._optimizer, self._loss = settings.optimizer, settings.loss
        self._metrics, self._weighted_metrics = settings.metrics, settings.weighted_metrics
        self._fused = None
        self._members = {}

    @property
    def template(self):
        """The template; after unpickling, read back on first use."""
        if self._template is None:
            with isolated_randomness(0):
                model = pickle.loads(self._template_bytes)
                graph = functional_graph(model, self._specs)
            # No member is drawn from this template: that is for the next fit, which makes its own.
            self._template = Template(model, graph, lambda: copy_model(model), [None] * len(model.variables))
        return self._template

    def predict(self, x, rows=None):
        """Outputs of shape (n_members, n_samples, units), or a list of arrays for `rows`."""
        outputs = predict(self.template, self.stacked, x, rows)
        return _as_floats(outputs) if rows is None else [_as_floats(output) for output in outputs]

    def states(self, optimizer):
        """States to go on from; without slots where the optimizer has changed since."""
        known = self._slots is not None and self._optimizer is not None  # pickling may have lost what only it knew
        same = known and _config_of(self._optimizer) == _config_of(optimizer)
        return [
            MemberState([values[member] for values in self.stacked], self._slots[member] if same else None)
            for member in range(self.n_members)
        ]

    def fused_model(self):
        """The fused Keras model with the members' values."""
        if self._fused is None:
            network = build_fused(self.template, self.n_members)
            for variable, values in zip(network.stacked, self.stacked, strict=True):
                variable.assign(values)
            self._fused = network.model
        return self._fused

    def member(self, index):
        """One member as an ordinary Keras model, compiled where its settings are known."""
        if index not in self._members:
            model = member_model(self.template, [values[index] for values in self.stacked])
            if self._optimizer is not None:
                model.compile(
                    optimizer=copy_optimizer(self._optimizer),
                    loss=self._loss,
                    metrics=[copy_metric(metric) for metric in self._metrics],
                    weighted_metrics=[copy_metric(metric) for metric in self._weighted_metrics],
                )
            self._members[index] = model
        return self._members[index]

    def __getstate__(self):
        state = {**vars(self), "_template": None, "_fused": None, "_members": {}}
        if self._template is not None:
            state["_template_bytes"] = _pickled_model(self._template.model)
        try:
            pickle.dumps([state[name] for name in _SETTINGS])
        except Exception:  # a loss or metric that only this process knows: members stay uncompiled, nothing else
            state.update(dict.fromkeys(_SETTINGS))
        return state


_SETTINGS = ("_optimizer", "_loss", "_metrics", "_weighted_metrics")


def _pickled_model(model):
    try:
        data = pickle.dumps(model)
        with isolated_randomness(0):
            pickle.loads(data)
    except Exception as error:
        raise pickle.PicklingError(
            f"The model must be one that Keras can save, to pickle the estimator. Got {model.name!r}, and saving it "
            f"failed with: {error} Give layers of your own `get_config`, in a module that the other process can import."
        ) from error
    return data


def _plain_spec(tensor):
    return keras.KerasTensor(tensor.shape, dtype=tensor.dtype)


def _config_of(optimizer):
    config = config_of(optimizer)
    return type(optimizer).__name__, {name: value for name, value in config.items() if name != "name"}


def _as_floats(array):
    # bfloat16 is no dtype of numpy's own, and float16 sums overflow.
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


class MemberModels(Sequence):
    """The members as ordinary Keras models, each made when it is first asked for (about 15 ms).

    They are copies: training one further does not change the estimator.

    Parameters
    ----------
    trained : TrainedMembers
    """

    def __init__(self, trained):
        self._trained = trained

    def __len__(self):
        return self._trained.n_members

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._trained.member(i) for i in range(*index.indices(len(self)))]
        return self._trained.member(range(len(self))[index])

    def __repr__(self):
        return f"<{len(self)} Keras models>"
