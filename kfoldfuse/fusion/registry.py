"""Which rule runs a layer type fused. Looked up by exact type: a subclass may call anything it likes."""

import dataclasses
import inspect
from collections.abc import Callable

import keras

_RULES = {}


@dataclasses.dataclass(frozen=True)
class LayerRule:
    """How one layer type runs fused. See `register_layer_rule`."""

    function: Callable
    variables: tuple
    applies: Callable | None

    def covers(self, layer):
        """Whether the rule may stand for this very layer."""
        known = {id(_attribute(layer, path)) for path in self.variables}
        if any(id(variable) not in known for variable in layer.variables):
            return False  # LoRA, quantisation, an activation that is a layer: more state than the rule knows
        activation = getattr(layer, "activation", None)
        if activation is not None and activation not in _ELEMENTWISE_ACTIVATIONS:
            return False  # a user's function may look across rows
        return self.applies is None or self.applies(layer)

    def accepts(self, layer, args, kwargs):
        """Whether the rule takes these arguments of the layer's call; one it does not know (a mask) is for copying."""
        try:
            inspect.signature(self.function).bind(layer, None, *args, **{"training": None, **kwargs})
        except TypeError:
            return False
        return True


def _attribute(layer, path):
    value = layer
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


# Keras' own activations look along the last axis at most, which a member axis in front leaves alone.
_ELEMENTWISE_ACTIVATIONS = frozenset(
    value for name, value in vars(keras.activations).items() if callable(value) and not name.startswith("_")
)


def register_layer_rule(layer_type, rule=None, *, variables=(), applies=None):
    """Teach kfoldfuse to run a layer type fused, instead of once per member.

    A layer without a rule is always right but slower: it is called once per member ("copied"). Write a rule when your
    own layer is where the time goes, and prove it with `kfoldfuse.testing.check_layer_rule`.

    Parameters
    ----------
    layer_type : type
        The exact class the rule is for. Subclasses do not inherit it.
    rule : callable, optional
        ``rule(layer, weights, *args, training, **kwargs) -> output``. ``args`` are what the layer's ``call`` gets, each
        tensor with the member axis in front: (n_members, batch, ...). ``layer`` is the template's layer, for its
        settings. ``weights(layer.kernel)`` is the stacked value of that variable, of shape (n_members, ...), in the
        dtype that the layer would read it in; ``weights.assign(layer.variable, value)`` updates one that is not trained
        (members without rows in this step keep theirs). What looks across rows must use
        ``kfoldfuse.fusion.rows.row_mask(batch)``. A call with arguments that the rule does not take (a mask, say) is
        copied. Without `rule`, a decorator is returned.
    variables : tuple of str
        Attributes of the layer that hold its variables (``"kernel"``, ``"seed_generator.state"``). A layer with any
        other variable (LoRA, quantised) is copied.
    applies : callable, optional
        ``applies(layer) -> bool``; False leaves this layer to copying.

    Returns
    -------
    callable
        The rule, unchanged.

    Examples
    --------
    >>> import keras
    >>> from kfoldfuse import register_layer_rule
    >>> class Scale(keras.layers.Layer):
    ...     def build(self, shape):
    ...         self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
    ...
    ...     def call(self, x):
    ...         return x * self.scale
    >>> @register_layer_rule(Scale, variables=("scale",))
    ... def fused_scale(layer, weights, x, *, training):
    ...     return x * keras.ops.expand_dims(weights(layer.scale), 1)
    """
    if not (isinstance(layer_type, type) and issubclass(layer_type, keras.layers.Layer)):
        raise TypeError(
            f"`layer_type` must be a class derived from keras.layers.Layer. Got {layer_type!r}. Pass the class itself."
        )
    if rule is None:
        return lambda function: register_layer_rule(layer_type, function, variables=variables, applies=applies)
    if not callable(rule):
        raise TypeError(f"`rule` must be callable. Got {rule!r}. Pass a function (layer, weights, *args, training).")
    _RULES[layer_type] = LayerRule(rule, tuple(variables), applies)
    return rule


def unregister_layer_rule(layer_type):
    """Forget the rule of `layer_type`; its layers are copied from now on."""
    _RULES.pop(layer_type, None)


def find_rule(layer):
    """The rule that may run `layer` fused, or None."""
    rule = _RULES.get(type(layer))
    return rule if rule is not None and rule.covers(layer) else None


def ruled_types():
    """Layer types that have a rule."""
    return tuple(_RULES)
