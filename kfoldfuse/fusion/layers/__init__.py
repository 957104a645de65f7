"""One rule per Keras layer family. Importing this package registers them."""

from kfoldfuse.fusion.layers import (
    batch_normalization,
    convolution,
    dense,
    einsum_dense,
    embedding,
    normalization,
    prelu,
    preprocessing,
    random,
)

__all__ = [
    "batch_normalization",
    "convolution",
    "dense",
    "einsum_dense",
    "embedding",
    "normalization",
    "prelu",
    "preprocessing",
    "random",
]
