"""Guarantee 1: a member trained fused equals the same member trained alone by plain Keras."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

from kfoldfuse.testing import largest_difference, train_alone
from kfoldfuse.training import train

FLOAT64 = 1e-9  # several epochs of sums in another order; what we see is 1e-15
FLOAT32 = 2e-5  # the same in float32; what we see is 1e-6


def assert_equal_alone(jobs, tolerance, which=None):
    results, _ = train(jobs)
    for member in range(len(jobs)) if which is None else which:
        difference = largest_difference(results[member], train_alone(jobs[member]))
        assert max(difference.values()) < tolerance, (jobs[member].name, difference)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_a_fold_equals_the_fold_alone_with_dropout_batch_statistics_and_l2(make_jobs, optimizer, weighted):
    jobs = make_jobs(
        optimizer=getattr(keras.optimizers, optimizer)(0.05),
        weighted=weighted,
        validation=True,
        metrics=["mae"],
        weighted_metrics=["mse"],
    )
    assert_equal_alone(jobs, FLOAT64)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_fold_equals_the_fold_alone_in_float32(make_jobs, optimizer):
    jobs = make_jobs(optimizer=getattr(keras.optimizers, optimizer)(0.05), metrics=["mae"], validation=True)
    assert_equal_alone(jobs, FLOAT32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_rows", [18, 19, 20, 21, 22, 23, 24])
def test_every_remainder_of_rows_and_batches_is_exact(make_jobs, n_rows):
    # 3 folds of 12 to 16 training rows in batches of 5: every remainder of rows by folds and by batches comes up.
    assert_equal_alone(make_jobs(n_rows=n_rows, batch_size=5, epochs=2), FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("batch_size", [1, 2, 15, 16, 40], ids=lambda size: f"batch {size}")
def test_any_batch_size_is_exact(make_jobs, batch_size):
    # A batch of one row has no variance: BatchNormalization sees zero, as it does alone.
    assert_equal_alone(make_jobs(batch_size=batch_size, epochs=2), FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("target", "loss", "head"),
    [
        ("binary", "binary_crossentropy", (1, "sigmoid")),
        ("binary", lambda: keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1), (1, None)),
        ("multiclass", "sparse_categorical_crossentropy", (3, "softmax")),
        ("multiclass", lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True), (3, None)),
    ],
    ids=["sigmoid", "sigmoid logits", "softmax", "softmax logits"],
)
def test_cross_entropies_are_exact_for_probabilities_and_logits(make_jobs, target, loss, head):
    loss = loss if isinstance(loss, str) else loss()  # in float64 only when made in this test
    build = functools.partial(make_jobs.small_net, *head)
    jobs = make_jobs(
        build=build, target=target, loss=loss, optimizer=keras.optimizers.SGD(0.3), metrics=["accuracy"], weighted=True
    )
    assert_equal_alone(jobs, FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
def test_saturated_probabilities_are_exact(make_jobs):
    # Keras computes the loss from the logits behind a softmax; from the probabilities it would be clipped at 1e-7.
    def build():
        head = [layers.Dense(3), layers.Activation("softmax")]
        return keras.Sequential([keras.Input((4,)), layers.Dense(5, "tanh"), *head])

    jobs = make_jobs(
        build=build,
        target="multiclass",
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.SGD(3.0),
    )
    assert_equal_alone(jobs, FLOAT64, which=[0, 2])


def mean_and_largest(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred)) + keras.ops.max(y_pred)


@pytest.mark.usefixtures("float64")
def test_a_loss_that_looks_across_rows_is_exact(make_jobs):
    assert_equal_alone(make_jobs(loss=mean_and_largest, metrics=[mean_and_largest]), FLOAT64, which=[0, 2])


class Centred(layers.Layer):
    """A user's layer with batch statistics, a counter, its own randomness, a weight and a penalty."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(0)

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x, training=False):
        self.add_loss(0.01 * keras.ops.mean(keras.ops.square(self.scale)))
        if training:
            self.calls.assign_add(1.0)
            x = x - keras.ops.mean(x, axis=0, keepdims=True)
            x = x + keras.random.normal(keras.ops.shape(x), stddev=0.1, seed=self.seeds, dtype=x.dtype)
        return x * self.scale


@pytest.mark.usefixtures("float64")
def test_a_layer_nobody_knows_is_exact(make_jobs):
    def build():
        return keras.Sequential([keras.Input((4,)), layers.Dense(4), Centred(), layers.Dense(1)])

    assert_equal_alone(make_jobs(build=build, validation=True), FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
def test_a_subclassed_model_is_exact(make_jobs):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.drop, self.head = layers.Dense(5, "relu"), layers.Dropout(0.2), layers.Dense(1)

        def call(self, x, training=False):
            return self.head(self.drop(self.hidden(x), training=training))

        def get_config(self):
            return {}

    def build():
        model = Net()
        model(np.zeros((1, 4)))
        return model

    assert_equal_alone(make_jobs(build=build), FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
def test_an_embedding_under_a_recurrent_layer_with_masks_is_exact(make_jobs):
    from kfoldfuse.fusion.template import make_template

    def build():
        return keras.Sequential(
            [keras.Input((5,), dtype="int32"), layers.Embedding(7, 3, mask_zero=True), layers.LSTM(4), layers.Dense(1)]
        )

    template = make_template(build, seed=0)
    words = np.random.default_rng(0).integers(0, 7, size=(23, 5)) * (np.arange(5) < np.arange(23)[:, None] % 4 + 1)
    jobs = [make_jobs.replace(job, template=template, x=words) for job in make_jobs(epochs=2)]
    assert_equal_alone(jobs, FLOAT64, which=[2])


@pytest.mark.usefixtures("float64")
def test_members_with_rows_of_their_own_data_are_exact(make_jobs):
    # A preprocessor per fold gives each job its own copy of the data.
    jobs = [make_jobs.replace(job, x=job.x * (1 + member)) for member, job in enumerate(make_jobs(validation=True))]
    assert_equal_alone(jobs, FLOAT64)


@pytest.mark.usefixtures("float64")
def test_rows_that_come_twice_are_exact(make_jobs):
    bootstrap = np.random.default_rng(0).integers(0, 23, size=(3, 20))
    jobs = [make_jobs.replace(job, rows=rows) for job, rows in zip(make_jobs(), bootstrap, strict=True)]
    assert_equal_alone(jobs, FLOAT64, which=[0, 2])


@pytest.mark.usefixtures("float64")
def test_members_with_different_epochs_and_learning_rates_are_exact(make_jobs):
    jobs = []
    for member, job in enumerate(make_jobs()):
        settings = make_jobs.replace(
            job.settings, epochs=member + 1, optimizer=keras.optimizers.Adam(0.1 / (member + 1))
        )
        jobs.append(make_jobs.replace(job, settings=settings))
    results, report = train(jobs)
    assert len(report) == 1
    for job, result in zip(jobs, results, strict=True):
        assert result.n_epochs == job.settings.epochs
        assert max(largest_difference(result, train_alone(job)).values()) < FLOAT64


@pytest.mark.usefixtures("float64")
def test_a_network_with_all_weights_frozen_is_only_measured(make_jobs):
    def build():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        model.trainable = False
        return model

    jobs = make_jobs(build=build, epochs=2)
    for job, result in zip(jobs, train(jobs)[0], strict=True):
        kernel, bias = result.state.values
        expected = np.mean((job.x[job.rows] @ kernel + bias - job.y[job.rows, None]) ** 2)
        np.testing.assert_allclose(result.history["loss"], [expected, expected])


@pytest.mark.usefixtures("float64")
def test_going_on_from_a_state_equals_training_in_one_go(make_jobs):
    whole = make_jobs(optimizer=keras.optimizers.Adam(0.05), epochs=4)
    first = make_jobs(optimizer=keras.optimizers.Adam(0.05), epochs=1)
    begun, _ = train(first)
    rest = [
        make_jobs.replace(job, start=result.state, first_epoch=1, settings=make_jobs.replace(job.settings, epochs=3))
        for job, result in zip(first, begun, strict=True)
    ]
    for ended, one_go in zip(train(rest)[0], train(whole)[0], strict=True):
        for one, other in zip(
            ended.state.values + ended.state.slots, one_go.state.values + one_go.state.slots, strict=True
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("float64")
def test_a_convolutional_network_is_exact(make_jobs):
    from kfoldfuse.fusion.template import make_template

    def build():
        return keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(3, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.SpatialDropout2D(0.2),
                layers.Flatten(),
                layers.Dense(1),
            ]
        )

    template = make_template(build, seed=0)
    images = np.random.default_rng(0).normal(size=(23, 8, 8, 1))
    jobs = [
        make_jobs.replace(job, template=template, x=images) for job in make_jobs(optimizer=keras.optimizers.SGD(0.01))
    ]
    assert_equal_alone(jobs, FLOAT64)
