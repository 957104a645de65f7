"""Parameters of estimators: stored as given, ``model__NAME`` and ``optimizer__NAME`` among them, checked in `fit`."""

import difflib
from collections.abc import Callable
from numbers import Integral, Real

import keras

from kfoldfuse.training import check_callbacks

ROUTES = ("model__", "optimizer__")


def store_parameters(estimator, given):
    """Set the arguments of ``__init__`` as attributes, and nothing else.

    Parameters
    ----------
    estimator : estimator
        Its ``__init__`` is running.
    given : dict
        The ``locals()`` of that ``__init__``, with the keywords behind the named arguments in "model__keywords": a
        name that may be passed itself, as scikit-learn's checks do with every name of the signature.

    Raises
    ------
    TypeError
        For a keyword that is no parameter, with the closest one.
    """
    given = {name: value for name, value in given.items() if name not in ("self", "__class__")}
    keywords = given.pop("model__keywords")
    unknown = [name for name in keywords if not _is_routed(name)]
    if unknown:
        raise TypeError(_describe_unknown(estimator, unknown, list(given)))
    for name, value in given.items():
        setattr(estimator, name, value)
    # A private attribute: scikit-learn's contract has no public ones that the signature does not name.
    estimator._routed = keywords


class RoutedParametersMixin:
    """`get_params` and `set_params` that know ``model__NAME`` and ``optimizer__NAME``."""

    def get_params(self, deep=True):
        """Parameters of this estimator, those for the model's function and the optimizer included.

        Parameters
        ----------
        deep : bool, default=True
            Also the parameters of `preprocessor`, where it is a scikit-learn transformer.

        Returns
        -------
        dict of str to object
        """
        return {**super().get_params(deep=deep), **self._routed}

    def set_params(self, **params):
        """Set parameters of this estimator; ``model__NAME`` and ``optimizer__NAME`` need not exist before.

        Parameters
        ----------
        **params : dict
            Names as of `get_params`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a name that is no parameter, with the closest one; nothing is set then.
        """
        valid = self.get_params(deep=True)
        unknown = [name for name in params if name not in valid and not _is_routed(name)]
        if unknown:
            raise ValueError(_describe_unknown(self, unknown, list(super().get_params(deep=True))))
        super().set_params(**{name: value for name, value in params.items() if not _is_routed(name)})
        # A new dict: a shallow copy of the estimator holds the old one.
        self._routed = {**self._routed, **{name: value for name, value in params.items() if _is_routed(name)}}
        return self

    def _keywords_of(self, route):
        """Keywords handed to the model's function ("model__") or the optimizer ("optimizer__")."""
        return {name.removeprefix(route): value for name, value in self._routed.items() if name.startswith(route)}


def _is_routed(name):
    return any(name.startswith(route) and name != route for route in ROUTES)


def _describe_unknown(estimator, unknown, valid):
    return (
        f"Parameters of {type(estimator).__name__} must be {', '.join(valid)}, model__NAME or optimizer__NAME. "
        f"Got {', '.join(repr(name) for name in unknown)}. {suggest(unknown[0], valid)}"
    )


def suggest(name, valid, otherwise="Use one of these."):
    """One sentence with the closest of the valid names."""
    close = difflib.get_close_matches(str(name), list(valid), n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def check_common_parameters(estimator):
    """Problems of the parameters that all estimators share, one sentence each; nothing is changed.

    Parameters
    ----------
    estimator : estimator

    Returns
    -------
    list of str

    Raises
    ------
    TypeError, ValueError
        For callbacks that cannot work by epochs (see `kfoldfuse.training.check_callbacks`).
    """
    problems = [
        f"`{name}` must be an int of at least 1. Got {getattr(estimator, name)!r}. Use {name}={default}."
        for name, default in (("epochs", 100), ("batch_size", 32))
        if not is_count(getattr(estimator, name))
    ]
    max_fused, n_jobs = estimator.max_fused, estimator.n_jobs
    if not (is_count(max_fused) or (isinstance(max_fused, str) and max_fused == "auto")):
        problems.append(
            f"`max_fused` must be 'auto' or an int of at least 1. Got {max_fused!r}. "
            "Use max_fused='auto' to fit programs into the memory."
        )
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        problems.append(f"`n_jobs` must be None or an int other than 0. Got {n_jobs!r}. Use n_jobs=None.")
    if estimator.on_member_failure not in ("warn", "raise"):
        problems.append(
            f"`on_member_failure` must be 'warn' or 'raise'. Got {estimator.on_member_failure!r}. "
            "Use 'warn' to leave members that fail out of the combination."
        )
    if not isinstance(estimator.verbose, Integral):
        problems.append(f"`verbose` must be an int. Got {estimator.verbose!r}. Use verbose=1 for a progress bar.")
    problems += _check_looking(estimator)
    check_callbacks(list_of(estimator.callbacks))
    return problems


def _check_looking(estimator):
    """Problems of `validation` and `early_stopping`."""
    problems = []
    validation, stopping = estimator.validation, estimator.early_stopping
    is_fraction = isinstance(validation, Real) and 0 < validation < 1
    if not (validation is None or is_fraction or (isinstance(validation, str) and validation == "held_out")):
        problems.append(
            "`validation` must be None, a float between 0 and 1 (a part of a member's training rows) or 'held_out'. "
            f"Got {validation!r}. Use validation=0.1 for a tenth of the training rows."
        )
    if not isinstance(stopping, (bool, keras.callbacks.EarlyStopping)):
        problems.append(
            f"`early_stopping` must be True, False or a keras.callbacks.EarlyStopping. Got {stopping!r}. "
            "Use early_stopping=True for a patience of 10 epochs."
        )
    watched = [getattr(callback, "monitor", None) for callback in list_of(estimator.callbacks)]
    watched = [name for name in watched if isinstance(name, str) and name.startswith("val_")]
    if watched and validation is None and stopping is False:
        problems.append(
            f"`validation` must be set for callbacks that look at {watched[0]!r}. Got validation=None. "
            "Use validation=0.1 for a tenth of each member's training rows."
        )
    return problems


def is_count(value):
    """Whether `value` is an int of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


def list_of(value):
    """None as an empty list, one object as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def training_callbacks(estimator):
    """The callbacks of a member: the user's, and early stopping behind them."""
    stopping = estimator.early_stopping
    if stopping is True:
        stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=10, restore_best_weights=True)
    return (*list_of(estimator.callbacks), *([stopping] if stopping else []))


def validation_of(estimator):
    """`validation`, or the tenth that early stopping looks at if nothing was said."""
    stopping = estimator.early_stopping
    looks = stopping is True or (stopping is not False and str(stopping.monitor).startswith("val_"))
    return 0.1 if estimator.validation is None and looks else estimator.validation


def is_function(value):
    """Whether `value` is to be called for a model."""
    return isinstance(value, Callable) and not isinstance(value, keras.Model)
