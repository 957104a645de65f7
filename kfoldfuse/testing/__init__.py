"""Proofs for what you add to kfoldfuse: each harness raises AssertionError and names the property that fails."""

from kfoldfuse.testing.layer_rule import check_layer_rule

__all__ = ["check_layer_rule"]
