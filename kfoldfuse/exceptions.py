"""What kfoldfuse raises and warns about, beyond the ValueError and TypeError of a wrong parameter."""


class FusionError(Exception):
    """The parent of kfoldfuse's own errors; catch it to catch them all."""


class UnfusableModelError(FusionError, ValueError):
    """The template, or a set of models, cannot be fused; the message names the layer and says what to change."""


class LossyCopyError(FusionError, ValueError):
    """Members cannot get equal copies of an optimizer or metric, as its `get_config` leaves out arguments."""


class MemberFailureError(FusionError, RuntimeError):
    """Members' losses became NaN or infinite: all of them, or any with ``on_member_failure="raise"``."""


class MemberFailureWarning(UserWarning):
    """A member's loss became NaN or infinite; it was frozen and is left out of the combined prediction."""
