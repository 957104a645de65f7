"""The vote."""

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import VotingClassifier

from kfoldfuse.combining import combine_predictions


def test_fraction_of_members_is_counted_whatever_their_confidence():
    predictions = [[[0.4, 0.3, 0.3]], [[0.0, 0.0, 1.0]], [[0.5, 0.4, 0.1]], [[0.1, 0.8, 0.1]]]
    combined = combine_predictions(predictions, "vote", is_probability="classes")
    np.testing.assert_array_equal(combined, [[0.5, 0.25, 0.25]])


def test_label_needs_more_than_half_a_probability():
    combined = combine_predictions([[[0.5, 0.51]], [[0.6, 0.0]]], "vote", is_probability="labels")
    np.testing.assert_array_equal(combined, [[0.5, 0.5]])


def test_member_in_doubt_votes_for_the_lowest_class():
    combined = combine_predictions([[[0.2, 0.4, 0.4]]], "vote", is_probability="classes")
    np.testing.assert_array_equal(combined, [[0.0, 1.0, 0.0]])


def test_tie_between_members_goes_to_the_class_that_scikit_learn_takes():
    x, y = np.zeros((3, 1)), np.array([0, 1, 2])
    dummies = [(str(label), DummyClassifier(strategy="constant", constant=label)) for label in (2, 1)]
    hard = VotingClassifier(dummies, voting="hard").fit(x, y).predict(x[:1])
    votes = np.eye(3)[[[2], [1]]]
    assert combine_predictions(votes, "vote", is_probability="classes").argmax(axis=-1) == hard == 1
