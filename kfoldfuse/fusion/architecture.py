"""Reading, comparing and copying architectures: what of a Keras model is not its weights."""

import contextlib
import functools
import hashlib
import itertools
import json
import types
import warnings
import weakref

import keras
import numpy as np

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.fusion import _keras_private

_PLAIN = (bool, int, float, str, type(None))
_SETTINGS = (keras.initializers.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint)
_numbers, _counter = weakref.WeakKeyDictionary(), itertools.count()
_REFERENCES = ("inbound_nodes", "input_layers", "output_layers")  # where a config names other layers


def describe(model):
    """The architecture of `model` as text to compare, free of the layer names that Keras counts up.

    Functions count by their code, defaults and enclosed values, not by their name. What cannot be compared counts as
    different: at worst, equal models are not fused.
    """
    with _quiet_about_lambdas():
        parts = [_config(model)]
        if parts[0] is None or not has_graph(model):
            # The config of a subclassed model, where it has one, need not tell all of its layers.
            parts += [_config(layer) or _plain_attributes(layer) for layer in model._flatten_layers(include_self=False)]
            parts.append(_plain_attributes(model))
        parts.append([[name, _function_text(function)] for _, name, function in _functions(model)])
        parts.append([[list(variable.shape), str(variable.dtype), variable.trainable] for variable in model.variables])
    return json.dumps(_renamed(parts, _names(parts, {})), sort_keys=True, default=_text)


def has_graph(model):
    """Whether Keras knows how data flow through `model`: it is functional or sequential, its `call` not overridden."""
    return _keras_private.is_functional(model) or type(model) is keras.Sequential


def copy_model(model):
    """A copy of `model` with the same architecture and weights of its own, not compiled.

    Raises
    ------
    UnfusableModelError
        Where Keras cannot rebuild the model from its config.
    """
    classes = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
    try:
        with keras.saving.custom_object_scope(classes), _quiet_about_lambdas():
            if not has_graph(model):
                return type(model).from_config(model.get_config())
            return _copy_graph(model, {})
    except Exception as error:
        raise UnfusableModelError(
            f"`model` must be a Keras model that can be copied from its config. Got {type(model).__name__} "
            f"{model.name!r}, and the copy failed with: {str(error).strip()} Pass a function that builds the model, or "
            "give its class `get_config` and `from_config`."
        ) from error


def _copy_graph(model, copies):
    """Clone a model layer by layer; one that appears in several nested models is one layer in the copy, too."""

    def copy_once(layer):
        if id(layer) not in copies:
            copies[id(layer)] = _copy_graph(layer, copies) if has_graph(layer) else _copy_layer(layer)
        return copies[id(layer)]

    # Keras compiles a clone like its original, and looks a user's own loss or metric up by name, in vain. Hence not
    # `clone_model` for a Sequential, and of a compiled functional model only its graph.
    if type(model) is keras.Sequential:
        inputs = [keras.Input(batch_shape=one.shape, dtype=one.dtype, name=one.name) for one in _inputs(model)]
        layers = [copy_once(layer) for layer in model.layers]
        return keras.Sequential([*inputs, *layers], name=model.name, trainable=model.trainable)
    if model.compiled:
        model = keras.Model(model.input, model.output, name=model.name, trainable=model.trainable)
    return keras.models.clone_model(model, clone_function=copy_once)


def _inputs(model):
    return getattr(model, "inputs", [])  # Keras raises AttributeError where it does not know them


def _copy_layer(layer):
    """A new layer of the same settings; functions go over as they are, for Keras finds them by name at best."""
    if type(layer) is keras.layers.Lambda:
        copied = keras.layers.Lambda(
            layer.function, arguments=layer.arguments, mask=layer.mask, name=layer.name, dtype=layer.dtype_policy
        )
        copied._output_shape = layer._output_shape
        return copied
    config = layer.get_config()
    live = {name: getattr(layer, name, None) for name in config}
    live = {name: value for name, value in live.items() if _is_function(value) or _is_own_setting(value)}
    return type(layer).from_config({**config, **live})


def _is_function(value):
    return isinstance(value, (types.FunctionType, functools.partial)) and not _is_keras(value)


def _is_own_setting(value):
    return isinstance(value, _SETTINGS) and not _is_keras(type(value))


def _is_keras(value):
    return str(getattr(value, "__module__", "")).split(".")[0] == "keras"


def refuse_shared_state(model):
    """Refuse what copies of a layer would silently share or carry from one batch to the next.

    Raises
    ------
    UnfusableModelError
        Names every such layer.
    """
    problems = []
    for layer in model._flatten_layers():
        problems += [
            f"layer {layer.name!r} has an attribute {name!r} that is a variable of the backend (use `self.add_weight`)"
            for name, value in sorted(vars(layer).items())
            if not name.startswith("_self_")  # TensorFlow's own notes
            and any(_is_raw_variable(item) for item in _items(value))
        ]
        if getattr(layer, "stateful", False) and not isinstance(layer, keras.Model):
            problems.append(f"layer {layer.name!r} has stateful=True and remembers the batch before (leave it out)")
    if problems:
        raise UnfusableModelError(
            "`model` must keep all its state in Keras variables that belong to one member. Got: "
            f"{'; '.join(problems)}. Change these layers."
        )


def _items(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _items(item)
    else:
        yield value


def _is_raw_variable(value):
    # Told by what it can do: TensorFlow itself must not be needed here.
    return hasattr(value, "assign") and hasattr(value, "handle") and not isinstance(value, keras.Variable)


@contextlib.contextmanager
def _quiet_about_lambdas():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The object being serialized includes a `lambda`")
        yield


def _config(layer):
    try:
        return keras.saving.serialize_keras_object(layer)
    except Exception:
        return None


def _plain_attributes(layer):
    plain = {name: value for name, value in vars(layer).items() if isinstance(value, _PLAIN) and name[0] != "_"}
    return {"class": f"{type(layer).__module__}.{type(layer).__qualname__}", **plain}


def _functions(model):
    """(layer, attribute, function) for every function of the user's among the settings of the model's layers."""
    for layer in model._flatten_layers():
        for name, value in sorted(vars(layer).items()):
            if _is_function(value) and not hasattr(type(layer), name):  # Keras wraps `build` on each instance
                yield layer, name, value


def _function_text(function):
    if isinstance(function, functools.partial):
        return [_function_text(function.func), _text(function.args), _text(sorted(function.keywords.items()))]
    if not isinstance(function, types.FunctionType):
        return _text(function)
    try:
        enclosed = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return _text(object())
    settings = (function.__defaults__, sorted((function.__kwdefaults__ or {}).items()), enclosed)
    return [function.__module__, function.__qualname__, _code_text(function.__code__), _text(settings)]


def _code_text(code):
    constants = [_code_text(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_freevars)]


def _text(value):
    """Text that is equal for equal values; for what cannot be compared, text that no other object has."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [_text(item) for item in value]
    if isinstance(value, (types.FunctionType, functools.partial)):
        return _function_text(value)
    if isinstance(value, dict):
        return [[_text(key), _text(item)] for key, item in value.items()]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    if isinstance(value, keras.DTypePolicy):
        return value.name
    return f"{type(value).__qualname__} number {_number(value)}"


def _number(value):
    """A number that no other object has or will have, unlike its id, which the next object may inherit."""
    try:
        return _numbers.setdefault(value, next(_counter))
    except TypeError:  # no hash, or no weak reference to it: equal to nothing, not even to itself
        return next(_counter)


def _is_keras_config(value):
    module = value.get("module")
    return isinstance(module, str) and module.split(".")[0] == "keras" and isinstance(value.get("config"), dict)


def _names(value, names):
    """Number the layer names in a config by the order in which they appear."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            names.setdefault(value["name"], len(names))
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            _names(item, names)
    return names


def _renamed(value, names, refers=False):
    """Replace layer names in a config by their numbers, so that dense_1 of two models compare equal.

    Only where names stand: an activation "relu" stays, even next to a layer that somebody called "relu".
    """
    if isinstance(value, dict):
        if _is_keras_config(value):
            # Seeds of Keras' own layers and initialisers end in variables; some draw one where none was given.
            value = {**value, "config": {key: item for key, item in value["config"].items() if key != "seed"}}
        return {
            key: _renamed(item, names, refers or key == "name" or key in _REFERENCES)
            for key, item in value.items()
            if key not in ("compile_config", "build_config")
        }
    if isinstance(value, (list, tuple)):
        return [_renamed(item, names, refers) for item in value]
    return names.get(value, value) if refers and isinstance(value, str) else value
