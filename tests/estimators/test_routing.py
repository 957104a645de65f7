import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate

from kfoldfuse import FusedEnsembleClassifier, FusedKFoldClassifier


@pytest.fixture(params=[False, True], ids=["routing off", "routing on"])
def routing(request):
    with sklearn.config_context(enable_metadata_routing=request.param):
        yield request.param


GROUPS = np.arange(60) % 6


def assert_groups_are_whole(classifier):
    for split in classifier.splits_:
        assert not set(GROUPS[split.train]) & set(GROUPS[split.test])


def test_groups_reach_the_splitter(blobs, quick, routing):
    classifier = FusedKFoldClassifier(cv=GroupKFold(3), **quick).fit(*blobs, groups=GROUPS)
    assert_groups_are_whole(classifier)


def test_groups_reach_the_splitter_through_cross_validate(blobs, quick, routing):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=GroupKFold(2), **quick)
    result = cross_validate(
        classifier,
        X,
        y,
        cv=KFold(2, shuffle=True, random_state=0),
        params={"groups": GROUPS},
        return_estimator=True,
        error_score="raise",
    )
    for estimator in result["estimator"]:
        assert estimator.n_members_ == 2


def test_weights_reach_the_estimator(blobs, quick, routing):
    X, y = blobs
    weight = np.where(y == 2, 1e-6, 1.0)
    classifier = FusedKFoldClassifier(cv=3, **quick)
    if routing:
        classifier.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    search = GridSearchCV(classifier, {"batch_size": [16]}, cv=3).fit(X, y, sample_weight=weight)
    assert 2 not in search.best_estimator_.predict(X)


def test_weights_and_groups_together(blobs, quick, routing):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=GroupKFold(3), **quick)
    classifier.fit(X, y, sample_weight=np.where(y == 2, 1e-6, 1.0), groups=GROUPS)
    assert_groups_are_whole(classifier)
    assert 2 not in classifier.predict(X)


def test_ensemble_asks_for_weights(routing):
    if routing:
        ensemble = FusedEnsembleClassifier().set_fit_request(sample_weight=True)
        assert ensemble.get_metadata_routing().fit.requests["sample_weight"] is True


def test_unknown_metadata_is_refused(blobs, quick, routing):
    with pytest.raises(TypeError) as caught:
        FusedKFoldClassifier(cv=3, **quick).fit(*blobs, group=GROUPS)
    if routing:
        assert "unexpected argument(s) {'group'}" in str(caught.value)
    else:
        assert str(caught.value) == (
            "`fit` must get X, y, sample_weight and groups. Got 'group'. Did you mean 'groups'?"
        )


def test_groups_that_nobody_asked_for_are_refused_with_routing(blobs, quick):
    with sklearn.config_context(enable_metadata_routing=True), pytest.raises(TypeError, match="unexpected argument"):
        FusedKFoldClassifier(cv=3, **quick).fit(*blobs, groups=GROUPS)


def test_groups_of_another_length_are_refused(blobs, quick):
    with pytest.raises(ValueError) as caught:
        FusedKFoldClassifier(cv=GroupKFold(3), **quick).fit(*blobs, groups=GROUPS[1:])
    assert str(caught.value) == (
        "`groups` must have the shape (60,), one group per row of X. Got (59,). Pass a 1-D array."
    )
