"""The network every member copies, as a functional Keras model, and how a member draws its first weights from it."""

import contextlib
import copy
import dataclasses
import functools
import random
import threading
from collections.abc import Callable

import keras
import numpy as np
from keras import tree

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.fusion import _keras_private
from kfoldfuse.fusion.architecture import copy_model, describe, refuse_shared_state

__all__ = [
    "SEED",
    "Template",
    "assign_values",
    "copy_model",
    "describe",
    "draw_initial_weights",
    "isolated_randomness",
    "make_template",
    "member_model",
]

# Initialisers without randomness: every member starts from the value that the template drew.
_DETERMINISTIC = (
    keras.initializers.Zeros,
    keras.initializers.Ones,
    keras.initializers.Constant,
    keras.initializers.Identity,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Template:
    """A built model whose layers are ours to read, and how each of its variables began.

    Attributes
    ----------
    model : keras.Model
        As the user wrote it. Its own values are never trained. A member's values are in the order of its `variables`.
    graph : keras.Model
        The same layers as a functional model.
    build : callable
        Returns another model like `model`, for a member to be handed out as.
    initializers : list
        One per variable of ``model.variables``: the callable that a member draws its value with, `SEED` for the state
        of a seed generator, or None where every member starts from the template's value.
    """

    model: keras.Model
    graph: keras.Model
    build: Callable
    initializers: list

    @property
    def n_weights(self):
        """Numbers in one member, trained or not."""
        return sum(int(np.prod(variable.shape)) for variable in self.model.variables)

    @functools.cached_property
    def fixed_values(self):
        """Values of the variables that every member starts with alike, None for those it draws."""
        return [
            keras.ops.convert_to_numpy(variable.value) if initializer is None else None
            for variable, initializer in zip(self.model.variables, self.initializers, strict=True)
        ]

    def __reduce__(self):
        # `model` and `graph` share layers and would come back as strangers. How variables began stays behind: a member
        # that is sent to another process takes its first values along.
        specs = tree.map_structure(lambda tensor: keras.KerasTensor(tensor.shape, dtype=tensor.dtype), self.graph.input)
        return _restored, (self.model, specs)


def _restored(model, input_specs):
    with isolated_randomness(0):
        graph = functional_graph(model, input_specs)
    return Template(model, graph, lambda: copy_model(model), [None] * len(model.variables))


SEED = "seed"


_global_randomness = threading.RLock()  # Python's and NumPy's generators are the whole process's


@contextlib.contextmanager
def isolated_randomness(seed):
    """Seed what user code may draw from (Python, NumPy, Keras), and leave all of it as found.

    One thread at a time: programs that are built in parallel would draw from each other's seeds.
    """
    with _global_randomness, _seeded(seed):
        yield


@contextlib.contextmanager
def _seeded(seed):
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the legacy state is the point
    with _keras_private.kept_global_seed():
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            _keras_private.use_global_seed(seed % 2**31)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def make_template(build, *, seed, input_specs=None):
    """Build the network that members copy.

    Parameters
    ----------
    build : callable
        Returns a new Keras model; called once, with global random state seeded and restored.
    seed : int
        For what `build` itself draws. The members' weights do not depend on it.
    input_specs : structure of keras.KerasTensor, optional
        Shapes of one batch, batch axis None; needed where the model does not know its input yet.

    Returns
    -------
    Template
    """
    with isolated_randomness(seed), _keras_private.recorded_initializers() as records:
        model = build()
        if not isinstance(model, keras.Model):
            raise UnfusableModelError(
                f"`model` must be a Keras model or a function that returns one. Got {type(model).__name__} from the "
                "function. Return the model."
            )
        refuse_shared_state(model)
        graph = functional_graph(model, input_specs)
        _complete(model, graph)
    return Template(model, graph, build, [_initializer_of(variable, records) for variable in model.variables])


def member_model(template, values):
    """An ordinary Keras model with one member's values, in the order of ``template.model.variables``."""
    with isolated_randomness(0):
        model = template.build()
        if model is template.model:  # a function that returns one and the same model
            model = copy_model(model)
        if not model.built:
            model(
                tree.map_structure(lambda tensor: keras.KerasTensor(tensor.shape, tensor.dtype), template.graph.input)
            )
        _complete(model, template.graph)
    shapes, expected = ([tuple(one.shape) for one in each.variables] for each in (model, template.model))
    if shapes != expected:
        raise UnfusableModelError(
            f"`model` must build the same architecture whenever it is called. Got weights of shapes {shapes} after "
            f"{expected}. Make the function depend on its arguments only."
        )
    assign_values(model, values)
    return model


def _complete(model, graph):
    """Build what only a call with data builds (an activation that is a layer); the state stays as it was."""
    if all(layer.built for layer in model._flatten_layers()):
        return
    variables = list(model.variables)
    before = [keras.ops.convert_to_numpy(variable.value) for variable in variables]
    model(tree.map_structure(_one_row, graph.input))
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)


def _one_row(tensor):
    return np.ones((1, *(size or 1 for size in tensor.shape[1:])), keras.backend.standardize_dtype(tensor.dtype))


def assign_values(model, values):
    """Give a model's variables new values, in the order of ``model.variables``."""
    for variable, value in zip(model.variables, values, strict=True):
        variable.assign(value)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization) and layer.built and layer.input_mean is None:
            layer.finalize_state()  # it computes with copies of its variables


def functional_graph(model, input_specs=None):
    """The call of `model` as a functional model that shares its layers; a subclassed one is a graph of one layer."""
    if type(model) is keras.Sequential and not model.built and input_specs is not None:
        model.build(tree.flatten(input_specs)[0].shape)
    if type(model) is keras.Sequential and model.built:
        graph = keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    elif _keras_private.is_functional(model):
        graph = model
    else:
        specs = specs_of_built(model) if input_specs is None else input_specs
        inputs = _inputs_of(specs)
        graph = keras.Model(inputs, model(inputs), name=model.name)
    for tensor in graph.inputs:
        if tensor.shape[0] is not None:
            raise UnfusableModelError(
                f"`model` must leave the batch size open. Got an input of shape {tuple(tensor.shape)}. Use "
                "keras.Input(shape) without `batch_size`."
            )
    return graph


def _inputs_of(specs):
    if isinstance(specs, dict):  # Keras warns where the names of inputs are not the keys
        return {name: keras.Input(spec.shape[1:], dtype=spec.dtype, name=name) for name, spec in specs.items()}
    return tree.map_structure(lambda spec: keras.Input(spec.shape[1:], dtype=spec.dtype), specs)


def draw_initial_weights(template, seed):
    """First values of one member's variables, drawn with the layers' own initialisers from the member's seed.

    Parameters
    ----------
    template : Template
    seed : int
        The member's.

    Returns
    -------
    list of ndarray
        In the order of ``template.model.variables``. A variable the model's function set itself keeps that value.
    """
    variables = zip(template.model.variables, template.initializers, template.fixed_values, strict=True)
    return [
        fixed.copy() if initializer is None else _draw(variable, initializer, seed, position)
        for position, (variable, initializer, fixed) in enumerate(variables)
    ]


def _draw(variable, initializer, member_seed, position):
    sequence = np.random.SeedSequence(member_seed, spawn_key=(position,))
    seed = int(sequence.generate_state(1)[0]) % (2**31 - 1)
    if initializer is SEED:
        return np.array([seed, 0], dtype=keras.backend.standardize_dtype(variable.dtype))
    if hasattr(initializer, "seed"):
        initializer = copy.copy(initializer)
        initializer.seed = seed
        value = initializer(tuple(variable.shape), dtype=variable.dtype)
    else:
        with isolated_randomness(seed):
            value = initializer(tuple(variable.shape), dtype=variable.dtype)
    return keras.ops.convert_to_numpy(value)


def _initializer_of(variable, records):
    if variable.name == "seed_generator_state":
        return SEED
    if id(variable) not in records:
        return None
    _, initializer, drawn = records[id(variable)]
    if type(initializer) in _DETERMINISTIC:
        return None
    unchanged = np.array_equal(keras.ops.convert_to_numpy(drawn), keras.ops.convert_to_numpy(variable.value))
    return initializer if unchanged else None


def specs_of_built(model):
    """Input spec of a built model that has no graph."""
    config = model.get_build_config() if model.built else None
    shapes = (config or {}).get("input_shape") or (config or {}).get("shapes_dict")
    if not shapes:
        raise UnfusableModelError(
            f"`model` must know its input shape. Got {type(model).__name__} {model.name!r}, which was never built. "
            "Call it once on data, or begin it with keras.Input."
        )
    if isinstance(shapes, dict):
        shapes = next(iter(shapes.values()))
    return keras.KerasTensor((None, *shapes[1:]), dtype=model.input_dtype)
