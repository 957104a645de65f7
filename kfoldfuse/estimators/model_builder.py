"""From the `model` parameter to a template: the user's function or model, called or copied, its settings read."""

import dataclasses
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras

from kfoldfuse.estimators import inputs as inputs_module
from kfoldfuse.estimators.default_model import default_model
from kfoldfuse.estimators.parameters import is_function, suggest
from kfoldfuse.fusion.template import copy_model


@dataclasses.dataclass(frozen=True)
class CompiledSettings:
    """What a model was compiled with; None where it was not."""

    optimizer: Any = None
    loss: Any = None
    metrics: Any = None
    weighted_metrics: Any = None


def make_meta(estimator, x, targets):
    """What a model's function may ask about the data: the mapping `meta`, read-only.

    Parameters
    ----------
    estimator : estimator
    x : ndarray, or dict or list of ndarray
        As the network gets it, behind a preprocessor.
    targets : Targets

    Returns
    -------
    mapping
    """
    return MappingProxyType(
        {
            "n_features_in_": estimator.n_features_in_,
            "X_shape_": inputs_module.shapes_of(x),
            "X_dtype_": inputs_module.dtypes_of(x),
            "target_type_": targets.kind,
            "classes_": targets.classes,
            "n_classes_": None if targets.classes is None else len(targets.classes),
            "n_outputs_": targets.n_outputs,
        }
    )


def make_builder(model, keywords, meta):
    """A function without arguments that returns a new Keras model.

    Parameters
    ----------
    model : None, callable or keras.Model
    keywords : dict
        The ``model__NAME`` parameters.
    meta : mapping

    Returns
    -------
    callable

    Raises
    ------
    TypeError
        If `model` is something else, or its function does not take a keyword or needs one more.
    """
    if isinstance(model, keras.Model):
        if keywords:
            raise TypeError(
                f"`model` must be a function to take model__{next(iter(keywords))}. Got a Keras model, "
                f"{model.name!r}. Write a function that takes it and returns the model."
            )
        return lambda: copy_model(model)
    if model is not None and not is_function(model):
        raise TypeError(
            f"`model` must be None, a Keras model or a function that returns one. Got {model!r}. "
            "Use model=None for a multilayer perceptron."
        )
    function = default_model if model is None else model
    arguments = _bind(function, keywords, meta)
    return lambda: function(**arguments)


def _bind(function, keywords, meta):
    """Arguments to call the function with: the keywords, and `meta` if it asks for it."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    name_of = getattr(function, "__name__", type(function).__name__)
    unknown = [name for name in keywords if name not in named or name == "meta"]
    if unknown and not takes_any:
        valid = [name for name in named if name != "meta"]
        raise TypeError(
            f"`model__NAME` must be a keyword of {name_of}: {', '.join(valid) or 'it has none'}. "
            f"Got {unknown[0]!r}. {suggest(unknown[0], valid, 'Add it to the function.')}"
        )
    arguments = {**keywords, **({"meta": meta} if "meta" in named else {})}
    missing = [name for name in named if name not in arguments and parameters[name].default is inspect.Parameter.empty]
    if missing:
        raise TypeError(
            f"`model` must be a function whose keywords have values. Got {name_of}, whose {missing[0]!r} has none. "
            f"Pass model__{missing[0]}=..., or give it a default."
        )
    return arguments


def read_compiled(model):
    """Settings that a Keras model was compiled with; the model is only read.

    Parameters
    ----------
    model : object
        Anything but a compiled Keras model has no settings.

    Returns
    -------
    CompiledSettings

    Raises
    ------
    ValueError
        If it was compiled with something that cannot be read back, or with loss weights.
    """
    if not isinstance(model, keras.Model) or not model.compiled:
        return CompiledSettings()
    try:
        config = model.get_compile_config() or {}
        metrics = _revive(config.get("metrics"))
        weighted_metrics = _revive(config.get("weighted_metrics"))
    except Exception as error:
        raise ValueError(
            f"`model` must be compiled with metrics that Keras can serialise. Got {model.name!r}, and Keras says: "
            f"{error} Pass `metrics` to the estimator, and leave them out of compile."
        ) from error
    if config.get("loss_weights") is not None:
        raise ValueError(
            f"`model` must be compiled without loss_weights. Got {config['loss_weights']!r}. "
            "Scale the loss in a loss function of your own."
        )
    return CompiledSettings(model.optimizer, model.loss, metrics, weighted_metrics)


def _revive(config):
    if isinstance(config, (list, tuple)):
        return [_revive(item) for item in config]
    if isinstance(config, Mapping) and "class_name" in config:
        return keras.saving.deserialize_keras_object(dict(config), safe_mode=False)
    if isinstance(config, Mapping):
        raise ValueError("metrics per output are for models with several outputs.")
    return config
