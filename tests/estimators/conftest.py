"""Small data and networks; the same shapes everywhere, so that traced programs are used again."""

import keras
import numpy as np
import pytest
from sklearn.datasets import make_blobs


@pytest.fixture(scope="session")
def blobs():
    """Three separable classes in random order: X of shape (60, 4), y of shape (60,)."""
    X, y = make_blobs(n_samples=60, n_features=4, centers=3, cluster_std=2.0, random_state=0)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


@pytest.fixture(scope="session")
def line():
    """A noisy linear function: X of shape (60, 4), y of shape (60,)."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 4))
    return X, X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * generator.normal(size=60)


@pytest.fixture(scope="session")
def net():
    """A function that returns a network with the head that fits, or the one asked for."""

    def build(meta, units=6, head=None, n_outputs=None):
        heads = {"multiclass": "softmax", "binary": "sigmoid", "multilabel": "sigmoid", "regression": "linear"}
        return keras.Sequential(
            [
                keras.Input(meta["X_shape_"][1:]),
                keras.layers.Dense(units, activation="tanh"),
                keras.layers.Dense(n_outputs or meta["n_outputs_"], activation=head or heads[meta["target_type_"]]),
            ]
        )

    return build


@pytest.fixture(scope="session")
def quick(net):
    """Parameters of a fit that takes a moment."""
    return {"model": net, "epochs": 15, "batch_size": 16, "optimizer__learning_rate": 0.05, "random_state": 0}
