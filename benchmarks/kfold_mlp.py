"""Ten folds of a small network on tabular data: fused, in a Keras loop, and in a tight one-member loop.

python benchmarks/kfold_mlp.py                       # about a minute
python benchmarks/kfold_mlp.py --members 100 --skip-keras
"""

import argparse

import keras
import numpy as np
from baselines import compare, print_machine

from kfoldfuse import FusedKFoldClassifier
from kfoldfuse.training import clear_programs

LOSS = "sparse_categorical_crossentropy"


def build():
    return keras.Sequential(
        [
            keras.Input((50,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )


def simulate(n_rows):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(n_rows, 50)).astype("float32")
    return x, (x @ generator.normal(size=(50, 3)) + generator.normal(size=(n_rows, 3))).argmax(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10, help="folds")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--skip-keras", action="store_true", help="leave out the slow loop")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it runs, figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.members, options.epochs, options.rows = 3, 1, 300

    print_machine()
    print(
        f"{options.members} folds of {options.rows:,} x 50 rows, MLP 64-64-3, batch size 128, {options.epochs} epochs, "
        "Adam; seconds from the call to its return\n"
    )
    x, y = simulate(options.rows)
    training = {"epochs": options.epochs, "batch_size": 128}
    fused = FusedKFoldClassifier(build, cv=options.members, random_state=0, **training)
    # What a process pays once (threads, kernels, memory pools) is paid here, by all ways alike.
    FusedKFoldClassifier(build, cv=2, random_state=0, epochs=1).fit(x[:100], y[:100])
    clear_programs()

    compare(fused, build, LOSS, x, y, with_keras_loop=not options.skip_keras)
    print(f"\nout-of-fold accuracy of the fused folds: {fused.oof_score_:.3f}")


if __name__ == "__main__":
    main()
