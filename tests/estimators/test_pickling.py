import copy
import pickle
import subprocess
import sys

import joblib
import keras
import numpy as np
import pytest

from kfoldfuse import FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor

READ = """
import sys, {module}, numpy as np
data = np.load(sys.argv[2])
estimator = {load}
predicted = getattr(estimator, data["method"].item())(data["X"])
assert predicted.tobytes() == data["expected"].tobytes(), abs(predicted - data["expected"]).max()
member = estimator.members_[0]
print(len(estimator.members_), member.compiled, estimator.oof_score_)
"""


def read_in_a_new_process(tmp_path, module, load, estimator, method, X):
    np.savez(tmp_path / "data.npz", X=X, expected=getattr(estimator, method)(X), method=method)
    code = READ.format(module=module, load=load)
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "estimator"), str(tmp_path / "data.npz")],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_pickle_in_a_new_process(tmp_path, blobs):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=3, epochs=3, random_state=0, preprocessor=keras.layers.Normalization())
    classifier.fit(X, np.array(["a", "b", "c"])[y])
    (tmp_path / "estimator").write_bytes(pickle.dumps(classifier))
    load = 'pickle.load(open(sys.argv[1], "rb"))'
    printed = read_in_a_new_process(tmp_path, "pickle", load, classifier, "predict_proba", X)
    assert printed == ["3", "True", str(classifier.oof_score_)]


def test_joblib_in_a_new_process(tmp_path, line):
    X, y = line
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.AdamW(0.01), "mae", metrics=["mse"])
    regressor = FusedEnsembleRegressor(model, n_members=2, bootstrap=True, epochs=3, random_state=0).fit(X, y)
    joblib.dump(regressor, tmp_path / "estimator")
    printed = read_in_a_new_process(tmp_path, "joblib", "joblib.load(sys.argv[1])", regressor, "predict", X)
    assert printed == ["2", "True", str(regressor.oof_score_)]


def test_copies_predict_the_same_and_go_on_alike(line):
    X, y = line
    regressor = FusedKFoldRegressor(cv=3, epochs=4, warm_start=True, random_state=0).fit(X, y)
    copies = copy.deepcopy(regressor), pickle.loads(pickle.dumps(regressor))
    expected, before = regressor.predict(X), regressor.fit(X, y).predict(X)
    for copied in copies:
        np.testing.assert_array_equal(copied.predict(X), expected)
        np.testing.assert_array_equal(copied.fit(X, y).predict(X), before)


def test_pickle_of_a_pickle(blobs):
    classifier = FusedKFoldClassifier(cv=3, epochs=2, random_state=0).fit(*blobs)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(classifier))))
    np.testing.assert_array_equal(again.predict_proba(blobs[0]), classifier.predict_proba(blobs[0]))


def test_estimator_is_pickled_without_its_keras_models(blobs):
    classifier = FusedKFoldClassifier(cv=3, epochs=2, random_state=0).fit(*blobs)
    size = len(pickle.dumps(classifier))
    _ = classifier.model_, list(classifier.members_)
    assert len(pickle.dumps(classifier)) < 1.05 * size


class Unsavable(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def test_network_that_keras_cannot_save_is_named(line):
    def build():
        return keras.Sequential([keras.Input((4,)), Unsavable(lambda x: x * 2), keras.layers.Dense(1)])

    regressor = FusedKFoldRegressor(build, cv=3, epochs=1).fit(*line).set_params(model=None)
    with pytest.raises(pickle.PicklingError, match=r"^The model must be one that Keras can save, to pickle the "):
        pickle.dumps(regressor)


def test_unfitted_estimators_pickle(net):
    estimator = FusedKFoldClassifier(optimizer=keras.optimizers.Adam(0.1), model__units=3)
    again = pickle.loads(pickle.dumps(estimator))
    assert again.get_params()["model__units"] == 3
    assert float(again.optimizer.learning_rate) == pytest.approx(0.1)
