"""The folds of a cross-validation, or the members of an ensemble, of Keras networks: trained as one program.

The public names load on first use: ``import kfoldfuse`` does not load TensorFlow.
"""

import importlib

__version__ = "0.1.0"

_MODULE_OF = {
    "FusedEnsembleClassifier": "kfoldfuse.estimators",
    "FusedEnsembleRegressor": "kfoldfuse.estimators",
    "FusedKFoldClassifier": "kfoldfuse.estimators",
    "FusedKFoldRegressor": "kfoldfuse.estimators",
    "fuse": "kfoldfuse.fusion",
    "register_layer_rule": "kfoldfuse.fusion",
    "unfuse": "kfoldfuse.fusion",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__():
    return sorted({*globals(), *__all__})
