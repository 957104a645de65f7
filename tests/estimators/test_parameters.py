import re

import keras
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor
from kfoldfuse.estimators.optimizers import make_optimizer

ALL = [FusedKFoldClassifier, FusedKFoldRegressor, FusedEnsembleClassifier, FusedEnsembleRegressor]


@pytest.mark.parametrize("kind", ALL)
def test_routed_parameters_are_seen_set_and_cloned(kind):
    estimator = kind(model__units=5, optimizer__learning_rate=0.1)
    assert estimator.get_params()["model__units"] == 5
    estimator.set_params(model__units=7, model__depth=2, epochs=3)
    copy = clone(estimator)
    expected = {"model__units": 7, "model__depth": 2, "optimizer__learning_rate": 0.1, "epochs": 3}
    assert {name: copy.get_params()[name] for name in expected} == expected
    assert copy.get_params() == estimator.get_params()


def test_objects_of_the_users_own_keras_classes_survive_a_clone():
    # Keras copies by the names of classes, and knows those that are registered only.
    class Layer(keras.layers.Layer):
        def call(self, inputs):
            return 2 * inputs

    class Loss(keras.losses.MeanSquaredError):
        pass

    class Metric(keras.metrics.MeanSquaredError):
        pass

    def loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    model = keras.Sequential([keras.Input((4,)), Layer(), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    given = {"model": model, "loss": Loss(), "metrics": [Metric()], "optimizer": keras.optimizers.SGD(0.1)}
    original = FusedKFoldRegressor(**given, preprocessor=StandardScaler(), epochs=7)
    with sklearn.config_context(enable_metadata_routing=True):
        original.set_fit_request(sample_weight=True)
    copied = clone(original)
    assert {name: getattr(copied, name) for name in given} == given
    assert {name: getattr(original, name) for name in given} == given
    assert copied.preprocessor is not original.preprocessor
    assert copied.epochs == 7
    assert str(copied.get_metadata_routing()) == str(original.get_metadata_routing())
    copied.set_params(epochs=1, cv=2).fit(np.ones((6, 4)), np.arange(6.0))
    assert not hasattr(original, "history_")
    assert not hasattr(clone(copied), "history_")


def test_setting_a_clone_leaves_the_original():
    estimator = FusedKFoldClassifier(model__units=5)
    clone(estimator).set_params(model__units=6)
    assert estimator.get_params()["model__units"] == 5


def test_parameters_of_a_preprocessor_are_nested():
    estimator = FusedKFoldClassifier(preprocessor=StandardScaler())
    estimator.set_params(preprocessor__with_mean=False)
    assert estimator.preprocessor.with_mean is False
    assert "preprocessor__with_std" in estimator.get_params()


@pytest.mark.parametrize("kind", ALL)
def test_unknown_keyword_is_refused_with_the_closest(kind):
    with pytest.raises(TypeError) as caught:
        kind(epoch=3)
    assert re.fullmatch(
        rf"Parameters of {kind.__name__} must be model, optimizer, .*, random_state, model__NAME or optimizer__NAME\. "
        r"Got 'epoch'\. Did you mean 'epochs'\?",
        str(caught.value),
    )


def test_unknown_name_in_set_params_sets_nothing():
    estimator = FusedKFoldClassifier()
    with pytest.raises(ValueError, match=r"Got 'batchsize'\. Did you mean 'batch_size'\?$"):
        estimator.set_params(epochs=3, batchsize=4)
    assert estimator.epochs == 100


def test_parameters_after_model_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        FusedKFoldClassifier(None, "adam")


def test_init_keeps_objects_as_they_are(net):
    optimizer, callbacks = keras.optimizers.SGD(0.1), [keras.callbacks.LambdaCallback()]
    estimator = FusedKFoldClassifier(net, optimizer=optimizer, callbacks=callbacks)
    assert (estimator.model, estimator.optimizer, estimator.callbacks) == (net, optimizer, callbacks)


@pytest.mark.parametrize(
    "given",
    [
        "sgd",
        "SGD",
        keras.optimizers.SGD,
        keras.optimizers.SGD(0.01),
        {"class_name": "sgd", "config": {"learning_rate": 0.01}},
    ],
)
def test_optimizer_is_given_in_any_way_of_keras(given):
    optimizer = make_optimizer(given, {"momentum": 0.5})
    assert type(optimizer) is keras.optimizers.SGD
    assert optimizer is not given
    assert optimizer.momentum == 0.5
    assert float(optimizer.learning_rate) == pytest.approx(0.01)


def test_optimizer_object_is_not_changed():
    given = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9), clipnorm=1.0)
    before = given.get_config()
    made = make_optimizer(given, {"beta_1": 0.5})
    assert given.get_config() == before
    assert made.clipnorm == 1.0
    assert made.beta_1 == 0.5


def test_function_gets_meta_and_its_keywords(blobs, quick):
    seen = {}

    def build(meta, width):
        seen.update(meta, width=width)
        return quick["model"](meta, units=width)

    X, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    FusedEnsembleClassifier(**{**quick, "model": build, "epochs": 1}, model__width=3).fit(X, labels)
    assert seen["width"] == 3
    assert seen["X_shape_"] == (60, 4)
    assert seen["X_dtype_"] == "float64"
    assert seen["n_features_in_"] == 4
    assert (seen["n_classes_"], seen["n_outputs_"], seen["target_type_"]) == (3, 3, "multiclass")
    assert seen["classes_"].tolist() == ["a", "b", "c"]


def test_function_cannot_change_meta(blobs, quick):
    def build(meta):
        meta["n_outputs_"] = 7

    with pytest.raises(TypeError, match="does not support item assignment"):
        FusedEnsembleClassifier(build).fit(*blobs)


def test_everything_wrong_is_said_at_once(blobs):
    estimator = FusedKFoldClassifier(epochs=0, batch_size=2.5, max_fused="all", n_jobs=0, on_member_failure="stop")
    estimator.set_params(validation=2, early_stopping="yes", preprocessor=3)
    with pytest.raises(ValueError) as caught:
        estimator.fit(*blobs)
    assert str(caught.value).split("\n") == [
        "`epochs` must be an int of at least 1. Got 0. Use epochs=100.",
        "`batch_size` must be an int of at least 1. Got 2.5. Use batch_size=32.",
        "`max_fused` must be 'auto' or an int of at least 1. Got 'all'. Use max_fused='auto' to fit programs into the "
        "memory.",
        "`n_jobs` must be None or an int other than 0. Got 0. Use n_jobs=None.",
        "`on_member_failure` must be 'warn' or 'raise'. Got 'stop'. Use 'warn' to leave members that fail out of the "
        "combination.",
        "`validation` must be None, a float between 0 and 1 (a part of a member's training rows) or 'held_out'. Got 2. "
        "Use validation=0.1 for a tenth of the training rows.",
        "`early_stopping` must be True, False or a keras.callbacks.EarlyStopping. Got 'yes'. Use early_stopping=True "
        "for a patience of 10 epochs.",
        "`preprocessor` must be None, a scikit-learn transformer or a keras.layers.Normalization. Got 3. Put other "
        "Keras layers into the model.",
    ]
