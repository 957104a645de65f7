"""The hot path: one traced TensorFlow program trains all its members, a whole epoch per call.

Shapes: stacked values and slots are (M, ...); data stay (n_rows, ...) on the device and are shared; a step gathers
(M, B, ...). State goes in and comes out as tensors, so a program holds no weights, may be used by several fits at once,
and a snapshot is a reference. Invariant of a step: *the loss is the sum over members of each member's own weighted
mean*, hence the gradient of a member's weights is what it would be alone; whoever has no rows in a step, or got a
number that is not finite, keeps everything it had.
"""

import dataclasses
import threading

import keras
import numpy as np
import tensorflow as tf

from kfoldfuse.fusion import rows
from kfoldfuse.training._keras_private import all_layers
from kfoldfuse.training.losses import member_losses
from kfoldfuse.training.metrics import MemberMetrics
from kfoldfuse.training.optimizer import MemberOptimizer

_MAX_POOLING = (keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D)


@dataclasses.dataclass(frozen=True)
class DeviceData:
    """Data of a chunk on the device.

    Attributes
    ----------
    inputs : list of tensor of shape (n_rows, ...)
    target : tensor of shape (n_rows, ...)
    weight : tensor of shape (1 or n_members, n_rows)
        Sample weights, one row where all members share them; of shape (0, 0) without weights.
    """

    inputs: list
    target: tf.Tensor
    weight: tf.Tensor


@dataclasses.dataclass
class State:
    """State of all members between epochs, stacked.

    Attributes
    ----------
    values : list of tensor
        In the order of ``template.model.variables``.
    slots : list of tensor
    alive : tensor of shape (n_members,), bool
        False once a loss or an update was not finite.
    """

    values: list
    slots: list
    alive: tf.Tensor


class _Traced:
    """A function traced once, on first use. A `tf.function` of each program would warn that it is traced often."""

    def __init__(self, function, *signature):
        self._function = tf.function(function, input_signature=signature, autograph=False)
        self._concrete = None
        self._lock = threading.Lock()

    def __call__(self, *arguments):
        with self._lock:
            if self._concrete is None:
                self._concrete = self._function.get_concrete_function()
        try:
            return self._concrete(*arguments)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                "X and y must hold values that the network, loss and metrics can take. Got one that TensorFlow "
                f"refuses: {_reason(error)}. Check integers in X against `input_dim` of an Embedding, and "
                "labels against the units of the output."
            ) from error
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(
                "The members of a program must fit into the memory together. Got too little of it for this one. "
                "Use a smaller max_fused or batch_size."
            ) from error

    @property
    def is_traced(self):
        """Whether the next call only runs."""
        return self._concrete is not None


def _out_of_the_loop(step):
    """Keep a step out of the loop's graph, as a function of its own.

    oneDNN puts its fast MaxPoolGrad in only where it meets the MaxPool before it, and in the cyclic graph of a loop
    that is left to chance: an epoch of five 28x28 CNNs took 0.25 or 0.42 seconds, by the luck of the trace. The call
    costs 0.1 ms per step, a tenth of a step of a small MLP.
    """
    return tf.function(lambda *state: step(*state), autograph=False, experimental_attributes={"_noinline": True})


class Program:
    """A fused network with optimizer, loss and metrics, traced once for a number of members and a batch size.

    Parameters
    ----------
    network : FusedNetwork
    settings : Settings
        Loss, metrics and optimizer are baked in.
    padded_size : int
        Rows of a batch, padding included.
    target_spec : tf.TensorSpec
        Of the targets, first axis open.
    weighted : bool
        Whether there are sample weights.
    """

    def __init__(self, network, settings, padded_size, target_spec, weighted):
        template = network.template
        self.network = network
        self.n_members = n_members = network.n_members
        self._weighted = weighted
        self._loss = settings.loss
        self._has_max_pooling = any(isinstance(layer, _MAX_POOLING) for layer in all_layers(template.graph))
        self._trainable = _positions(template.model.trainable_variables, template.model.variables)
        self.optimizer = MemberOptimizer(settings.optimizer, template.model.trainable_variables)
        graph = template.graph
        self._input_structure = graph.input
        self.metrics = MemberMetrics(settings.metrics, settings.weighted_metrics, *_few_rows(target_spec, graph.output))

        values = [tf.TensorSpec(v.shape, v.dtype) for v in self.network.stacked]
        slots = [tf.TensorSpec((n_members, *shape), dtype) for shape, dtype in self.optimizer.specs]
        inputs = [tf.TensorSpec(t.shape, t.dtype) for t in keras.tree.flatten(graph.input)]
        weight = tf.TensorSpec((None, None), keras.config.floatx())
        indices = tf.TensorSpec((None, n_members, padded_size), "int32")
        n_valid = tf.TensorSpec((None, n_members), "int32")
        flags = tf.TensorSpec((n_members,), "bool")
        data = (inputs, target_spec, weight)
        self._train = _Traced(self._train_epoch, values, slots, flags, data, indices, n_valid)
        self._evaluate = _Traced(self._evaluate_rows, values, data, indices, n_valid)

    # What the loop calls

    @property
    def is_traced(self):
        """Whether an epoch costs no tracing."""
        return self._train.is_traced

    def initial_state(self, members):
        """Stack states of single members.

        Parameters
        ----------
        members : list of (MemberState, optimizer)
            The optimizer gives a fresh member its learning rate.
        """
        slots = []
        for member, optimizer in members:
            trainable = [member.values[position] for position in self._trainable]
            slots.append(
                member.slots if member.slots is not None else self.optimizer.initial_slots(trainable, optimizer)
            )
        values = _stacked([member.values for member, _ in members], self.network.stacked)
        slots = [
            tf.constant(np.stack(each), dtype=dtype)
            for each, (_, dtype) in zip(zip(*slots, strict=True), self.optimizer.specs, strict=True)
        ]
        return State(values, slots, tf.ones((self.n_members,), "bool"))

    def train_epoch(self, state, active, data, schedule):
        """One pass of the active members over their rows.

        Parameters
        ----------
        state : State
        active : ndarray of shape (n_members,), bool
            Members that train; the others keep everything they have.
        data : DeviceData
        schedule : Schedule

        Returns
        -------
        state : State
        logs : list of dict of str to float
            Per member: "loss" and the metrics over the epoch; loss is NaN for a member that failed in it.
        """
        n_valid = tf.constant(np.where(active, schedule.n_valid, 0), "int32")
        arguments = (data.inputs, data.target, data.weight), tf.constant(schedule.indices), n_valid
        values, slots, alive, logs = self._train(state.values, state.slots, state.alive, *arguments)
        return State(values, slots, alive), self._per_member(logs)

    def evaluate(self, state, active, data, schedule):
        """Logs as of `train_epoch`, in inference mode and without updates."""
        n_valid = tf.constant(np.where(active, schedule.n_valid, 0), "int32")
        arguments = (data.inputs, data.target, data.weight), tf.constant(schedule.indices), n_valid
        return self._per_member(self._evaluate(state.values, *arguments))

    def finalize(self, state):
        """State after training: an optimizer with EMA hands its averages to the weights."""
        trainable = self.optimizer.finalize([state.values[p] for p in self._trainable], state.slots)
        values = list(state.values)
        for position, value in zip(self._trainable, trainable, strict=True):
            values[position] = value
        return State(values, state.slots, state.alive)

    def host_arrays(self, state):
        """Values and slots as arrays; views of the tensors where the device is the host."""
        return [value.numpy() for value in state.values], [slot.numpy() for slot in state.slots]

    def with_arrays(self, state, values, slots):
        """A state with these values and slots."""
        return State([tf.constant(value) for value in values], [tf.constant(slot) for slot in slots], state.alive)

    def _per_member(self, logs):
        arrays = {name: logs[name].numpy() for name in ("loss", *self.metrics.names)}
        return [{name: float(array[member]) for name, array in arrays.items()} for member in range(self.n_members)]

    # What is traced

    def _train_epoch(self, values, slots, alive, data, indices, n_valid):
        n_steps = tf.shape(indices)[0]
        loss_sum = tf.zeros((self.n_members,), self._loss.dtype)
        metrics = self.metrics.initial_states(self.n_members)

        train_step = _out_of_the_loop(self._train_step) if self._has_max_pooling else self._train_step

        def body(step, values, slots, alive, loss_sum, metrics):
            valid = tf.where(alive, n_valid[step], 0)
            values, slots, finite, losses, metrics = train_step(values, slots, metrics, data, indices[step], valid)
            alive = tf.logical_and(alive, finite)
            loss_sum += tf.where(valid > 0, losses * tf.cast(valid, losses.dtype), 0)
            return step + 1, values, slots, alive, loss_sum, metrics

        _, values, slots, alive, loss_sum, metrics = tf.while_loop(
            lambda step, *_: step < n_steps, body, (0, values, slots, alive, loss_sum, metrics)
        )
        mean = tf.math.divide_no_nan(loss_sum, tf.cast(tf.reduce_sum(n_valid, axis=0), loss_sum.dtype))
        nan = tf.constant(np.nan, mean.dtype)
        return values, slots, alive, {"loss": tf.where(alive, mean, nan), **self.metrics.results(metrics)}

    def _train_step(self, values, slots, metrics, data, indices, valid):
        trainable = [values[position] for position in self._trainable]
        inputs, target, weight = self._gather(data, indices)
        with rows.valid_rows(valid):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(trainable)
                outputs, losses, updated = self._forward(values, inputs, target, weight, training=True)
                scaled = self.optimizer.scale(losses, slots)
                # `where`: a member without rows computes some number on padding, which must not reach a gradient.
                total = tf.reduce_sum(tf.where(valid > 0, scaled, 0))
            gradients = [_dense(gradient) for gradient in tape.gradient(total, trainable)]
            metrics = self.metrics.update(metrics, target, outputs, weight)
        new_trainable, new_slots = self.optimizer.update(trainable, slots, gradients)
        new_values = list(updated)
        for position, value in zip(self._trainable, new_trainable, strict=True):
            new_values[position] = value
        finite = tf.logical_or(tf.logical_and(_all_finite(new_trainable), tf.math.is_finite(losses)), valid <= 0)
        taken = tf.logical_and(finite, valid > 0)
        new_values, new_slots = _select(taken, (new_values, new_slots), (list(values), list(slots)))
        return new_values, new_slots, finite, losses, metrics

    def _evaluate_rows(self, values, data, indices, n_valid):
        n_steps = tf.shape(indices)[0]
        loss_sum = tf.zeros((self.n_members,), self._loss.dtype)
        metrics = self.metrics.initial_states(self.n_members)

        def body(step, loss_sum, metrics):
            inputs, target, weight = self._gather(data, indices[step])
            with rows.valid_rows(n_valid[step]):
                outputs, losses, _ = self._forward(values, inputs, target, weight, training=False)
                metrics = self.metrics.update(metrics, target, outputs, weight)
            valid = n_valid[step]
            return step + 1, loss_sum + tf.where(valid > 0, losses * tf.cast(valid, losses.dtype), 0), metrics

        _, loss_sum, metrics = tf.while_loop(lambda step, *_: step < n_steps, body, (0, loss_sum, metrics))
        mean = tf.math.divide_no_nan(loss_sum, tf.cast(tf.reduce_sum(n_valid, axis=0), loss_sum.dtype))
        return {"loss": mean, **self.metrics.results(metrics)}

    def _forward(self, values, inputs, target, weight, training):
        """Outputs, loss per member with penalties, and the values after updates of batch statistics and seeds."""
        state = list(zip(self.network.stacked, values, strict=True))
        with keras.StatelessScope(state_mapping=state, collect_losses=True) as scope:
            outputs = self.network.model(inputs, training=training)
            penalties = self.network.model.losses
        losses = member_losses(self._loss, target, outputs, weight)
        for penalty in penalties:
            losses += tf.cast(penalty, losses.dtype)
        return outputs, losses, [scope.get_current_value(variable) for variable in self.network.stacked]

    def _gather(self, data, indices):
        inputs, target, weight = data
        inputs = keras.tree.pack_sequence_as(self._input_structure, [tf.gather(array, indices) for array in inputs])
        target = tf.gather(target, indices)
        if not self._weighted:
            return inputs, target, None
        # One row of weights for all members, or one each.
        member = tf.range(self.n_members)[:, None] % tf.shape(weight)[0]
        pairs = tf.stack([tf.broadcast_to(member, tf.shape(indices)), indices], axis=-1)
        return inputs, target, tf.gather_nd(weight, pairs)


def _positions(some, variables):
    where = {id(variable): position for position, variable in enumerate(variables)}
    return [where[id(variable)] for variable in some]


def _reason(error):
    """The one line of a TensorFlow error that says what was wrong, before those that name nodes of the graph."""
    lines = error.message.splitlines()
    nodes = [number for number, line in enumerate(lines) if "[[{{node" in line and number]
    return lines[nodes[0] - 1 if nodes else 0].rpartition("}} ")[2].strip()


def _few_rows(target_spec, output):
    """Zeros like targets and outputs. No other axis is as long as the rows, so nothing broadcasts by chance."""
    sizes = [[1 if size is None else size for size in shape[1:]] for shape in (target_spec.shape, output.shape)]
    n_rows = next(n for n in range(2, 100) if n not in sizes[0] + sizes[1])
    target = np.zeros((n_rows, *sizes[0]), target_spec.dtype.as_numpy_dtype)
    return target, np.zeros((n_rows, *sizes[1]), keras.backend.standardize_dtype(output.dtype))


def _stacked(members, variables):
    return [
        tf.constant(np.stack(each), dtype=variable.dtype)
        for each, variable in zip(zip(*members, strict=True), variables, strict=True)
    ]


def _dense(gradient):
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _all_finite(tensors):
    """Flags of shape (n_members,): zero times anything finite is zero, and NaN otherwise."""
    if not tensors:  # all weights are frozen
        return tf.constant(True)
    zeros = [tf.reduce_sum(tensor * 0, axis=list(range(1, len(tensor.shape)))) for tensor in tensors]
    return tf.math.is_finite(tf.add_n([tf.cast(zero, zeros[0].dtype) for zero in zeros]))


def _select(taken, new, old):
    """`new` for members with the flag, `old` for the others; the common case of all costs nothing."""

    def choose(after, before):
        return tf.where(tf.reshape(taken, [-1] + [1] * (len(after.shape) - 1)), after, before)

    return tf.cond(
        tf.reduce_all(taken),
        lambda: tf.nest.map_structure(tf.identity, new),
        lambda: tf.nest.map_structure(choose, new, old),
    )


class Predictor:
    """Predictions of all members of a fused network, traced once for all batch sizes."""

    def __init__(self, network):
        self.n_members = network.n_members
        self._network = network
        inputs = keras.tree.flatten(network.template.graph.input)
        values = [tf.TensorSpec(v.shape, v.dtype) for v in network.stacked]
        shared = [tf.TensorSpec(t.shape, t.dtype) for t in inputs]
        own = [tf.TensorSpec((self.n_members, *t.shape), t.dtype) for t in inputs]
        self._shared = _Traced(self._predict_shared, values, shared)
        self._own = _Traced(self._predict_own, values, own)

    def predict_shared(self, values, inputs):
        """Outputs of shape (n_members, batch, ...) for one batch that all members see."""
        return self._shared(values, inputs)

    def predict_own(self, values, inputs):
        """Outputs of shape (n_members, batch, ...) for a batch of each member's own, (n_members, batch, ...)."""
        return self._own(values, inputs)

    def _predict_shared(self, values, inputs):
        def repeat(tensor):
            return tf.broadcast_to(tensor, tf.concat([[self.n_members], tf.shape(tensor)], axis=0))

        return self._predict_own(values, [tf.ensure_shape(repeat(t), (self.n_members, *t.shape)) for t in inputs])

    def _predict_own(self, values, inputs):
        inputs = keras.tree.pack_sequence_as(self._network.template.graph.input, inputs)
        state = list(zip(self._network.stacked, values, strict=True))
        with keras.StatelessScope(state_mapping=state):
            return self._network.model(inputs, training=False)


def stacked_tensors(arrays, network):
    """Stacked values as tensors of the dtypes of the network's variables."""
    return [tf.constant(array, dtype=v.dtype) for array, v in zip(arrays, network.stacked, strict=True)]


def device_data(inputs, target, weight):
    """Arrays as `DeviceData`; `weight` of shape (1 or n_members, n_rows) or None."""
    if weight is None:
        weight = np.zeros((0, 0))
    return DeviceData(
        [tf.constant(array) for array in inputs], tf.constant(target), tf.constant(weight, keras.config.floatx())
    )


def target_spec(target):
    """Spec of the targets with the row axis open."""
    return tf.TensorSpec((None, *target.shape[1:]), target.dtype)
