"""Where a member starts from."""

from kfoldfuse.fusion.template import draw_initial_weights
from kfoldfuse.training.job import MemberState


def initial_state(template, seed):
    """A fresh member: weights drawn from its seed by the layers' own initialisers, no optimizer state yet."""
    return MemberState(draw_initial_weights(template, seed))
