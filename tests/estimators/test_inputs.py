import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor


def test_dataframes_are_read_by_position(blobs, quick):
    X, y = blobs
    plain = FusedKFoldClassifier(cv=3, **quick).fit(X, y)
    shuffled = np.random.default_rng(0).permutation(60)
    frame = pd.DataFrame(X, columns=list("abcd"), index=shuffled)
    labelled = FusedKFoldClassifier(cv=3, **quick).fit(frame, pd.Series(y, index=shuffled[::-1]))
    np.testing.assert_array_equal(plain.oof_proba_, labelled.oof_proba_)
    assert labelled.feature_names_in_.tolist() == list("abcd")
    assert labelled.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names should match"):
        labelled.predict(frame[["b", "a", "c", "d"]])


def test_lists_and_float32_train_the_same_members(blobs, quick):
    X, y = blobs
    X = X.astype("float32")
    from_array = FusedKFoldClassifier(cv=3, **quick).fit(X, y)
    from_list = FusedKFoldClassifier(cv=3, **quick).fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(from_array.oof_proba_, from_list.oof_proba_)


def test_images(quick):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 6, 6, 1)) + np.repeat([0.0, 1.0], 20)[:, None, None, None]
    y = np.repeat(["dark", "light"], 20)

    def cnn(meta):
        return keras.Sequential(
            [
                keras.Input(meta["X_shape_"][1:]),
                keras.layers.Conv2D(3, 3, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )

    classifier = FusedKFoldClassifier(**{**quick, "model": cnn}, cv=2).fit(X, y)
    assert classifier.oof_score_ > 0.9
    assert classifier.predict(X[:3]).shape == (3,)
    with pytest.raises(ValueError) as caught:
        classifier.predict(X[:, :, :5])
    assert str(caught.value) == (
        "`X` must have the shape (n_samples, 6, 6, 1) of the model's input. Got (40, 6, 5, 1). Change the model's "
        "input or reshape the data."
    )


def test_default_network_flattens_images_and_takes_its_own_parameters():
    X = np.random.default_rng(0).normal(size=(30, 3, 2))
    y = X[:, 0, 0]
    regressor = FusedKFoldRegressor(cv=2, epochs=2, model__hidden_units=(5,), model__dropout=0.1, random_state=0)
    assert regressor.fit(X, y).predict(X).shape == (30,)
    assert [layer.__class__.__name__ for layer in regressor.members_[0].layers] == [
        "InputLayer",
        "Flatten",
        "Dense",
        "Dropout",
        "Dense",
    ]


def test_integers_for_an_embedding_stay_integers(quick):
    generator = np.random.default_rng(0)
    X = generator.integers(0, 2**25, size=(60, 3))
    X[:, 0] = np.where(np.arange(60) % 2, 2**24 + 1, 2**24)  # float32 cannot tell these two
    y = np.arange(60) % 2

    def build(meta):
        ids = keras.Input((3,), dtype="int32")
        first = keras.layers.Embedding(2, 4)(ids[:, 0] - 2**24)
        return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(first))

    settings = {**quick, "model": build, "epochs": 30}
    assert FusedEnsembleClassifier(**settings).fit(X, y).score(X, y) == 1.0
    assert FusedEnsembleClassifier(**settings).fit(pd.DataFrame(X).astype(float), y).score(X, y) == 1.0
    with pytest.raises(ValueError) as caught:
        FusedEnsembleClassifier(**settings).fit(X + 0.5, y)
    assert str(caught.value) == (
        "`X` must hold values that int32, the dtype of the model's input, can hold. Got values of float64 that change "
        "in it. Round or scale them, or change the dtype of the model's input."
    )


@pytest.fixture(scope="module")
def two_inputs():
    generator = np.random.default_rng(0)
    numbers, ids = generator.normal(size=(60, 2)), generator.integers(3, size=(60, 1))
    return numbers, ids, numbers[:, 0] + ids[:, 0]


def build_two(meta):
    numbers = keras.Input((2,), name="numbers")
    ids = keras.Input((1,), dtype="int32", name="ids")
    both = keras.layers.concatenate([numbers, keras.layers.Flatten()(keras.layers.Embedding(3, 2)(ids))])
    return keras.Model([numbers, ids], keras.layers.Dense(1)(keras.layers.Dense(6, activation="relu")(both)))


def build_two_by_name(meta):
    model = build_two(meta)
    return keras.Model(dict(zip(["numbers", "ids"], model.inputs, strict=True)), model.outputs[0])


@pytest.mark.parametrize("build", [build_two, build_two_by_name])
def test_several_inputs_by_name_in_order_and_of_one_axis(two_inputs, quick, build):
    numbers, ids, y = two_inputs
    settings = {**quick, "model": build, "epochs": 40}
    by_name = FusedKFoldRegressor(**settings).fit({"ids": ids, "numbers": numbers}, y)
    assert by_name.oof_score_ > 0.8
    assert by_name.n_features_in_ == 3
    flat = FusedKFoldRegressor(**settings).fit({"ids": ids[:, 0], "numbers": numbers}, y)
    np.testing.assert_array_equal(by_name.oof_predictions_, flat.oof_predictions_)
    if build is build_two:
        in_order = FusedKFoldRegressor(**settings).fit([numbers, ids], y)
        np.testing.assert_array_equal(by_name.oof_predictions_, in_order.oof_predictions_)
        np.testing.assert_array_equal(
            in_order.predict((numbers, ids)), by_name.predict({"numbers": numbers, "ids": ids})
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda numbers, ids: {"numbers": numbers},
            "`X` must hold the model's inputs ['ids', 'numbers']. Got ['numbers']. Name the keys of X as the model's "
            "inputs.",
        ),
        (
            lambda numbers, ids: [numbers],
            "`X` must hold 2 arrays, as the model has inputs. Got 1. Pass a list of arrays, or a dict with the keys "
            "['numbers', 'ids'].",
        ),
        (
            lambda numbers, ids: [numbers, ids[:-1]],
            "Found input variables with inconsistent numbers of samples: [60, 59]",
        ),
    ],
    ids=["missing", "too few", "lengths"],
)
def test_several_inputs_that_do_not_fit_are_refused(two_inputs, quick, make, message):
    numbers, ids, y = two_inputs
    with pytest.raises(ValueError) as caught:
        FusedEnsembleRegressor(**{**quick, "model": build_two}).fit(make(numbers, ids), y)
    assert str(caught.value) == message


def test_subclassed_network_takes_several_inputs_by_name(line):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = keras.layers.Dense(1)

        def call(self, inputs):
            return self.head(keras.ops.concatenate([inputs["left"], inputs["right"]], axis=-1))

    X, y = line
    parts = {"right": X[:, 2:], "left": X[:, :2]}
    settings = {"epochs": 5, "cv": 2, "random_state": 0}
    several = FusedKFoldRegressor(Net, **settings).fit(parts, y)
    whole = FusedKFoldRegressor(lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), **settings)
    np.testing.assert_allclose(several.predict(parts), whole.fit(X, y).predict(X), rtol=1e-4, atol=1e-5)


def test_subclassed_network_without_input_learns_its_shape_from_x(blobs, quick):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(6, activation="tanh")
            self.head = keras.layers.Dense(3)

        def call(self, inputs):
            return self.head(self.hidden(inputs))

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier = FusedKFoldClassifier(**{**quick, "model": Net}, cv=3, loss=loss).fit(*blobs)
    assert classifier.oof_score_ > 0.8
    assert type(classifier.members_[0]) is Net


def test_transformer_learns_from_its_members_rows_only(line, quick):
    X, y = line
    X = X * 5 + 3
    regressor = FusedKFoldRegressor(cv=3, preprocessor=StandardScaler(), **quick).fit(X, y)
    for split, scaler in zip(regressor.splits_, regressor.preprocessors_, strict=True):
        np.testing.assert_array_equal(scaler.mean_, StandardScaler().fit(X[split.train]).mean_)
    members = regressor.predict_members(X)
    for member, scaler in enumerate(regressor.preprocessors_):
        alone = regressor.members_[member].predict(scaler.transform(X), verbose=0)[:, 0]
        np.testing.assert_allclose(members[member], alone, rtol=1e-4, atol=1e-5)
        test = regressor.splits_[member].test
        np.testing.assert_allclose(regressor.oof_predictions_[test], members[member][test], rtol=1e-4, atol=1e-5)


def test_normalization_layer_learns_from_its_members_rows_only(line, quick):
    X, y = line
    X = X * 5 + 3
    layer = keras.layers.Normalization()
    regressor = FusedKFoldRegressor(cv=3, preprocessor=layer, **quick).fit(X, y)
    assert not layer.built
    scaled = FusedKFoldRegressor(cv=3, preprocessor=StandardScaler(), **quick).fit(X, y)
    for split, model in zip(regressor.splits_, regressor.members_, strict=True):
        own = next(one for one in model.layers if isinstance(one, keras.layers.Normalization))
        np.testing.assert_allclose(np.asarray(own.mean)[0], X[split.train].mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(own.variance)[0], X[split.train].var(axis=0), rtol=1e-5)
    # The same numbers reach the same network, so only rounding tells the two ways apart.
    np.testing.assert_allclose(regressor.splits_[0].train, scaled.splits_[0].train)
    assert regressor.oof_score_ == pytest.approx(scaled.oof_score_, abs=0.05)
    test = regressor.splits_[0].test
    alone = regressor.members_[0].predict(X[test], verbose=0)[:, 0]
    np.testing.assert_allclose(regressor.oof_predictions_[test], alone, rtol=1e-4, atol=1e-5)


def test_preprocessor_reads_strings_and_missing_values_of_a_dataframe(blobs, quick):
    X, y = blobs
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["kind"] = np.array(["x", "y", "z"])[y]
    preprocessor = make_column_transformer(
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore", categories=[["x", "y", "z"]]), ["kind"]),
        (StandardScaler(), ["a", "b"]),
    )
    classifier = FusedKFoldClassifier(cv=3, preprocessor=preprocessor, **quick).fit(frame, y)
    assert classifier.oof_score_ > 0.9
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c", "d", "kind"]
    assert classifier.predict(frame[:3]).shape == (3,)


def test_members_with_other_columns_are_refused(quick):
    X = np.array([["a"], ["b"], ["a"], ["b"], ["a"], ["c"]], dtype=object)
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    with pytest.raises(ValueError) as caught:
        FusedKFoldRegressor(cv=3, preprocessor=encoder, **quick).fit(X, np.arange(6.0))
    assert str(caught.value) == (
        "`preprocessor` must give every member's rows the same shape. Got (3,) for member 0 and (2,) for member 2. "
        "Fix what it learns about columns, such as the categories of an encoder."
    )
    with pytest.raises(ValueError) as caught:
        FusedKFoldRegressor(cv=3, preprocessor=OneHotEncoder(handle_unknown="ignore"), **quick).fit(X, np.arange(6.0))
    assert str(caught.value) == (
        "`preprocessor` must give dense arrays. Got a sparse csr_matrix. Use sparse_output=False or sparse_threshold=0."
    )
