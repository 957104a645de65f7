"""Everything wrong is refused before training, in one sentence of three parts; nothing is touched by it."""

import keras
import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor
from kfoldfuse.estimators import fitting
from kfoldfuse.estimators.base import FusedEstimator

X = np.random.default_rng(0).normal(size=(12, 4))
Y = np.arange(12) % 3
N = Y.astype(float)

KFOLD, ENSEMBLE = FusedKFoldClassifier, FusedEnsembleClassifier
KFOLD_R, ENSEMBLE_R = FusedKFoldRegressor, FusedEnsembleRegressor


def head(units, activation=None, more=()):
    return lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(units, activation=activation), *more])


def two_outputs():
    data = keras.Input((4,))
    return keras.Model(data, [keras.layers.Dense(3)(data), keras.layers.Dense(3)(data)])


def compiled(**settings):
    model = head(3, "softmax")()
    model.compile("adam", "sparse_categorical_crossentropy", **settings)
    return model


def local_metric(y_true, y_pred):
    return y_pred[:, 0]


class BatchHook(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


CASES = {
    "units": (
        lambda: KFOLD(head(4, "softmax"), cv=2).fit(X, Y),
        "The model's output has 4 units, and y has 3 classes. End the model in 3 softmax units.",
    ),
    "units of binary": (
        lambda: KFOLD(head(3, "softmax"), cv=2).fit(X, Y > 0),
        "The model's output has 3 units, and y has 2 classes. End the model in 1 sigmoid unit or 2 softmax units.",
    ),
    "units of labels": (
        lambda: ENSEMBLE(head(3, "sigmoid")).fit(X, np.stack([Y > 0, Y > 0], axis=1)),
        "The model's output has 3 units, and y has 2 labels. End the model in 2 sigmoid units.",
    ),
    "units of numbers": (
        lambda: ENSEMBLE_R(head(2)).fit(X, N),
        "The model's output has 2 units, and y has 1 column. End the model in 1 linear unit.",
    ),
    "sigmoid for classes": (
        lambda: ENSEMBLE(head(3, "sigmoid")).fit(X, Y),
        "The model must end in softmax for 3 classes and 3 units. Got sigmoid. Use activation='softmax' in the last "
        "layer.",
    ),
    "softmax of one unit": (
        lambda: ENSEMBLE(head(1, "softmax")).fit(X, Y > 0),
        "The model must end in sigmoid for 2 classes and 1 unit. Got softmax. Use activation='sigmoid' in the last "
        "layer.",
    ),
    "softmax for labels": (
        lambda: ENSEMBLE(head(2, "softmax")).fit(X, np.stack([Y > 0, Y > 0], axis=1)),
        "The model must end in sigmoid units where a row may have several labels. Got softmax. Use "
        "activation='sigmoid' in the last layer.",
    ),
    "outputs that do not tell": (
        lambda: ENSEMBLE(head(3, "relu")).fit(X, Y),
        "The model must end in softmax, sigmoid or linear units, so that its outputs can be read as probabilities. Got "
        "a last layer that does not tell. Pass a loss that does, such as "
        "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True) for logits.",
    ),
    "probabilities from logits": (
        lambda: ENSEMBLE(head(3), loss="sparse_categorical_crossentropy").fit(X, Y),
        "`loss` must have from_logits=True for a model that ends in linear units. Got "
        "SparseCategoricalCrossentropy(from_logits=False). Give the last layer an activation, or pass "
        "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
    ),
    "logits from probabilities": (
        lambda: ENSEMBLE(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)).fit(X, Y),
        "`loss` must have from_logits=False for a model that ends in softmax. Got from_logits=True. Remove the "
        "activation from the last layer, or from_logits from the loss.",
    ),
    "squares of linear units": (
        lambda: ENSEMBLE(head(3), loss="mse").fit(X, Y),
        "The model must end in softmax or sigmoid for this loss of a classifier. Got linear units with "
        "MeanSquaredError. Give the last layer an activation, or use loss=None.",
    ),
    "loss over classes of one unit": (
        lambda: ENSEMBLE(loss="categorical_crossentropy").fit(X, Y > 0),
        "`loss` must be a binary one for a model that ends in 1 unit. Got CategoricalCrossentropy. Use "
        "loss='binary_crossentropy', or end the model in 2 softmax units.",
    ),
    "several outputs": (
        lambda: ENSEMBLE(two_outputs).fit(X, Y),
        "The model must have one output of shape (batch, units). Got 2 of shape (None, 3), (None, 3). End the model in "
        "a layer such as Dense, behind Flatten or pooling where there are more axes.",
    ),
    "input shape": (
        lambda: KFOLD(head(3, "softmax"), cv=2).fit(X[:, :3], Y),
        "`X` must have the shape (n_samples, 4) of the model's input. Got (12, 3). Change the model's input or reshape "
        "the data.",
    ),
    "too large": (
        lambda: KFOLD(cv=2).fit(X * 1e300, Y),
        "`X` must hold values that float32, the dtype of the model's input, can hold. Got values of float64 that "
        "change in it. Round or scale them, or change the dtype of the model's input.",
    ),
    "sparse": (
        lambda: KFOLD(cv=2).fit(sparse.csr_array(X), Y),
        "`X` must be dense. Got a sparse csr_array of shape (12, 4). Use X.toarray() if it fits the memory.",
    ),
    "sparse input among several": (
        lambda: KFOLD(cv=2).fit({"a": X, "b": sparse.csr_array(X)}, Y),
        "`X` must be dense. Got a sparse csr_array of shape (12, 4). Use X.toarray() if it fits the memory.",
    ),
    "sparse y": (
        lambda: KFOLD(cv=2).fit(X, sparse.csr_array(np.eye(3)[Y])),
        "`y` must be dense. Got a sparse csr_array of shape (12, 3). Use y.toarray() if it fits the memory.",
    ),
    "rows that float32 cannot hold in y": (
        lambda: ENSEMBLE_R().fit(X, np.r_[N[:-1], -1e39]),
        "`y` must hold numbers that float32, which the network computes in, can hold. Got -1e+39. Scale y, for "
        "instance with sklearn.compose.TransformedTargetRegressor.",
    ),
    "missing values behind a preprocessor": (
        lambda: KFOLD(cv=2, preprocessor=StandardScaler()).fit(np.where(X > 1, np.nan, X).astype("float32"), Y),
        "`preprocessor` must give finite numbers. Got NaN or infinity from StandardScaler. Fill missing values in it, "
        "such as with make_pipeline(SimpleImputer(), StandardScaler()).",
    ),
    "a list of images": (
        lambda: KFOLD(cv=2).fit([np.zeros((5, 5))] * 12, Y),
        "`X` must be one array with a row per sample, or a list with one such array per input of the model. Got a list "
        "of 12 arrays, as many as y has rows, the first of shape (5, 5). Use np.stack(X).",
    ),
    "several inputs without a model": (
        lambda: KFOLD(cv=2).fit({"a": X, "b": X}, Y),
        "`model` must be a function or a Keras model where X holds several inputs. Got None. Write a model with one "
        "keras.Input for each.",
    ),
    "one class": (
        lambda: KFOLD(cv=2).fit(X, ["a"] * 12),
        "`y` must hold at least 2 classes. Got 1 class, 'a'. Use sklearn.dummy.DummyClassifier to predict the same "
        "label always.",
    ),
    "one class with weight": (
        lambda: KFOLD(cv=2).fit(X, Y, sample_weight=Y == 1),
        "`sample_weight` must leave rows of at least 2 classes. Got weights above 0 for 1 class only, 1. Give rows of "
        "another class a weight.",
    ),
    "several classes per row": (
        lambda: KFOLD(cv=2).fit(X, np.stack([Y, Y], axis=1)),
        "`y` must be labels of shape (n_samples,), or a matrix of 0 and 1 with a column per class or label. Got "
        "multiclass-multioutput of shape (12, 2). Use sklearn.multioutput.MultiOutputClassifier for several targets.",
    ),
    "two values that are not 0 and 1": (
        lambda: KFOLD(cv=2).fit(X, np.stack([Y > 0, Y > 1], axis=1) + 1),
        "`y` must hold 0 and 1 where it has a column per class or label. Got the values [1, 2]. Use "
        "(y == value).astype(int).",
    ),
    "no y": (
        lambda: KFOLD(cv=2).fit(X, None),
        "FusedKFoldClassifier requires y to be passed, but the target y is None. Pass the targets.",
    ),
    "weights of another shape": (
        lambda: KFOLD(cv=2).fit(X, Y, sample_weight=np.ones(11)),
        "`sample_weight` must have the shape (12,), one weight per row of X. Got (11,). Pass a 1-D array.",
    ),
    "negative weight": (
        lambda: KFOLD(cv=2).fit(X, Y, sample_weight=np.arange(12.0) - 1),
        "`sample_weight` must not be negative. Got -1.0 for row 0. Use 0 to leave a row out of the training.",
    ),
    "no weight": (
        lambda: KFOLD(cv=2).fit(X, Y, sample_weight=np.zeros(12)),
        "`sample_weight` must have a weight that is not zero. Got 12 zeros. Give the rows to train on a positive "
        "weight.",
    ),
    "no weight in a fold": (
        lambda: KFOLD_R(cv=2).fit(X, N, sample_weight=np.arange(12) < 6),
        "`sample_weight` must leave every member a row to train on. Got only zeros for the 6 training rows of fold 0. "
        "Use fewer zeros or other splits.",
    ),
    "class weight of no class": (
        lambda: KFOLD(cv=2, class_weight={0: 1, 7: 2}).fit(X, Y),
        "`class_weight` must have labels of y as keys: [0, 1, 2]. Got [7]. Correct the keys; labels without a key "
        "weigh 1.",
    ),
    "class weight of another kind": (
        lambda: KFOLD(cv=2, class_weight="even").fit(X, Y),
        "`class_weight` must be None, 'balanced' or a dict of labels to weights. Got 'even'. Use "
        "class_weight='balanced' to give all classes the same total weight.",
    ),
    "negative class weight": (
        lambda: KFOLD(cv=2, class_weight={0: -1}).fit(X, Y),
        "`class_weight` must hold finite numbers of at least 0. Got -1 for the label 0. Use 0 for a class that the "
        "loss is not to count.",
    ),
    "class weight that is no number": (
        lambda: KFOLD(cv=2, class_weight={1: "high"}).fit(X, Y),
        "`class_weight` must hold finite numbers of at least 0. Got 'high' for the label 1. Use 0 for a class that the "
        "loss is not to count.",
    ),
    "no class weight": (
        lambda: KFOLD(cv=2, class_weight={0: 0, 1: 0, 2: 0.0}).fit(X, Y),
        "`class_weight` must have a weight that is not zero. Got {0: 0, 1: 0, 2: 0.0}. Give the classes to learn a "
        "positive weight.",
    ),
    "class weight for labels": (
        lambda: ENSEMBLE(class_weight="balanced").fit(X, np.stack([Y > 0, Y > 0], axis=1)),
        "`class_weight` must be None where a row may have several labels. Got 'balanced'. Use sample_weight to weight "
        "rows.",
    ),
    "model": (
        lambda: KFOLD("mlp", cv=2).fit(X, Y),
        "`model` must be None, a Keras model or a function that returns one. Got 'mlp'. Use model=None for a "
        "multilayer perceptron.",
    ),
    "function returns no model": (
        lambda: KFOLD(lambda: 3, cv=2).fit(X, Y),
        "`model` must be a Keras model or a function that returns one. Got int from the function. Return the model.",
    ),
    "keyword of the function": (
        lambda: ENSEMBLE(lambda units=3: None, model__unit=3).fit(X, Y),
        "`model__NAME` must be a keyword of <lambda>: units. Got 'unit'. Did you mean 'units'?",
    ),
    "keyword of the default model": (
        lambda: ENSEMBLE(model__hidden=(3,)).fit(X, Y),
        "`model__NAME` must be a keyword of default_model: hidden_units, activation, dropout. Got 'hidden'. Did you "
        "mean 'hidden_units'?",
    ),
    "keyword without a value": (
        lambda: ENSEMBLE(lambda units: None).fit(X, Y),
        "`model` must be a function whose keywords have values. Got <lambda>, whose 'units' has none. Pass "
        "model__units=..., or give it a default.",
    ),
    "keyword for a model": (
        lambda: ENSEMBLE(keras.Sequential(name="mine"), model__units=3).fit(X, Y),
        "`model` must be a function to take model__units. Got a Keras model, 'mine'. Write a function that takes it "
        "and returns the model.",
    ),
    "loss weights": (
        lambda: ENSEMBLE(compiled(loss_weights=[2.0])).fit(X, Y),
        "`model` must be compiled without loss_weights. Got [2.0]. Scale the loss in a loss function of your own.",
    ),
    "optimizer": (
        lambda: ENSEMBLE(optimizer="adamm").fit(X, Y),
        "`optimizer` must be a Keras optimizer: a name, a config, a class or an object. Got 'adamm'. Did you mean "
        "'adam'?",
    ),
    "argument of the optimizer": (
        lambda: ENSEMBLE(optimizer="sgd", optimizer__momentun=0.5).fit(X, Y),
        "`optimizer__NAME` must be an argument of SGD: name, learning_rate, weight_decay, clipnorm, global_clipnorm, "
        "clipvalue, use_ema, ema_momentum, ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, "
        "momentum, nesterov. Got 'momentun'. Did you mean 'momentum'?",
    ),
    "loss": (
        lambda: ENSEMBLE(loss="categorical_crossentrop").fit(X, Y),
        "`loss` must be a Keras loss: a name, an object or a function. Got 'categorical_crossentrop'. Did you mean "
        "'categorical_crossentropy'?",
    ),
    "losses": (
        lambda: ENSEMBLE(loss=["mse", "mae"]).fit(X, Y),
        "`loss` must be one loss, as the model has one output. Got ['mse', 'mae']. Pass its name or object.",
    ),
    "metric": (
        lambda: ENSEMBLE(metrics=["acuracy"]).fit(X, Y),
        "`metrics` must be Keras metrics: names, objects or functions. Got 'acuracy', and Keras says: Could not "
        "interpret metric identifier: acuracy Did you mean 'accuracy'?",
    ),
    "combine": (
        lambda: ENSEMBLE(combine="meen").fit(X, Y),
        "`combine` must be one of 'mean', 'median', 'geometric', 'vote', 'weighted', or a function. Got 'meen'. Did "
        "you mean 'mean'?",
    ),
    "votes on numbers": (
        lambda: KFOLD_R(combine="vote").fit(X, N),
        "`combine` must be a way to combine numbers for regression. Got 'vote', which needs probabilities. Use "
        "'mean', 'median' or 'weighted'.",
    ),
    "nothing to weigh members by": (
        lambda: ENSEMBLE(n_members=2, combine="weighted").fit(X, Y),
        "`combine` must be another than 'weighted' where members leave out no rows to score them on. Got 'weighted' "
        "with bootstrap=False. Use combine='mean', or bootstrap=True.",
    ),
    "one fold": (
        lambda: KFOLD(cv=1).fit(X, Y),
        "`cv` must yield at least 2 splits. Got 1. Use FusedEnsembleClassifier(n_members=1) to train one network on "
        "all rows.",
    ),
    "no member": (
        lambda: ENSEMBLE(n_members=0).fit(X, Y),
        "`n_members` must be an int of at least 1. Got 0. Use n_members=1 to train one network.",
    ),
    "samples": (
        lambda: ENSEMBLE(max_samples=13).fit(X, Y),
        "`max_samples` must be an int from 1 to the 12 rows of X, or a float in (0, 1]. Got 13. Use max_samples=1.0 to "
        "draw as many rows as X has.",
    ),
    "nothing held out": (
        lambda: ENSEMBLE(validation="held_out").fit(X, Y),
        "`validation` must be None or a fraction where a member leaves out no rows. Got 'held_out', and member 0 "
        "trains on all rows. Use validation=0.1.",
    ),
    "callback without validation": (
        lambda: ENSEMBLE(callbacks=[keras.callbacks.ReduceLROnPlateau("val_loss")]).fit(X, Y),
        "`validation` must be set for callbacks that look at 'val_loss'. Got validation=None. Use validation=0.1 for a "
        "tenth of each member's training rows.",
    ),
    "normalization of several inputs": (
        lambda: ENSEMBLE(head(3), preprocessor=keras.layers.Normalization()).fit({"a": X, "b": X}, Y),
        "`preprocessor` must be None where X holds several inputs. Got a dict or list of arrays. Put the preprocessing "
        "into the model, as Keras layers.",
    ),
}


@pytest.fixture
def nothing_is_touched(monkeypatch):
    """No training begins, the estimator keeps its attributes, and X and y keep their values."""
    arrays = [array.copy() for array in (X, Y, N)]
    seen = []

    def fit_noted(estimator, *args, fit=FusedEstimator._fit):
        seen.append((estimator, dict(vars(estimator))))
        return fit(estimator, *args)

    monkeypatch.setattr(FusedEstimator, "_fit", fit_noted)
    monkeypatch.setattr(fitting, "train", lambda *args, **kwargs: pytest.fail("training began"))
    yield
    assert len(seen) == 1
    ((estimator, before),) = seen
    assert list(vars(estimator)) == list(before)
    assert all(vars(estimator)[name] is value for name, value in before.items())
    for array, old in zip((X, Y, N), arrays, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.usefixtures("nothing_is_touched")
@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_sentence_before_anything_is_touched(name):
    fit, message = CASES[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        fit()
    assert str(caught.value) == message


@pytest.mark.usefixtures("nothing_is_touched")
@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (BatchHook(), r"^`callbacks` must work by epochs\. Got BatchHook, which has on_train_batch_end\. "),
        (keras.callbacks.CSVLogger("log.csv"), r"^`callbacks` must not write one file for all members\. Got CSVLogger"),
        (BatchHook, r"^`callbacks` must be keras\.callbacks\.Callback objects\. Got <class .*BatchHook.*>\. "),
    ],
    ids=["batches", "file", "class"],
)
def test_callbacks_that_cannot_work_are_refused(callback, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ENSEMBLE(callbacks=[callback]).fit(X, Y)


def test_metrics_that_cannot_be_read_back_are_refused():
    def function(y_true, y_pred):
        return y_pred[:, 0]

    for model in (compiled(metrics=[function]), lambda: compiled(metrics=[function])):
        with pytest.raises(ValueError, match=r"^`model` must be compiled with metrics that Keras can serialise\. "):
            ENSEMBLE(model).fit(X, Y)


def test_unfitted_estimators_say_so():
    for kind in (KFOLD, KFOLD_R, ENSEMBLE, ENSEMBLE_R):
        with pytest.raises(NotFittedError):
            kind().predict(X)
        with pytest.raises(NotFittedError):
            check_is_fitted(kind())


def test_other_features_than_in_fit_are_refused():
    regressor = KFOLD_R(cv=2, epochs=1).fit(X, N)
    with pytest.raises(ValueError, match="X has 3 features, but FusedKFoldRegressor is expecting 4 features as input"):
        regressor.predict(X[:, :3])


def test_weights_to_combine_by_are_missing_when_predicting():
    classifier = ENSEMBLE(n_members=2, epochs=1).fit(X, Y).set_params(combine="weighted")
    with pytest.raises(ValueError) as caught:
        classifier.predict(X)
    assert str(caught.value) == (
        "`combine` must be another than 'weighted' where members leave out no rows to score them on. Got 'weighted'. "
        "Use combine='mean'."
    )


def test_missing_values_behind_a_preprocessor_are_refused_when_predicting():
    classifier = KFOLD(cv=2, epochs=1, preprocessor=StandardScaler()).fit(X.astype("float32"), Y)
    with pytest.raises(ValueError, match=r"^`preprocessor` must give finite numbers\. Got NaN or infinity from "):
        classifier.predict(np.where(X > 1, np.nan, X).astype("float32"))
