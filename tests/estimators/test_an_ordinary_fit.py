"""What a user sees and pays besides results: no warnings, no models built per member, fits in threads and processes."""

import logging
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from kfoldfuse import FusedEnsembleClassifier, FusedKFoldClassifier
from kfoldfuse.training import clear_programs


def network(units=3):
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, "tanh"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3, "softmax"),
        ]
    )


@pytest.fixture
def tensorflow_messages():
    """What TensorFlow logs, such as that a function is traced again and again; it is no Python warning."""
    messages = []

    class Handler(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("tensorflow"), Handler(logging.WARNING)
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def test_many_fits_of_different_networks_make_tensorflow_say_nothing(blobs, tensorflow_messages):
    for units in range(1, 8):
        classifier = FusedKFoldClassifier(network, model__units=units, cv=2, epochs=1, validation=0.2).fit(*blobs)
        assert classifier.predict(blobs[0][:5]).shape == (5,)
    assert tensorflow_messages == []


def test_members_are_not_built_one_by_one(blobs):
    calls = []

    def counted():
        calls.append(1)
        return network()

    for n_members in (2, 30):
        FusedEnsembleClassifier(counted, n_members=n_members, epochs=1).fit(*blobs)
    assert len(calls) == 2


def test_fits_in_threads_are_the_fits_one_after_another(blobs):
    def fit(seed):
        classifier = FusedKFoldClassifier(network, model__units=3 + seed % 2, cv=2, epochs=3, random_state=seed)
        return classifier.fit(*blobs).predict_proba(blobs[0])

    clear_programs()
    with ThreadPoolExecutor(4) as pool:
        in_threads = list(pool.map(fit, range(4)))
    clear_programs()
    for seed, probabilities in enumerate(in_threads):
        np.testing.assert_array_equal(fit(seed), probabilities)


@pytest.mark.slow
def test_a_grid_search_in_processes_finds_the_same_scores(blobs):
    extra = 2

    def closure(units):  # lives in this test only
        return network(units + extra)

    grid = {"model__units": [1, 2], "optimizer__learning_rate": [0.01, 0.1]}
    ensemble = FusedEnsembleClassifier(closure, model__units=1, epochs=3, random_state=0)
    here, there = (GridSearchCV(ensemble, grid, cv=2, n_jobs=n_jobs).fit(*blobs) for n_jobs in (None, 2))
    np.testing.assert_array_equal(here.cv_results_["mean_test_score"], there.cv_results_["mean_test_score"])
