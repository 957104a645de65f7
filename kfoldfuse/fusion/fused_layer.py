"""The one layer a fused model is made of: an operation of the template, run for all members at once.

Tensors have the member axis in front: (n_members, batch, ...). The layer owns the stacked variables; the template's
own operation is only ever called statelessly, on slices or on folded rows, and is never trained.
"""

import keras
from keras import ops, tree

from kfoldfuse.fusion import _keras_private, rows

RULE, FOLDED, COPIED = "rule", "folded", "copied"


class PerMember:
    """A regulariser or constraint of one member's variable, applied to the stacked variable member by member."""

    def __init__(self, function):
        self.function = function

    def __call__(self, stacked):
        """Results of shape (n_members, ...) for a stacked variable."""
        stacked = ops.convert_to_tensor(stacked)
        norms = _regularizer_terms(self.function, stacked)
        if norms is not None:
            return norms
        return ops.stack([self.function(value) for value in ops.unstack(stacked)])


def _regularizer_terms(function, stacked):
    """Penalty per member of Keras' L1 and L2 as one reduction, None for any other function."""
    kind = type(function)
    if kind not in (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2):
        return None
    axes = tuple(range(1, len(stacked.shape)))
    penalty = ops.zeros(stacked.shape[:1], dtype=stacked.dtype)
    # The strength goes through `ops.cast` as in Keras, which rounds it to float32 on the way: 0.01 * x differs by 2e-8.
    if kind is not keras.regularizers.L2:
        penalty = penalty + ops.cast(function.l1, stacked.dtype) * ops.sum(ops.abs(stacked), axis=axes)
    if kind is not keras.regularizers.L1:
        penalty = penalty + ops.cast(function.l2, stacked.dtype) * ops.sum(ops.square(stacked), axis=axes)
    return penalty


class StackedVariables:
    """Which stacked variable stands for which variable of the template, shared by all layers of one fused model."""

    def __init__(self, n_members):
        self.n_members = n_members
        self._stacked = {}

    def get(self, variable):
        """The stacked variable of `variable`, made on first use: tied weights stay tied."""
        stacked = self._stacked.get(id(variable))
        if stacked is None:
            stacked = keras.Variable(
                initializer="zeros",
                shape=(self.n_members, *variable.shape),
                dtype=variable.dtype,
                trainable=variable.trainable,
                autocast=False,
                name=variable.name,
            )
            if variable.regularizer is not None:
                stacked.regularizer = PerMember(variable.regularizer)
            if variable.constraint is not None:
                stacked.constraint = PerMember(variable.constraint)
            self._stacked[id(variable)] = stacked
        return stacked


class Weights:
    """What a rule reads and writes: ``weights(layer.kernel)`` is stacked, in the dtype the layer would read it in."""

    def __init__(self, layer, stacked):
        self._layer = layer
        self._stacked = stacked

    def __call__(self, variable):
        """Stacked value of a template's variable."""
        # A copy (of nothing, in a graph): TensorFlow would read the variable itself anew, after `assign` too.
        value = ops.copy(self._stacked.get(variable).value)
        dtype = self._layer.compute_dtype
        castable = self._layer.autocast and _keras_private.is_autocast(variable) and keras.backend.is_float_dtype(dtype)
        if castable and keras.backend.is_float_dtype(variable.dtype):
            return ops.cast(value, dtype)
        return value

    def assign(self, variable, value):
        """Update a variable that is not trained; members without rows in this step keep theirs."""
        stacked = self._stacked.get(variable)
        old = ops.convert_to_tensor(stacked.value)
        stacked.assign(rows.keep_active(ops.cast(value, stacked.dtype), old))

    def call_each(self, *tensors, **kwargs):
        """Call the layer itself once per member, on whole batches, padding included: (n_members, batch, ...).

        For layers that treat rows one by one but draw random numbers: a counter-based draw for the padded batch
        starts with the draw for the rows that count, so the padding changes nothing.
        """
        calls = [(args, kwargs) for args in zip(*[ops.unstack(tensor) for tensor in tensors], strict=True)]
        return call_each_member(self._layer, self._stacked, calls)[0]


class _CallSite:
    """One call of an operation in the template's graph: where its tensors go among the other arguments."""

    def __init__(self, args, kwargs, output_spec):
        flat, self._structure = tree.flatten((args, kwargs)), (args, kwargs)
        self._tensor_positions = [i for i, value in enumerate(flat) if isinstance(value, keras.KerasTensor)]
        self._others = [None if i in set(self._tensor_positions) else value for i, value in enumerate(flat)]
        self.tensors = [flat[i] for i in self._tensor_positions]
        self.output_spec = output_spec

    def fill_in(self, tensors, training):
        """The (args, kwargs) of the call, with `tensors` in place of the template's."""
        flat = list(self._others)
        for position, tensor in zip(self._tensor_positions, tensors, strict=True):
            flat[position] = tensor
        args, kwargs = tree.pack_sequence_as(self._structure, flat)
        # As in a Keras graph: the mode the model is called in comes before the one noted when the graph was made.
        if training is not None and "training" in kwargs:
            kwargs = {**kwargs, "training": training}
        return args, kwargs


class Hidden:
    """Keeps a value out of Keras' tracking: the template's variables are not the fused model's."""

    def __init__(self, value):
        self.value = value


class FusedLayer(keras.layers.Layer):
    """An operation of the template run for all members: by its rule, folded into the batch, or copied.

    Parameters
    ----------
    operation : keras.layers.Layer or keras.Operation
        The template's; not modified.
    stacked : StackedVariables
        Shared by the layers of one fused model.
    lowering : {"rule", "folded", "copied"}
        How it runs.
    rule : LayerRule or None
        For ``lowering="rule"``.
    """

    def __init__(self, operation, stacked, lowering, rule=None):
        super().__init__(name=f"{lowering}_{operation.name}", autocast=False)
        self._hidden = Hidden((operation, stacked))
        self._call_sites = Hidden([])
        self.n_members = stacked.n_members
        self.lowering = lowering
        self._rule = rule
        self.stacked_variables = [stacked.get(variable) for variable in getattr(operation, "variables", [])]
        self.built = True

    @property
    def operation(self):
        """The template's operation that this layer runs."""
        return self._hidden.value[0]

    def add_call_site(self, args, kwargs, output_spec):
        """Note one call of the template's graph; returns the (args, kwargs) to call this layer with."""
        site = _CallSite(args, kwargs, output_spec)
        self._call_sites.value.append(site)
        return (site.tensors,), {"call_site": len(self._call_sites.value) - 1}

    def compute_output_spec(self, tensors, call_site=0, training=None):
        """What the template's operation returns, with the member axis in front."""
        return self._call_sites.value[call_site].output_spec

    def call(self, tensors, call_site=0, training=None):
        """Run the operation for all members; tensors and outputs are (n_members, batch, ...)."""
        operation, stacked = self._hidden.value
        site = self._call_sites.value[call_site]
        if self.lowering == FOLDED:
            return _call_folded(operation, self.n_members, site, tensors, training)
        if self.lowering == COPIED:
            outputs, penalties = _call_copied(operation, stacked, site, tensors, training)
        else:
            outputs, penalties = self._call_rule(operation, stacked, site, tensors, training)
        for penalty in penalties:
            self.add_loss(penalty)
        return outputs

    def _call_rule(self, layer, stacked, site, tensors, training):
        if layer.autocast:
            tensors = [
                ops.cast(tensor, layer.input_dtype) if keras.backend.is_float_dtype(tensor.dtype) else tensor
                for tensor in tensors
            ]
        args, kwargs = site.fill_in(tensors, training)
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        kwargs.setdefault("training", bool(training))
        outputs = self._rule.function(layer, Weights(layer, stacked), *args, **kwargs)
        if layer.activity_regularizer is None:
            return outputs, []
        return outputs, [_activity_penalty(layer.activity_regularizer, output) for output in tree.flatten(outputs)]


def _activity_penalty(regularizer, output):
    """Penalty per member over the rows that count, divided by their number as Keras does."""
    n_valid = rows.current()
    penalties = []
    for member, activity in enumerate(ops.unstack(output)):
        activity = rows.leading(activity, member, n_valid)
        penalty = regularizer(activity)
        penalties.append(penalty / ops.cast(ops.shape(activity)[0], penalty.dtype))
    return ops.stack(penalties)


def _call_folded(operation, n_members, site, tensors, training):
    """Call an operation that treats rows one by one on the rows of all members together."""
    args, kwargs = site.fill_in([rows.merge_members(tensor) for tensor in tensors], training)
    outputs = operation(*args, **kwargs)
    return tree.map_structure(
        lambda output: _keeping_logits([output], lambda folded: rows.split_members(folded[0], n_members)), outputs
    )


def _call_copied(operation, stacked, site, tensors, training):
    """Call an operation once per member on its valid rows: right for anything Keras can call."""
    n_valid = rows.current()
    calls = [
        site.fill_in([rows.leading(tensor, member, n_valid) for tensor in of_member], training)
        for member, of_member in enumerate(zip(*[ops.unstack(tensor) for tensor in tensors], strict=True))
    ]
    n_rows = None if n_valid is None else ops.shape(tensors[0])[1]
    return call_each_member(operation, stacked, calls, n_rows)


def call_each_member(operation, stacked, calls, n_rows=None):
    """Call `operation` statelessly with each member's slice of the stacked variables.

    Parameters
    ----------
    operation : keras.Operation
        A layer, a whole model or an operation of `keras.ops`.
    stacked : StackedVariables
        Variables of all members; those the call updates are updated.
    calls : list of (args, kwargs)
        One per member, tensors without the member axis.
    n_rows : int or scalar tensor, optional
        Pad each member's outputs to this many rows.

    Returns
    -------
    outputs : structure of tensors of shape (n_members, batch, ...)
    penalties : list of tensors of shape (n_members,)
        What the operation added by `add_loss` or by activity regularisers.
    """
    variables = list(getattr(operation, "variables", []))
    values = [ops.unstack(ops.convert_to_tensor(stacked.get(variable).value)) for variable in variables]
    outputs, penalties, updates = [], [], []
    for member, (args, kwargs) in enumerate(calls):
        state = [(variable, value[member]) for variable, value in zip(variables, values, strict=True)]
        with keras.StatelessScope(state_mapping=state, collect_losses=True) as scope:
            outputs.append(operation(*args, **kwargs))
            penalties.append(list(scope.losses))
            updates.append([scope.get_current_value(variable) for variable in variables])
    for position, variable in enumerate(variables):
        new = [update[position] for update in updates]
        if any(value is not old for value, old in zip(new, values[position], strict=True)):
            old = ops.convert_to_tensor(stacked.get(variable).value)
            stacked.get(variable).assign(rows.keep_active(ops.stack(new), old))
    join = ops.stack if n_rows is None else lambda each: ops.stack([rows.pad_rows(output, n_rows) for output in each])
    joined = tree.map_structure(lambda *each: _keeping_logits(each, join), *outputs)
    return joined, [ops.stack(each) for each in zip(*penalties, strict=True)]


def _keeping_logits(outputs, join):
    """Join outputs into one fused tensor, and with them the mask and the logits that Keras' losses look up."""
    joined = join(outputs)
    for get, set_ in (
        (_keras_private.get_mask, _keras_private.set_mask),
        (_keras_private.get_logits, _keras_private.set_logits),
    ):
        attached = [get(output) for output in outputs]
        if all(value is not None for value in attached):
            set_(joined, join(attached))
    return joined
