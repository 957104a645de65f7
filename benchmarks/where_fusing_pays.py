"""Ten networks fused and one after another, as they get wider: where the gain ends.

    python benchmarks/where_fusing_pays.py

All ways are traced before they are timed and run without Python per step, so that only the steps are compared. With
max_fused=1 kfoldfuse itself trains one member after another.
"""

import argparse

import keras
import numpy as np
from baselines import TightLoop, print_machine, seconds

from kfoldfuse import FusedEnsembleRegressor


def make_build(width):
    def build():
        return keras.Sequential(
            [
                keras.Input((50,)),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(1),
            ]
        )

    return build


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[16, 64, 256, 1024], help="units of both hidden layers"
    )
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it runs, figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.members, options.widths, options.epochs, options.rows = 2, [4, 8], 1, 200

    print_machine()
    print(
        f"{options.members} members, {options.rows:,} x 50 rows, batch size {options.batch_size}; "
        "seconds per epoch of all members\n"
    )
    generator = np.random.default_rng(0)
    x = generator.normal(size=(options.rows, 50)).astype("float32")
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]).astype("float32")
    row_sets = [np.arange(options.rows)] * options.members
    print(f"{'hidden units':>14}{'tight loop':>14}{'max_fused=1':>14}{'fused':>14}{'tight / fused':>16}")
    for width in options.widths:
        build = make_build(width)
        training = {"epochs": options.epochs, "batch_size": options.batch_size}
        tight = TightLoop(build, "mean_squared_error", x, y, row_sets, **training)
        estimators = [
            FusedEnsembleRegressor(build, n_members=options.members, max_fused=size, random_state=0, **training)
            for size in (1, "auto")
        ]
        timed = []
        for function, *data in [(tight.run,), *((estimator.fit, x, y) for estimator in estimators)]:
            function(*data)  # traces
            timed.append(seconds(function, *data) / options.epochs)
        cells = "".join(f"{value:>14.3f}" for value in timed)
        print(f"{f'{width}-{width}':>14}{cells}{timed[0] / timed[2]:>16.1f}", flush=True)


if __name__ == "__main__":
    main()
