"""Every metric of Keras with a state per member, against the metric on each member's own rows."""

import keras
import numpy as np
import pytest

from kfoldfuse.fusion import rows
from kfoldfuse.training.metrics import MemberMetrics, copy_metric, resolve_metrics

N_VALID = np.array([[4, 2, 0], [3, 4, 1]], dtype="int32")  # two steps of batches of 4, three members

# What a metric wants to see: (targets, predictions).
BINARY, CLASSES, ONE_HOT, NUMBERS, LABELS = "binary", "classes", "one-hot", "numbers", "labels"
KINDS = {
    "AUC": BINARY,
    "BinaryAccuracy": BINARY,
    "BinaryCrossentropy": BINARY,
    "FalseNegatives": BINARY,
    "FalsePositives": BINARY,
    "Hinge": BINARY,
    "Precision": BINARY,
    "PrecisionAtRecall": (BINARY, {"recall": 0.5}),
    "Recall": BINARY,
    "RecallAtPrecision": (BINARY, {"precision": 0.5}),
    "SensitivityAtSpecificity": (BINARY, {"specificity": 0.5}),
    "SpecificityAtSensitivity": (BINARY, {"sensitivity": 0.5}),
    "SquaredHinge": BINARY,
    "TrueNegatives": BINARY,
    "TruePositives": BINARY,
    "CategoricalAccuracy": ONE_HOT,
    "CategoricalCrossentropy": ONE_HOT,
    "CategoricalHinge": ONE_HOT,
    "F1Score": ONE_HOT,
    "FBetaScore": ONE_HOT,
    "KLDivergence": ONE_HOT,
    "OneHotMeanIoU": (ONE_HOT, {"num_classes": 3}),
    "OneHotIoU": (ONE_HOT, {"num_classes": 3, "target_class_ids": [0, 2]}),
    "TopKCategoricalAccuracy": (ONE_HOT, {"k": 2}),
    "SparseCategoricalAccuracy": CLASSES,
    "SparseCategoricalCrossentropy": CLASSES,
    "SparseTopKCategoricalAccuracy": (CLASSES, {"k": 2}),
    "BinaryIoU": (BINARY, {"threshold": 0.4}),
    "IoU": (LABELS, {"num_classes": 3, "target_class_ids": [0, 1]}),
    "MeanIoU": (LABELS, {"num_classes": 3}),
    "Accuracy": LABELS,
    "ConcordanceCorrelation": NUMBERS,
    "CosineSimilarity": NUMBERS,
    "LogCoshError": NUMBERS,
    "MeanAbsoluteError": NUMBERS,
    "MeanAbsolutePercentageError": NUMBERS,
    "MeanSquaredError": NUMBERS,
    "MeanSquaredLogarithmicError": NUMBERS,
    "PearsonCorrelation": NUMBERS,
    "Poisson": NUMBERS,
    "R2Score": NUMBERS,
    "RootMeanSquaredError": NUMBERS,
}
NOT_OF_PREDICTIONS = {"Metric", "Mean", "MeanMetricWrapper", "Sum"}  # base classes; they do not compare with targets


def pair(kind):
    generator = np.random.default_rng(0)
    shape = (2, 3, 4)  # (steps, members, rows)
    one_hot = np.eye(3)[generator.integers(0, 3, shape)]
    return {
        BINARY: (generator.integers(0, 2, (*shape, 1)).astype("float64"), generator.uniform(0.1, 0.9, (*shape, 1))),
        ONE_HOT: (one_hot, generator.dirichlet(np.ones(3), shape)),
        CLASSES: (generator.integers(0, 3, shape), generator.dirichlet(np.ones(3), shape)),
        NUMBERS: (generator.uniform(0.5, 2, (*shape, 2)), generator.uniform(0.5, 2, (*shape, 2))),
        LABELS: (generator.integers(0, 3, (*shape, 1)), generator.integers(0, 3, (*shape, 1))),
    }[kind]


def assert_each_member_as_alone(make, y_true, y_pred, weight=None):
    plain, weighted = ([], [make()]) if weight is not None else ([make()], [])
    metrics = MemberMetrics(plain, weighted, y_true[0, 0, :1], y_pred[0, 0, :1])
    states = metrics.initial_states(3)
    for step in range(2):
        arrays = [None if a is None else keras.ops.convert_to_tensor(a[step]) for a in (y_true, y_pred, weight)]
        with rows.valid_rows(keras.ops.convert_to_tensor(N_VALID[step])):
            states = metrics.update(states, *arrays)
    for member in range(3):
        alone = make()
        for step in range(2):
            n = N_VALID[step, member]
            if n:
                own = None if weight is None else weight[step, member, :n]
                given = {} if own is None else {"sample_weight": own}
                alone.update_state(y_true[step, member, :n], y_pred[step, member, :n], **given)
        expected = float(np.mean(keras.ops.convert_to_numpy(alone.result())))
        (fused,) = metrics.results(states).values()
        np.testing.assert_allclose(fused[member], expected, rtol=1e-9, atol=1e-9)


def test_every_metric_of_keras_has_a_case():
    exported = {
        name
        for name, value in vars(keras.metrics).items()
        if isinstance(value, type) and issubclass(value, keras.metrics.Metric)
    }
    assert set(KINDS) == exported - NOT_OF_PREDICTIONS


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_metric_of_each_member_is_the_metric_of_its_own_rows(name, weighted):
    kind, arguments = KINDS[name] if isinstance(KINDS[name], tuple) else (KINDS[name], {})
    weight = np.random.default_rng(1).integers(1, 4, (2, 3, 4)) if weighted else None
    y_true, y_pred = pair(kind)
    if "TopK" in name:
        y_pred = y_pred.astype("float32")  # TensorFlow's kernel takes nothing else, alone or not
    assert_each_member_as_alone(lambda: getattr(keras.metrics, name)(**arguments), y_true, y_pred, weight)


def largest_error(y_true, y_pred):
    return keras.ops.max(keras.ops.abs(y_true - y_pred), axis=-1)


@pytest.mark.usefixtures("float64")
def test_a_users_function_is_a_metric():
    assert_each_member_as_alone(lambda: keras.metrics.MeanMetricWrapper(largest_error, "largest"), *pair(NUMBERS))


class Spread(keras.metrics.Metric):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.low = self.add_variable(shape=(), initializer="zeros", name="low")
        self.n_batches = self.add_variable(shape=(), initializer="zeros", name="n_batches")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.low.assign(keras.ops.minimum(self.low, keras.ops.min(y_pred - y_true)))
        self.n_batches.assign_add(1.0)

    def result(self):
        return self.low / self.n_batches


@pytest.mark.usefixtures("float64")
def test_a_users_metric_that_looks_across_rows_sees_only_rows_that_count():
    y_true, y_pred = pair(NUMBERS)
    y_pred[0, :, 3] = -100.0  # padding for members 1 and 2
    assert_each_member_as_alone(Spread, y_true, y_pred)


@pytest.mark.parametrize(
    ("y_true_shape", "y_pred_shape", "kind"),
    [
        ((9,), (None, 1), "BinaryAccuracy"),
        ((9,), (None, 3), "SparseCategoricalAccuracy"),
        ((9, 1), (None, 3), "SparseCategoricalAccuracy"),
        ((9, 3), (None, 3), "CategoricalAccuracy"),
    ],
)
def test_accuracy_means_what_it_means_in_compile(y_true_shape, y_pred_shape, kind):
    (metric,) = resolve_metrics(["accuracy"], y_true_shape, y_pred_shape)
    assert type(metric).__name__ == kind
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(y_pred_shape[-1], "sigmoid")])
    model.compile(metrics=["accuracy"])
    model.compute_metrics(None, np.zeros(y_true_shape), np.zeros((9, y_pred_shape[-1])))
    assert model.metrics[-1].metrics[0].name == metric.name == "accuracy"
    assert type(model.metrics[-1].metrics[0]).__name__ == kind


def test_metrics_of_the_same_name_get_keys_of_their_own_as_in_keras():
    mae, other = keras.metrics.MeanAbsoluteError(name="mae"), keras.metrics.MeanSquaredError(name="mae")
    metrics = MemberMetrics([mae, other], [mae], np.zeros((1, 1)), np.zeros((1, 1)))
    assert metrics.names == ["mae", "mae_1", "weighted_mae"]


def test_the_users_metric_is_copied():
    own = keras.metrics.MeanAbsoluteError()
    (resolved,) = resolve_metrics([own], (3,), (None, 1))
    assert resolved is not own
    resolved.update_state([1.0], [2.0])
    assert own.result() == 0


def test_a_metric_that_cannot_take_the_targets_is_refused_in_words():
    with pytest.raises(ValueError) as refused:
        MemberMetrics([keras.metrics.F1Score()], [], np.zeros((1,), "int64"), np.zeros((1, 3)))
    message = str(refused.value)
    assert message.startswith(
        "`metrics` must take targets of shape ('n_rows',) and predictions of shape ('n_rows', 3). Got 'f1_score', and "
        "Keras says: "
    )
    assert message.endswith("Give y in the form that the metric needs (one-hot, for many), or take another metric.")


def test_a_copy_keeps_what_the_config_of_a_metric_leaves_out():
    along_columns = copy_metric(keras.metrics.CosineSimilarity(axis=0))
    y_true, y_pred = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    along_columns.update_state(y_true, y_pred)
    np.testing.assert_allclose(along_columns.result(), np.sqrt(0.5), rtol=1e-6)
    along_rows = copy_metric(keras.metrics.CosineSimilarity())
    along_rows.update_state(y_true[:1], y_pred[:1] * [[1.0, 0.0]])
    np.testing.assert_allclose(along_rows.result(), 1.0, rtol=1e-6)
