"""Five small convolutional networks on images of 28 x 28 pixels: fused, in a Keras loop, and in a tight loop.

python benchmarks/cnn.py
"""

import argparse

import keras
import numpy as np
from baselines import compare, print_machine

from kfoldfuse import FusedKFoldClassifier

LOSS = "sparse_categorical_crossentropy"


def build():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5, help="folds")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it runs, figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.members, options.epochs, options.rows = 2, 1, 100

    print_machine()
    print(
        f"{options.members} folds of {options.rows:,} simulated images, batch size 64, {options.epochs} epochs, Adam; "
        "seconds from the call to its return\n"
    )
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, options.rows)
    patterns = generator.normal(size=(10, 28, 28, 1))
    x = (patterns[y] + 2 * generator.normal(size=(options.rows, 28, 28, 1))).astype("float32")
    training = {"epochs": options.epochs, "batch_size": 64}
    fused = FusedKFoldClassifier(build, cv=options.members, random_state=0, **training)
    compare(fused, build, LOSS, x, y)
    print(f"\nout-of-fold accuracy of the fused folds: {fused.oof_score_:.3f}")


if __name__ == "__main__":
    main()
