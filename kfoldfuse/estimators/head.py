"""The head of a template: what its outputs mean, and which loss fits them."""

import keras
from keras import tree

from kfoldfuse.estimators._keras_private import producer_of
from kfoldfuse.estimators.parameters import suggest
from kfoldfuse.fusion._keras_private import is_functional
from kfoldfuse.fusion.template import functional_graph
from kfoldfuse.training import resolve_loss

SOFTMAX, SIGMOID, LINEAR = "softmax", "sigmoid", "linear"
PROBABILITIES, LOGITS, NUMBERS = "probabilities", "logits", "numbers"

_PASSING_ON = (
    keras.layers.Reshape,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Dropout,
)
_WITH_WEIGHTS = (
    keras.layers.Dense,
    keras.layers.EinsumDense,
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.Conv3D,
)
_MARGINS = (keras.losses.Hinge, keras.losses.SquaredHinge, keras.losses.CategoricalHinge)


def count_units(graph):
    """Units of the output layer.

    Parameters
    ----------
    graph : keras.Model
        Functional.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the model does not have one output of shape (batch, units).
    """
    outputs = tree.flatten(graph.output)
    if len(outputs) != 1 or len(outputs[0].shape) != 2 or outputs[0].shape[-1] is None:
        shapes = ", ".join(str(tuple(output.shape)) for output in outputs)
        raise ValueError(
            f"The model must have one output of shape (batch, units). Got {len(outputs)} of shape {shapes}. "
            "End the model in a layer such as Dense, behind Flatten or pooling where there are more axes."
        )
    return int(outputs[0].shape[-1])


def find_activation(graph):
    """What the model ends in: "softmax", "sigmoid", "linear", or None where its graph does not tell.

    Parameters
    ----------
    graph : keras.Model
        Functional.

    Returns
    -------
    str or None
    """
    return _activation_behind(tree.flatten(graph.output)[0])


def _activation_behind(tensor):
    operation, called_on = producer_of(tensor)
    kind = type(operation)
    if isinstance(operation, keras.Model):
        # A model of a user's own class is opaque: its layers do not say in which order they are called.
        known = kind is keras.Sequential or is_functional(operation)
        return find_activation(functional_graph(operation)) if known else None
    if isinstance(operation, keras.layers.Layer):
        if kind is keras.layers.Softmax:
            return SOFTMAX
        if kind in _PASSING_ON:
            return _activation_behind(called_on[0])
        if kind is keras.layers.Activation:
            named = _name_activation(operation.activation)
            return _activation_behind(called_on[0]) if named == LINEAR else named
        return _name_activation(operation.activation) if kind in _WITH_WEIGHTS else None
    # keras.ops.softmax(x) in the graph; the classes of operations have no public name.
    name = kind.__name__ if kind.__module__.startswith("keras.") else None
    return {"Softmax": SOFTMAX, "Sigmoid": SIGMOID}.get(name)


def _name_activation(function):
    known = {
        keras.activations.softmax: SOFTMAX,
        keras.activations.sigmoid: SIGMOID,
        keras.activations.linear: LINEAR,
        None: LINEAR,
    }
    return known.get(function)


def make_loss(identifier):
    """A `keras.losses.Loss` from what the user gave; None stays None.

    Raises
    ------
    ValueError
        If there is no such loss, with the closest name.
    """
    if identifier is None or isinstance(identifier, keras.losses.Loss):
        return identifier
    if isinstance(identifier, type) and issubclass(identifier, keras.losses.Loss):
        return identifier()
    if isinstance(identifier, (list, tuple)) or (isinstance(identifier, dict) and "class_name" not in identifier):
        raise ValueError(
            f"`loss` must be one loss, as the model has one output. Got {identifier!r}. Pass its name or object."
        )
    try:
        found = keras.losses.get(identifier)
    except (ValueError, TypeError):
        names = [name for name in vars(keras.losses) if not name.startswith("_")]
        raise ValueError(
            f"`loss` must be a Keras loss: a name, an object or a function. Got {identifier!r}. "
            f"{suggest(identifier, names, 'Use loss=None to choose by the targets.')}"
        ) from None
    if isinstance(found, keras.losses.Loss):
        return found
    # The object behind a name is the same function, and two of them compare equal where traced programs are reused.
    exported_as = getattr(found, "__name__", "")  # a functools.partial has none
    name = exported_as.replace("_", "")
    for kind in vars(keras.losses).values():
        exported = isinstance(kind, type) and issubclass(kind, keras.losses.Loss)
        if exported and kind.__name__.lower() == name and getattr(keras.losses, exported_as, None) is found:
            return kind()
    return resolve_loss(found)


def is_of_keras(loss):
    """Whether the loss is one that Keras exports."""
    return getattr(keras.losses, type(loss).__name__, None) is type(loss)


def read_outputs(activation, loss):
    """Whether a classifier's outputs are probabilities or logits.

    Parameters
    ----------
    activation : str or None
        As of `find_activation`.
    loss : keras.losses.Loss or None

    Returns
    -------
    "probabilities" or "logits"

    Raises
    ------
    ValueError
        Where the model and the loss contradict each other, or neither of them tells.
    """
    from_logits = getattr(loss, "from_logits", None)
    if activation in (SOFTMAX, SIGMOID):
        if from_logits:
            raise ValueError(
                f"`loss` must have from_logits=False for a model that ends in {activation}. Got from_logits=True. "
                "Remove the activation from the last layer, or from_logits from the loss."
            )
        return PROBABILITIES
    if activation == LINEAR:
        if from_logits is False:
            raise ValueError(
                "`loss` must have from_logits=True for a model that ends in linear units. Got "
                f"{type(loss).__name__}(from_logits=False). Give the last layer an activation, "
                f"or pass loss=keras.losses.{type(loss).__name__}(from_logits=True)."
            )
        if from_logits is None and loss is not None and is_of_keras(loss) and not isinstance(loss, _MARGINS):
            raise ValueError(
                "The model must end in softmax or sigmoid for this loss of a classifier. Got linear units with "
                f"{type(loss).__name__}. Give the last layer an activation, or use loss=None."
            )
        return LOGITS
    if from_logits is None:
        raise ValueError(
            "The model must end in softmax, sigmoid or linear units, so that its outputs can be read as "
            "probabilities. Got a last layer that does not tell. Pass a loss that does, such as "
            "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True) for logits."
        )
    return LOGITS if from_logits else PROBABILITIES
