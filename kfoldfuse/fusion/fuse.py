"""From a template to one fused Keras model and back.

Every tensor of the fused model is (n_members, batch, ...). The template's graph is rewritten node by node; where a
node or the whole graph does not keep rows apart, the copying lowering takes over, so that the result is always right.
"""

import dataclasses

import keras
import numpy as np
from keras import tree

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.fusion import (
    fused_layer,
    layers,  # noqa: F401 - registers the rules
    registry,
)
from kfoldfuse.fusion import template as templates
from kfoldfuse.fusion._keras_private import is_functional
from kfoldfuse.fusion.architecture import copy_model, describe, has_graph
from kfoldfuse.fusion.rowwise import is_row_wise
from kfoldfuse.fusion.template import member_model

_PROBE_BATCH = 7919  # stands for the open batch size when shapes are traced; a prime that no other axis has by chance


@dataclasses.dataclass(frozen=True, eq=False)
class FusedNetwork:
    """A fused model with the template it was made from.

    Attributes
    ----------
    model : keras.Model
        Functional; inputs and outputs of shape (n_members, batch, ...).
    template : Template
    n_members : int
    stacked : list of keras.Variable
        Of shape (n_members, ...), in the order of ``template.model.variables``.
    lowerings : dict of str to str
        Lowering per layer of the template: "rule", "folded" or "copied".
    """

    model: keras.Model
    template: templates.Template
    n_members: int
    stacked: list
    lowerings: dict


class _RowsMixed(Exception):
    """The graph does not keep one row of output per row of input, or carries masks: it is copied whole."""


def build_fused(template, n_members):
    """Fuse `n_members` copies of a template; the stacked variables are zero until assigned.

    Parameters
    ----------
    template : Template
    n_members : int

    Returns
    -------
    FusedNetwork
    """
    stacked = fused_layer.StackedVariables(n_members)
    lowerings = {}
    try:
        model = _GraphFuser(stacked, lowerings).fuse(template.graph)
    except _RowsMixed:
        stacked, lowerings = fused_layer.StackedVariables(n_members), {}
        model = _copy_whole(template.graph, stacked)
        lowerings[template.graph.name] = fused_layer.COPIED
    variables = [stacked.get(variable) for variable in template.model.variables]
    network = FusedNetwork(model, template, n_members, variables, lowerings)
    model.fused_network = fused_layer.Hidden(network)
    return network


class _GraphFuser:
    def __init__(self, stacked, lowerings):
        self.stacked = stacked
        self.n_members = stacked.n_members
        self.lowerings = lowerings
        self._fused = {}  # id of an operation, lowering -> what stands for it: shared layers stay shared
        self._specs = {}  # id of a fused tensor -> (that tensor, one member's spec with _PROBE_BATCH rows)

    def fuse(self, graph):
        """The fused functional model of a functional `graph`."""
        inputs = tree.map_structure(self._fused_input, graph.input)
        return keras.models.clone_model(
            graph, input_tensors=inputs, clone_function=self._stand_in, call_function=self._call
        )

    def _fused_input(self, tensor):
        fused = keras.Input(batch_shape=(self.n_members, *tensor.shape), dtype=tensor.dtype, name=tensor.name)
        self._remember(fused, keras.KerasTensor((_PROBE_BATCH, *tensor.shape[1:]), dtype=tensor.dtype))
        return fused

    def _remember(self, fused, spec):
        self._specs[id(fused)] = (fused, spec)

    def _stand_in(self, operation):
        # Only `_call` knows the arguments that decide about the lowering; until then the operation is its own name.
        return operation

    def _call(self, operation, *args, **kwargs):
        kwargs = {name: value for name, value in kwargs.items() if not (name == "mask" and value is None)}
        specs = tree.map_structure(self._spec_of, (args, kwargs))
        output_specs = _row_aligned(operation, *specs)
        if is_functional(operation) or type(operation) is keras.Sequential:
            outputs = self._nested(operation)(*args, **kwargs)
        else:
            fused = self._fused_layer(operation, specs)
            spec = tree.map_structure(self._with_member_axis, output_specs)
            call_args, call_kwargs = fused.add_call_site(args, kwargs, spec)
            outputs = fused(*call_args, **call_kwargs)
        for output, spec in zip(tree.flatten(outputs), tree.flatten(output_specs), strict=True):
            self._remember(output, spec)
        return outputs

    def _spec_of(self, value):
        return self._specs[id(value)][1] if isinstance(value, keras.KerasTensor) else value

    def _with_member_axis(self, spec):
        return keras.KerasTensor((self.n_members, None, *spec.shape[1:]), dtype=spec.dtype)

    def _nested(self, model):
        if id(model) not in self._fused:
            graph = templates.functional_graph(model)
            nested = _GraphFuser(self.stacked, self.lowerings)
            nested._fused = self._fused
            self._fused[id(model)] = nested.fuse(graph)
        return self._fused[id(model)]

    def _fused_layer(self, operation, specs):
        # Per call, not per layer: the same layer may get a mask, or mix rows, at one of its calls only.
        lowering, rule = choose_lowering(operation, *specs)
        key = (id(operation), lowering)
        if key not in self._fused:
            self._fused[key] = fused_layer.FusedLayer(operation, self.stacked, lowering, rule)
        if self.lowerings.get(operation.name) != fused_layer.COPIED:
            self.lowerings[operation.name] = lowering
        return self._fused[key]


def choose_lowering(operation, args, kwargs):
    """How an operation runs fused: (lowering, rule or None).

    Decided by what the operation has and by its exact type: a rule where one covers it; folding for what Keras ships
    without variables and treats rows one by one, tried out; copying for everything else.
    """
    if not isinstance(operation, keras.layers.Layer):
        folds = is_row_wise(operation, args, kwargs)
        return (fused_layer.FOLDED if folds else fused_layer.COPIED), None
    rule = registry.find_rule(operation)
    if rule is not None and rule.accepts(operation, args, kwargs):
        return fused_layer.RULE, rule
    kind = type(operation)
    ships_with_keras = getattr(keras.layers, kind.__name__, None) is kind and kind is not keras.layers.Lambda
    stateless = not operation.variables and operation.activity_regularizer is None
    if ships_with_keras and stateless and is_row_wise(operation, args, kwargs):
        return fused_layer.FOLDED, None
    return fused_layer.COPIED, None


def _row_aligned(operation, args, kwargs):
    """Output specs of one member's call, checked to have a row per input row and no mask."""
    output_specs = operation.compute_output_spec(*args, **kwargs)
    for spec in tree.flatten(output_specs):
        if spec.shape[:1] != (_PROBE_BATCH,) or _PROBE_BATCH in spec.shape[1:]:
            raise _RowsMixed
    if isinstance(operation, keras.layers.Layer) and not isinstance(operation, keras.Model):
        # Masks travel beside the tensors; only the layers themselves know what to do with them.
        mask = operation.compute_mask(args[0] if args else None, kwargs.get("mask"))
        if any(value is not None for value in tree.flatten(mask)):
            raise _RowsMixed
    return output_specs


def _copy_whole(graph, stacked):
    """A fused model of one copied layer: the graph itself."""
    _refuse_outputs_without_rows(graph)
    inputs = tree.map_structure(
        lambda tensor: keras.Input(
            batch_shape=(stacked.n_members, *tensor.shape), dtype=tensor.dtype, name=tensor.name
        ),
        graph.input,
    )
    spec = tree.map_structure(
        lambda tensor: keras.KerasTensor((stacked.n_members, *tensor.shape), dtype=tensor.dtype), graph.output
    )
    fused = fused_layer.FusedLayer(graph, stacked, fused_layer.COPIED)
    call_args, call_kwargs = fused.add_call_site((inputs,), {}, spec)
    return keras.Model(inputs, fused(*call_args, **call_kwargs), name=graph.name)


def _refuse_outputs_without_rows(graph):
    probe = tree.map_structure(
        lambda tensor: keras.KerasTensor((_PROBE_BATCH, *tensor.shape[1:]), dtype=tensor.dtype), graph.input
    )
    for output, spec in zip(graph.outputs, tree.flatten(graph.compute_output_spec(probe)), strict=True):
        # A size that Keras cannot tell is given the benefit of the doubt.
        if not spec.shape or spec.shape[0] not in (_PROBE_BATCH, None) or _PROBE_BATCH in spec.shape[1:]:
            raise UnfusableModelError(
                f"`model` must return one row for each row of its input. Got an output of shape {tuple(output.shape)} "
                f"from {graph.name!r}. Leave reductions over the batch to the loss."
            )


def fuse(models):
    """Join Keras models of one architecture into a single Keras model that runs them all at once.

    For inference with many models, or to train them together by your own loop. To train k folds or an ensemble from
    scratch, the estimators do this for you.

    Parameters
    ----------
    models : sequence of keras.Model
        At least one; built; equal architectures, any weights. They are not modified and share nothing with the result.

    Returns
    -------
    keras.Model
        Functional. Each input and output has the members in front: (n_members, batch, ...).

    Raises
    ------
    UnfusableModelError
        Where the architectures differ, or the first model cannot be copied.

    Examples
    --------
    >>> import keras, numpy as np
    >>> from kfoldfuse import fuse, unfuse
    >>> models = [keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]) for _ in range(3)]
    >>> fused = fuse(models)
    >>> fused(np.ones((3, 8, 4))).shape
    TensorShape([3, 8, 2])
    >>> [model.count_params() for model in unfuse(fused)]
    [10, 10, 10]
    """
    models = list(models)
    if not models or not all(isinstance(model, keras.Model) for model in models):
        kinds = [type(model).__name__ for model in models]
        raise UnfusableModelError(f"`models` must be one or more Keras models. Got {kinds}. Pass a list of models.")
    for position, model in enumerate(models):
        if not model.built:
            raise _unbuilt(position, model)
    first, text = models[0], describe(models[0])
    for position, model in enumerate(models):
        if describe(model) != text:
            raise UnfusableModelError(
                f"`models` must share one architecture. Model {position} ({model.name!r}) differs from model 0 "
                f"({first.name!r}). Fuse models with different layers or settings in separate calls."
            )
    specs = None if has_graph(first) else templates.specs_of_built(first)
    template = templates.make_template(lambda: copy_model(first), seed=0, input_specs=specs)
    # From here on the template is what gets copied: the user's model may change.
    template = dataclasses.replace(template, build=lambda: copy_model(template.model))
    shapes, own = ([tuple(one.shape) for one in model.variables] for model in (template.model, first))
    if len(shapes) > len(own) and not all(layer.built for layer in first._flatten_layers()):
        raise _unbuilt(0, first)
    if shapes != own or describe(template.model) != text:
        raise UnfusableModelError(
            "`models` must come out of a copy by Keras as they went in. Got a different architecture for "
            f"{first.name!r}. Give its class, or its layers' classes, a `get_config` that tells all their settings."
        )
    network = build_fused(template, len(models))
    for position, stacked in enumerate(network.stacked):
        stacked.assign(np.stack([_numpy(model.variables[position]) for model in models]))
    return network.model


def _unbuilt(position, model):
    unbuilt = [layer.name for layer in model._flatten_layers() if not layer.built] or [model.name]
    return UnfusableModelError(
        f"`models` must be built. Model {position} ({model.name!r}) has no weights yet for {unbuilt}. Call it once on "
        "data."
    )


def unfuse(fused_model):
    """The members of a fused model as ordinary Keras models.

    Parameters
    ----------
    fused_model : keras.Model
        Made by `fuse`, or an estimator's ``model_``.

    Returns
    -------
    list of keras.Model
        With weights, batch statistics and random states of their own; uncompiled.
    """
    hidden = getattr(fused_model, "fused_network", None)
    if hidden is None:
        raise UnfusableModelError(
            f"`fused_model` must come from kfoldfuse.fuse. Got {type(fused_model).__name__}. Keep the model that "
            "`fuse` returned: it knows the template of its members."
        )
    network = hidden.value
    values = [_numpy(stacked) for stacked in network.stacked]
    return [member_model(network.template, [value[i] for value in values]) for i in range(network.n_members)]


def _numpy(variable):
    return keras.ops.convert_to_numpy(variable.value)
