"""The optimizer and metrics of members, from what the user gave or a model was compiled with."""

import keras

from kfoldfuse.estimators.head import LOGITS
from kfoldfuse.estimators.parameters import list_of, suggest
from kfoldfuse.exceptions import LossyCopyError
from kfoldfuse.training import resolve_metrics
from kfoldfuse.training.optimizer import config_of, copy_optimizer

DEFAULT_OPTIMIZER = "adam"


def make_optimizer(identifier, keywords):
    """A fresh optimizer with the settings of what was given.

    Parameters
    ----------
    identifier : str, dict, class or keras.optimizers.Optimizer
        An object is not modified.
    keywords : dict
        Arguments that replace its own.

    Returns
    -------
    keras.optimizers.Optimizer

    Raises
    ------
    ValueError
        If there is no such optimizer, or it has no such argument, with the closest name.
    """
    found = _find(identifier)
    config = config_of(found)
    unknown = [name for name in keywords if name not in config]
    if unknown:
        raise ValueError(
            f"`optimizer__NAME` must be an argument of {type(found).__name__}: {', '.join(config)}. "
            f"Got {unknown[0]!r}. {suggest(unknown[0], config)}"
        )
    return copy_optimizer(found, **keywords)


def _find(identifier):
    if isinstance(identifier, keras.optimizers.Optimizer):
        return identifier
    if isinstance(identifier, type) and issubclass(identifier, keras.optimizers.Optimizer):
        return identifier()
    try:
        if isinstance(identifier, (str, dict)):
            return keras.optimizers.get(identifier)
    except (ValueError, TypeError):
        pass
    names = [name.lower() for name, value in vars(keras.optimizers).items() if isinstance(value, type)]
    raise ValueError(
        "`optimizer` must be a Keras optimizer: a name, a config, a class or an object. "
        f"Got {identifier!r}. {suggest(identifier, names, 'Use optimizer=' + repr(DEFAULT_OPTIMIZER) + '.')}"
    )


def make_metrics(identifiers, y, units, *, independent, outputs):
    """Fresh metrics as `keras.Model.compile` would make them.

    One difference: "accuracy" of units that stand by themselves counts each of them, and a logit above 0, not above
    0.5, as positive.

    Parameters
    ----------
    identifiers : None, or one or a list of str, function or keras.metrics.Metric
    y : ndarray
        As the loss gets it.
    units : int
    independent : bool
        Whether each unit of a classifier is a probability by itself.
    outputs : str
        "probabilities", "logits" or "numbers".

    Returns
    -------
    tuple of keras.metrics.Metric

    Raises
    ------
    ValueError
        If there is no such metric, with the closest name.
    """
    identifiers = list_of(identifiers)
    for position, identifier in enumerate(identifiers):
        if independent and isinstance(identifier, str) and identifier in ("accuracy", "acc"):
            threshold = 0.0 if outputs == LOGITS else 0.5
            identifiers[position] = keras.metrics.BinaryAccuracy(name=identifier, threshold=threshold)
    try:
        return resolve_metrics(identifiers, (None, *y.shape[1:]), (None, units))
    except LossyCopyError:
        raise
    except (ValueError, TypeError) as error:
        names = ["accuracy", *(name for name in vars(keras.metrics) if not name.startswith("_"))]
        unknown = next((item for item in identifiers if isinstance(item, str) and item not in names), identifiers)
        raise ValueError(
            f"`metrics` must be Keras metrics: names, objects or functions. Got {unknown!r}, and Keras says: {error} "
            f"{suggest(unknown, names, 'Use metrics=None for the loss only.')}"
        ) from error
