import keras
import numpy as np
import pandas as pd
import pytest

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["red", "green", "blue"]),
        np.array(["red", "green", "blue"], dtype=object),
        np.array([-5, 7, 100]),
        np.array([0.0, 1.0, 2.0]),
    ],
    ids=["strings", "objects", "numbers", "floats"],
)
def test_labels_come_back_as_they_were(blobs, quick, labels):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=3, **quick).fit(X, labels[y])
    assert classifier.classes_.tolist() == sorted(labels.tolist())
    assert classifier.predict(X).dtype == labels.dtype
    assert classifier.oof_predictions_.dtype == labels.dtype
    assert classifier.score(X, labels[y]) > 0.9
    assert classifier.oof_score_ == np.mean(classifier.oof_predictions_ == labels[y]) > 0.8
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(classifier.classes_[probabilities.argmax(axis=1)], classifier.predict(X))
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities, rtol=1e-6)


@pytest.mark.parametrize(("head", "n_outputs"), [("sigmoid", 1), ("linear", 1), ("softmax", 2), ("linear", 2)], ids=str)
def test_binary_labels_fit_every_head(blobs, quick, head, n_outputs):
    X, y = blobs
    y = np.array(["no", "yes"])[(y > 0).astype(int)]
    classifier = FusedEnsembleClassifier(
        **quick, model__head=head, model__n_outputs=n_outputs, metrics=["accuracy"]
    ).fit(X, y)
    assert classifier.predict_proba(X).shape == (60, 2)
    assert classifier.n_outputs_ == n_outputs
    assert classifier.score(X, y) > 0.9
    # The metric reads the same outputs in the same way: after the last epoch it is near the score.
    assert abs(classifier.history_[0]["accuracy"][-1] - classifier.score(X, y)) < 0.1


def test_probabilities_of_logits_are_those_of_the_same_network_with_an_activation(blobs, quick):
    X, y = blobs
    for target, heads in [(y, ("linear", "softmax")), ((y > 0).astype(int), ("linear", "sigmoid"))]:
        settings = {**quick, "metrics": ["accuracy"]}
        first, second = (FusedEnsembleClassifier(**settings, model__head=head).fit(X, target) for head in heads)
        np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), rtol=1e-4, atol=1e-6)
        # Logits are counted against 0: from the first epoch on, when many are small, the metric is the same.
        np.testing.assert_allclose(first.history_[0]["accuracy"], second.history_[0]["accuracy"], rtol=1e-6)


@pytest.mark.parametrize("head", ["softmax", "linear"])
def test_one_hot_comes_back_one_hot(blobs, quick, head):
    X, y = blobs
    matrix = np.eye(3, dtype="int32")[y]
    classifier = FusedKFoldClassifier(cv=3, **quick, model__head=head).fit(X, matrix)
    predicted = classifier.predict(X)
    assert predicted.dtype == matrix.dtype
    np.testing.assert_array_equal(predicted.sum(axis=1), 1)
    assert classifier.score(X, matrix) > 0.9
    assert classifier.oof_predictions_.shape == (60, 3)
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1, rtol=1e-6)


def test_one_hot_and_labels_train_the_same_network(blobs, quick):
    X, y = blobs
    from_labels = FusedEnsembleClassifier(**quick).fit(X, y)
    from_matrix = FusedEnsembleClassifier(**quick).fit(X, np.eye(3)[y])
    np.testing.assert_allclose(from_labels.predict_proba(X), from_matrix.predict_proba(X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("head", ["sigmoid", "linear"])
def test_multilabel(blobs, quick, head):
    X, y = blobs
    matrix = np.stack([y > 0, y < 2, y == 1], axis=1).astype(int)
    classifier = FusedKFoldClassifier(cv=3, **quick, model__head=head, metrics=["accuracy"]).fit(X, matrix)
    assert classifier.predict(X).shape == classifier.predict_proba(X).shape == (60, 3)
    np.testing.assert_array_equal(classifier.predict(X), classifier.predict_proba(X) > 0.5)
    assert classifier.score(X, matrix) > 0.8
    assert classifier.oof_score_ == np.mean((classifier.oof_predictions_ == matrix).all(axis=1))
    assert classifier.history_[0]["accuracy"][-1] > 0.85  # counted label by label, logits against 0


@pytest.mark.parametrize("settings", [{"model__head": "sigmoid"}, {"loss": "binary_crossentropy"}], ids=str)
def test_model_or_loss_make_a_one_hot_matrix_multilabel(blobs, quick, settings):
    X, y = blobs
    classifier = FusedEnsembleClassifier(**quick, **settings).fit(X, np.eye(3)[y])
    assert np.ptp(classifier.predict_proba(X).sum(axis=1)) > 1e-3


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "categorical_crossentropy",
        keras.losses.CategoricalFocalCrossentropy(),
        "kl_divergence",
        "mse",
        lambda codes, output: keras.losses.sparse_categorical_crossentropy(codes, output),
    ],
    ids=["sparse", "one-hot", "focal", "divergence", "squares", "own"],
)
def test_each_loss_gets_labels_in_the_form_it_needs(blobs, quick, loss):
    X, y = blobs
    assert FusedEnsembleClassifier(**quick, loss=loss).fit(X, y).score(X, y) > 0.9


def test_hinge_reads_margins(blobs, quick):
    X, y = blobs
    y = y > 0
    classifier = FusedEnsembleClassifier(**quick, loss="hinge", model__head="linear").fit(X, y)
    assert classifier.predict(X).dtype == bool
    assert classifier.score(X, y) > 0.9


@pytest.mark.parametrize("n_columns", [None, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_regression_gives_back_the_form_of_y(line, quick, n_columns, dtype):
    X, y = line
    y = (10 * (y if n_columns is None else np.stack([y, -y, 2 * y], axis=1)[:, :n_columns])).astype(dtype)
    regressor = FusedKFoldRegressor(cv=3, **quick).fit(X, y)
    expected = "float64" if dtype == "int64" else dtype
    for predicted in (regressor.predict(X), regressor.oof_predictions_, *regressor.predict(X, return_std=True)):
        assert predicted.shape == y.shape
        assert predicted.dtype == expected
    assert regressor.predict_members(X).shape == (3, *y.shape)
    assert regressor.n_outputs_ == (n_columns or 1)


def test_std_is_that_of_the_members(line, quick):
    X, y = line
    regressor = FusedEnsembleRegressor(n_members=3, **quick).fit(X, y)
    mean, std = regressor.predict(X, return_std=True)
    members = regressor.predict_members(X)
    np.testing.assert_allclose(mean, members.mean(axis=0))
    np.testing.assert_allclose(std, members.std(axis=0))
    assert regressor.score(X, y) > 0.9


def test_series_and_column_of_y(blobs, quick):
    X, y = blobs
    plain = FusedEnsembleClassifier(**quick).fit(X, y)
    series = FusedEnsembleClassifier(**quick).fit(X, pd.Series(y, index=np.arange(60)[::-1]))
    np.testing.assert_array_equal(plain.predict_proba(X), series.predict_proba(X))
    with pytest.warns(UserWarning, match="A column-vector y was passed when a 1d array was expected"):
        column = FusedEnsembleClassifier(**quick).fit(X, y[:, None])
    np.testing.assert_array_equal(plain.predict(X), column.predict(X))
