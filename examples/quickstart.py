"""Ten folds of three networks, each ten trained as one program, next to the same folds in a plain Keras loop.

    python examples/quickstart.py            # a minute or two
    python examples/quickstart.py --quick    # few rows and epochs: shows that it runs, scores and times mean nothing

Data come with scikit-learn; nothing is downloaded.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow loads: its start-up notes are not for here

import keras
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from kfoldfuse import FusedKFoldClassifier, FusedKFoldRegressor
from kfoldfuse.fusion.template import make_template
from kfoldfuse.splitting import draw_entropy, member_seed
from kfoldfuse.testing import train_alone
from kfoldfuse.training import FitJob, Settings

RANDOM_STATE = 0


def small_cnn():
    """A convolution and a hidden layer, for images of 8 x 8 pixels."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def mlp(n_features, n_outputs, activation):
    """What kfoldfuse trains with model=None, written out for the Keras loop."""
    return keras.Sequential(
        [
            keras.Input((n_features,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(n_outputs, activation=activation),
        ]
    )


def digits(as_images):
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype("float32")
    return (X.reshape(-1, 8, 8, 1) if as_images else X), y


def diabetes():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X.astype("float32"), ((y - 150) / 75).astype("float32")  # numbers near 1, where a network starts


def make_cases(quick):
    """Name, estimator, X, y, and the same network for the Keras loop."""
    folds = StratifiedKFold(10, shuffle=True, random_state=RANDOM_STATE)
    common = {"batch_size": 32, "random_state": RANDOM_STATE}
    return [
        (
            "digits, CNN",
            FusedKFoldClassifier(small_cnn, cv=folds, epochs=1 if quick else 12, **common),
            *digits(as_images=True),
            small_cnn,
        ),
        (
            "digits, MLP",
            FusedKFoldClassifier(cv=folds, epochs=1 if quick else 12, **common),
            *digits(as_images=False),
            lambda: mlp(64, 10, "softmax"),
        ),
        (
            "diabetes, MLP",
            FusedKFoldRegressor(cv=10, epochs=1 if quick else 15, preprocessor=StandardScaler(), **common),
            *diabetes(),
            lambda: mlp(10, 1, "linear"),
        ),
    ]


def keras_loop(estimator, build, X, y):
    """Train the same folds one after another, as one would by hand; returns nothing: it is here for its time."""
    for split in estimator.splits_:
        rows = X[split.train]
        if estimator.preprocessor is not None:
            rows = clone(estimator.preprocessor).fit_transform(rows)
        model = build()
        model.compile(optimizer="adam", loss=loss_of(y))
        model.fit(rows, y[split.train], epochs=estimator.epochs, batch_size=estimator.batch_size, verbose=0)


def loss_of(y):
    return "sparse_categorical_crossentropy" if y.dtype.kind == "i" else "mean_squared_error"


def difference_to_alone(estimator, build, X, y, fold):
    """Largest difference between a fold's weights and those of plain Keras, from the same start with the same batches.

    Keras' own `Model.fit` trains the fold here; kfoldfuse only says where the fold starts and in which order its rows
    come. The start and the order follow from random_state and the number of the fold.
    """
    entropy = draw_entropy(RANDOM_STATE)
    data = X if estimator.preprocessor is None else estimator.preprocessors_[fold].transform(X)
    job = FitJob(
        template=make_template(build, seed=entropy % 2**31),
        x=data,
        y=y if y.dtype.kind == "i" else y[:, None],
        rows=estimator.splits_[fold].train,
        settings=Settings(
            optimizer=keras.optimizers.Adam(),
            loss=keras.losses.get(loss_of(y)),
            epochs=estimator.epochs,
            batch_size=estimator.batch_size,
        ),
        seed=member_seed(entropy, fold),
    )
    alone = train_alone(job).model.get_weights()
    fused = estimator.members_[fold].get_weights()
    return max(float(np.abs(a - b).max()) for a, b in zip(fused, alone, strict=True))


def differences(estimator, build, X, y):
    """`difference_to_alone` of fold 3 in float32, for the fit that was timed, and of a short fit in float64."""
    in_float32 = difference_to_alone(estimator, build, X, y, fold=3)
    set_precision("float64")
    try:
        X, y = X.astype("float64"), y if y.dtype.kind == "i" else y.astype("float64")
        short = clone(estimator).set_params(epochs=min(estimator.epochs, 5)).fit(X, y)
        return in_float32, difference_to_alone(short, build, X, y, fold=3)
    finally:
        set_precision("float32")


def set_precision(name):
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


def run_case(name, estimator, X, y, build):
    """Train one case both ways and measure it: a column of the table."""
    stratify = y if y.dtype.kind == "i" else None
    X, X_held_out, y, y_held_out = train_test_split(X, y, test_size=0.2, random_state=0, stratify=stratify)
    print(f"{name:<15}{len(X):>5,} rows, {estimator.epochs:>2} epochs:  fused", end=" ... ", flush=True)
    fused_seconds = seconds(estimator.fit, X, y)
    print(f"{fused_seconds:.1f} s,  one by one in a Keras loop", end=" ... ", flush=True)
    keras_seconds = seconds(keras_loop, estimator, build, X, y)
    print(f"{keras_seconds:.1f} s", flush=True)
    in_float32, in_float64 = differences(estimator, build, X, y)
    return {
        "scores": estimator.member_scores_,
        "out-of-fold": estimator.oof_score_,
        "held out": estimator.score(X_held_out, y_held_out),
        "fused": fused_seconds,
        "keras": keras_seconds,
        "float32": in_float32,
        "float64": in_float64,
    }


def seconds(function, *args):
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started


def print_table(names, columns, metrics):
    def line(title, cells):
        print(f"{title:<38}" + "".join(f"{cell:>15}" for cell in cells))

    def line_of(title, key, form):
        line(title, [format(column[key], form) for column in columns])

    def rule(title):
        print(f"{title} ".ljust(38 + 15 * len(names), "-"))

    print()
    line("", names)
    rule("Scores")
    line("", metrics)
    for fold in range(10):
        line(f"fold {fold}, on the rows it left out", [f"{column['scores'][fold]:.3f}" for column in columns])
    line_of("out-of-fold, every row", "out-of-fold", ".3f")
    line_of("all folds together, on new rows", "held out", ".3f")
    rule("Seconds for ten folds")
    line_of("fused", "fused", ".1f")
    line_of("one by one in a Keras loop", "keras", ".1f")
    line("times faster", [f"{column['keras'] / column['fused']:.1f}" for column in columns])
    rule("Largest difference of a weight, fold 3 fused and fold 3 trained alone by Keras")
    line_of("in float32, the fit above", "float32", ".0e")
    line_of("in float64, up to 5 epochs", "float64", ".0e")


EXPLANATION = """
"New rows" are a fifth of the data that no fold saw. Fused seconds run from the call of fit to its return: building,
tracing, training and out-of-fold predictions. The Keras loop only trains.

Fused and alone do the same sums in another order. Float32 rounds them differently, and once in a while that puts a ReLU
on the other side of 0, which shows in later weights. In float64 nothing but the last digits differs.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows and epochs")
    quick = parser.parse_args().quick

    keras.ops.zeros(1)  # TensorFlow says now, not amid the table, which devices it found
    print("Ten folds of each network, trained as one program (fused) and one after another (Keras loop)\n")
    cases = make_cases(quick)
    columns = []
    for name, estimator, X, y, build in cases:
        if quick:
            X, y = X[:300], y[:300]
        columns.append(run_case(name, estimator, X, y, build))
    print_table([case[0] for case in cases], columns, ["accuracy", "accuracy", "R²"])
    print(EXPLANATION)


if __name__ == "__main__":
    main()
