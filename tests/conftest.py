import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest


@pytest.fixture
def float64():
    """Keras in float64 for one test."""
    import keras

    # Keras makes its default dtype policy from floatx once and keeps it.
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture
def make_jobs():
    """Fit jobs on simulated data, one per split."""
    import dataclasses

    import keras
    import numpy as np

    from kfoldfuse.fusion.template import make_template
    from kfoldfuse.training import FitJob, Settings, resolve_loss, resolve_metrics

    def small_net(n_outputs=1, activation=None, dropout=0.3):
        return keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(6, "relu", kernel_regularizer=keras.regularizers.L2(0.01)),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(dropout),
                keras.layers.Dense(n_outputs, activation),
            ]
        )

    def data(n_rows, target, seed=0):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(n_rows, 4))
        targets = {
            "regression": x[:, 0] - x[:, 1] ** 2 + generator.normal(size=n_rows) / 5,
            "binary": (x[:, 0] + generator.normal(size=n_rows) / 2 > 0).astype("int64"),
            "multiclass": generator.integers(0, 3, n_rows),
        }
        return x, targets[target]

    def jobs(
        *,
        build=None,
        n_rows=23,
        n_folds=3,
        target="regression",
        loss="mse",
        optimizer=None,
        metrics=(),
        weighted_metrics=(),
        weighted=False,
        validation=False,
        epochs=3,
        batch_size=7,
        members=None,
        **settings,
    ):
        x, y = data(n_rows, target)
        template = make_template(build or small_net, seed=0)
        shapes = (y.shape, template.graph.output.shape)
        chosen = Settings(
            optimizer=optimizer or keras.optimizers.SGD(0.1),
            loss=resolve_loss(loss),
            metrics=resolve_metrics(metrics, *shapes),
            weighted_metrics=resolve_metrics(weighted_metrics, *shapes),
            epochs=epochs,
            batch_size=batch_size,
            **settings,
        )
        weight = np.random.default_rng(1).uniform(0.2, 3.0, n_rows) if weighted else None
        every = np.arange(n_rows)
        made = [
            FitJob(
                template,
                x,
                y,
                np.setdiff1d(every, fold),
                chosen,
                seed=100 + member,
                validation_rows=fold if validation else None,
                sample_weight=weight,
                name=f"fold {member}",
            )
            for member, fold in enumerate(np.array_split(every, n_folds))
        ]
        return made if members is None else [made[member] for member in members]

    jobs.small_net = small_net
    jobs.data = data
    jobs.replace = dataclasses.replace
    return jobs
