"""One rule per Keras layer family. Importing this package registers them."""

from kfoldfuse.fusion.layers import dense, normalization, random

__all__ = ["dense", "normalization", "random"]
