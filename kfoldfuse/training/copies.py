"""A copy must have the settings of the original: Keras copies by `get_config`, which a user may not have written."""

from kfoldfuse.exceptions import LossyCopyError

_PLAIN = (bool, int, float, str, type(None))


def checked_copy(original, fresh, parameter):
    """Return the fresh copy if it has the settings of the original.

    Parameters
    ----------
    original, fresh : keras.Optimizer or keras.Metric
    parameter : str
        What the original was given as, for the message.

    Returns
    -------
    keras.Optimizer or keras.Metric
        `fresh`.

    Raises
    ------
    LossyCopyError
        If a public attribute with a plain value differs. Without the check, such an optimizer trains with the defaults
        of its class, and nobody notices.
    """
    if type(original).__module__.startswith("keras."):
        return fresh
    for name, value in vars(original).items():
        if name.startswith("_") or name == "built" or not isinstance(value, _PLAIN):
            continue
        copied = getattr(fresh, name, None)
        if copied != value and not (value != value and copied != copied):  # NaN is NaN
            raise LossyCopyError(
                f"`{parameter}` must have a `get_config` that holds all its arguments, as each member gets a copy. Got "
                f"{type(original).__name__} with {name}={value!r}, and its copy has {copied!r}. Add {name!r} to "
                "`get_config`."
            )
    return fresh
