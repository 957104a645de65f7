"""Proofs for what you add to kfoldfuse: each harness raises AssertionError and names the property that fails."""

from kfoldfuse.testing.alone import Alone, largest_difference, train_alone
from kfoldfuse.testing.layer_rule import check_layer_rule

__all__ = ["Alone", "check_layer_rule", "largest_difference", "train_alone"]
