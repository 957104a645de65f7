"""When may two jobs share a traced program? When everything the trace bakes in is the same."""

import functools
import json
import types

import keras

from kfoldfuse.fusion.template import describe
from kfoldfuse.training._keras_private import (
    all_layers,
    own_learning_rate,
    weight_decay_exclusions,
    wrapped_arguments,
    wrapped_function,
)
from kfoldfuse.training.losses import FunctionLoss

_WHERE_EXPORTED = (keras.optimizers, keras.losses, keras.metrics)


def template_signature(template):
    """Hashable identity of a template's architecture.

    Text where Keras' own layers and their configs say everything; the object itself where user code takes part, since
    two functions of one name may do different things.
    """
    layers = all_layers(template.model)
    if all(_is_plain(layer) for layer in layers):
        policies = tuple(layer.dtype_policy.name for layer in layers)
        return (type(template.model).__name__, policies, describe(template.model))
    return template


def _is_plain(layer):
    """Whether the layer is one of Keras' own, configured by nothing but Keras' own objects and plain values."""
    kind = type(layer)
    if not kind.__module__.startswith("keras.") or kind is keras.layers.Lambda:
        return False
    # What other layers learn by `adapt` (a vocabulary) is no variable and not all in the config.
    if hasattr(layer, "adapt") and kind is not keras.layers.Normalization:
        return False
    return all(_is_plain_setting(value) for value in vars(layer).values())


def _is_plain_setting(value):
    if isinstance(value, functools.partial):
        return False
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return (value.__module__ or "").startswith("keras.")
    if isinstance(value, (keras.Initializer, keras.Regularizer, keras.constraints.Constraint)):
        return type(value).__module__.startswith("keras.")
    # An object that is called (an activation, a regulariser) may hold anything, and its config tells its class only.
    return not callable(value) or type(value).__module__.startswith("keras.")


def object_signature(value, without=()):
    """Hashable identity of an optimizer, loss or metric; objects of the user's own classes stand for themselves."""
    kind = type(value)
    if isinstance(value, FunctionLoss):
        return (value.function, value.dtype)
    if kind is keras.metrics.MeanMetricWrapper:
        function, arguments = wrapped_function(value)
        return value if arguments else (function, value.name, value.dtype)
    if not any(getattr(module, kind.__name__, None) is kind for module in _WHERE_EXPORTED):
        return value
    if isinstance(value, keras.Optimizer) and own_learning_rate(value) is not None:
        return value
    config = value.get_config()
    text = json.dumps({key: item for key, item in config.items() if key not in without}, sort_keys=True, default=repr)
    if "function" in text or "lambda" in text:
        return value
    # Huber leaves `delta` out of its config, CosineSimilarity and SparseCategoricalCrossentropy leave out `axis`.
    arguments = sorted((name, repr(given)) for name, given in wrapped_arguments(value).items())
    return (kind.__name__, text, tuple(arguments), getattr(value, "dtype", None))


def settings_signature(settings):
    """Hashable identity of what a program bakes in: all settings but epochs, callbacks, order and learning rate."""
    optimizer = settings.optimizer
    without = ("name", "learning_rate") if has_learning_rate_variable(optimizer) else ("name",)
    return (
        object_signature(optimizer, without),
        weight_decay_exclusions(optimizer)[1],
        object_signature(settings.loss, ("name",)),
        tuple(object_signature(metric) for metric in settings.metrics),
        tuple(object_signature(metric) for metric in settings.weighted_metrics),
        settings.batch_size,
        keras.config.floatx(),
    )


def bakes_in_user_code(settings):
    """Whether optimizer, loss or metrics run code of the user's own.

    Such code may read what changes between two fits (a global, an attribute), so its trace is good for one fit only.
    """
    values = (settings.optimizer, settings.loss, *settings.metrics, *settings.weighted_metrics)
    return not all(_runs_keras_only(value) for value in values)


def _runs_keras_only(value):
    signature = object_signature(value)
    if not isinstance(signature, tuple):
        return False
    return not callable(signature[0]) or (getattr(signature[0], "__module__", None) or "").startswith("keras.")


def has_learning_rate_variable(optimizer):
    """Whether the learning rate is a number, kept as a variable, not a schedule."""
    return any(variable.name == "learning_rate" for variable in optimizer.variables)
