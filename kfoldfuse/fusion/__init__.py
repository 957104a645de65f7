"""Keras models <-> one fused Keras model."""

from kfoldfuse.fusion.fuse import fuse, unfuse
from kfoldfuse.fusion.registry import register_layer_rule

__all__ = ["fuse", "register_layer_rule", "unfuse"]
