"""The only place in `kfoldfuse.training` that touches what Keras does not export.

`tests/training/test_keras_private.py` fails when Keras changes one of these.
"""

from keras.src.optimizers.base_optimizer import BaseOptimizer

# The TensorFlow optimizer class replaces these by versions for tf.distribute that need real variables, and refuses
# `stateless_apply`. The base class' own work on plain tensors.
_STATELESS_METHODS = (
    "assign",
    "assign_add",
    "assign_sub",
    "_var_key",
    "_apply_weight_decay",
    "_backend_update_step",
    "_backend_increment_gradient_accumulators",
    "_clip_by_norm",
    "_overwrite_model_variables_with_average_value",
    "stateless_apply",
)

_stateless_types = {}


def make_stateless(optimizer):
    """Give a Keras optimizer a working `stateless_apply`; returns the same object.

    The class is swapped for a subclass with the methods of Keras' backend-neutral base class, so that the user's own
    `update_step` runs unchanged.
    """
    kind = type(optimizer)
    if kind not in _stateless_types:
        overridden = {
            name: getattr(BaseOptimizer, name)
            for name in _STATELESS_METHODS
            if _defined_by_backend(kind, name)
        }
        _stateless_types[kind] = type(kind.__name__, (kind,), {**overridden, "__module__": kind.__module__})
    optimizer.__class__ = _stateless_types[kind]
    return optimizer


def _defined_by_backend(kind, name):
    """Whether the method in use is the TensorFlow class' one, not one that the optimizer or the user wrote."""
    for parent in kind.__mro__:
        if name in vars(parent):
            return parent.__module__.startswith("keras.src.backend.tensorflow")
    return False


def wrapped_function(metric):
    """The (function, keyword arguments) behind a `keras.metrics.MeanMetricWrapper`."""
    return metric._fn, metric._fn_kwargs


def all_layers(model):
    """The model, its layers, and the layers inside those. Public `layers` stops at wrappers such as Bidirectional."""
    return list(model._flatten_layers())
