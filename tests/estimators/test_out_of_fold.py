import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor


@pytest.mark.parametrize("cv", [3, 7, KFold(4, shuffle=True, random_state=0)])
def test_every_row_is_held_out_once_and_predicted_by_its_own_fold(blobs, quick, cv):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=cv, **quick).fit(X, y)
    held_out = np.concatenate([split.test for split in classifier.splits_])
    np.testing.assert_array_equal(np.sort(held_out), np.arange(60))
    np.testing.assert_array_equal(classifier.oof_counts_, 1)
    members = classifier.predict_members(X)
    for member, split in enumerate(classifier.splits_):
        np.testing.assert_allclose(classifier.oof_proba_[split.test], members[member][split.test], rtol=1e-5, atol=1e-7)
        score = np.mean(classifier.classes_[members[member][split.test].argmax(axis=1)] == y[split.test])
        assert classifier.member_scores_[member] == score
    assert classifier.oof_score_ == np.mean(classifier.oof_predictions_ == y)
    assert classifier.oof_is_biased_ is False


def test_members_are_keras_models_that_predict_the_same(blobs, quick):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=3, **quick, metrics=["accuracy"]).fit(X, y)
    assert len(classifier.members_) == classifier.n_members_ == 3
    for member, split in enumerate(classifier.splits_):
        model = classifier.members_[member]
        alone = model.predict(X[split.test], verbose=0)
        np.testing.assert_allclose(alone, classifier.oof_proba_[split.test], rtol=1e-4, atol=1e-6)
        accuracy = model.evaluate(X[split.test], y[split.test], verbose=0, return_dict=True)["accuracy"]
        assert accuracy == pytest.approx(classifier.member_scores_[member])
    assert classifier.members_[-1] is classifier.members_[2]
    assert len(classifier.members_[:2]) == 2
    fused = classifier.model_(np.repeat(X[None].astype("float32"), 3, axis=0))
    np.testing.assert_allclose(np.asarray(fused), classifier.predict_members(X), rtol=1e-4, atol=1e-6)


def test_rows_never_held_out_are_missing(line, quick):
    X, y = line
    regressor = FusedKFoldRegressor(cv=TimeSeriesSplit(3), **quick).fit(X, y)
    never = regressor.oof_counts_ == 0
    assert never.sum() == 15
    assert np.isnan(regressor.oof_predictions_[never]).all()
    assert np.isfinite(regressor.oof_predictions_[~never]).all()
    assert regressor.oof_score_ == pytest.approx(r2_score(y[~never], regressor.oof_predictions_[~never]))


@pytest.mark.parametrize("labels", [np.array(["a", "b", "c"]), np.array([4, 5, 6])], ids=["strings", "numbers"])
def test_labels_of_rows_never_held_out_are_missing(blobs, quick, labels):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=ShuffleSplit(2, test_size=0.2, random_state=0), **quick).fit(X, labels[y])
    never = classifier.oof_counts_ == 0
    assert never.any()
    assert all(value != value for value in classifier.oof_predictions_[never])
    assert set(classifier.oof_predictions_[~never]) <= set(labels)


def test_repeats_average_the_members_that_left_a_row_out(line, quick):
    X, y = line
    regressor = FusedKFoldRegressor(cv=3, n_repeats=2, **quick).fit(X, y)
    assert [split.repeat for split in regressor.splits_] == [0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(regressor.oof_counts_, 2)
    members = regressor.predict_members(X)
    row = 7
    left_out = [member for member, split in enumerate(regressor.splits_) if row in split.test]
    assert regressor.oof_predictions_[row] == pytest.approx(members[left_out, row].mean(), rel=1e-5)


def test_out_of_bag(line, quick):
    X, y = line
    regressor = FusedEnsembleRegressor(n_members=4, bootstrap=True, **quick).fit(X, y)
    for split in regressor.splits_:
        assert len(split.train) == 60
        np.testing.assert_array_equal(split.test, np.setdiff1d(np.arange(60), split.train))
    np.testing.assert_array_equal(
        regressor.oof_counts_, sum(np.isin(np.arange(60), split.test) for split in regressor.splits_)
    )
    assert regressor.oof_score_ > 0.5


def test_members_on_all_rows_have_nothing_out_of_bag(blobs, quick):
    classifier = FusedEnsembleClassifier(n_members=2, **quick).fit(*blobs)
    for name in ("oof_predictions_", "oof_proba_", "oof_counts_", "oof_score_", "member_scores_"):
        assert not hasattr(classifier, name)
    classifier.set_params(bootstrap=True).fit(*blobs)
    assert hasattr(classifier, "oof_score_")
    classifier.set_params(bootstrap=False).fit(*blobs)
    assert not hasattr(classifier, "oof_score_")


@pytest.mark.slow
def test_random_labels_score_at_chance(quick):
    generator = np.random.default_rng(3)
    X, y = generator.normal(size=(600, 4)), generator.integers(2, size=600)
    settings = {**quick, "epochs": 60, "model__units": 64}
    classifier = FusedKFoldClassifier(cv=5, **settings).fit(X, y)
    # 600 coin tosses: a standard deviation of 0.02. The members themselves have learned their own rows.
    assert abs(classifier.oof_score_ - 0.5) < 0.08
    assert classifier.score(X, y) > 0.6


def test_poisoned_held_out_rows_do_not_move_their_member(line, quick):
    X, y = line
    poisoned = y.copy()
    plain = FusedKFoldRegressor(cv=3, **quick).fit(X, y)
    poisoned[plain.splits_[1].test] += 100.0
    other = FusedKFoldRegressor(cv=3, **quick).fit(X, poisoned)
    np.testing.assert_array_equal(plain.predict_members(X)[1], other.predict_members(X)[1])
    assert not np.array_equal(plain.predict_members(X)[0], other.predict_members(X)[0])


def test_rows_chosen_by_held_out_scores_make_the_score_biased(blobs, quick):
    classifier = FusedKFoldClassifier(cv=3, validation="held_out", **quick).fit(*blobs)
    assert classifier.oof_is_biased_ is True
    assert repr(classifier).endswith("  # oof_score_ is optimistic: members looked at the rows they were held out from")
    assert "val_loss" in classifier.history_[0]
    assert "#" not in repr(FusedKFoldClassifier(validation="held_out"))


def test_scores_are_weighted_by_the_weights_of_rows(blobs, line, quick):
    weight = np.random.default_rng(0).uniform(0.1, 5, 60) * (np.arange(60) % 7 > 0)
    X, y = blobs
    y = np.where(np.arange(60) % 4 == 0, (y + 1) % 3, y)  # some that nobody can get right
    classifier = FusedKFoldClassifier(cv=3, **quick).fit(X, y, sample_weight=weight)
    expected = [accuracy_score(y, classifier.oof_predictions_, sample_weight=weight)]
    for split in classifier.splits_:
        rows = split.test
        expected.append(accuracy_score(y[rows], classifier.oof_predictions_[rows], sample_weight=weight[rows]))
    np.testing.assert_allclose([classifier.oof_score_, *classifier.member_scores_], expected)
    X, y = line
    regressor = FusedKFoldRegressor(cv=3, **quick).fit(X, y, sample_weight=weight)
    expected = [r2_score(y, regressor.oof_predictions_, sample_weight=weight)]
    for split in regressor.splits_:
        rows = split.test
        expected.append(r2_score(y[rows], regressor.oof_predictions_[rows], sample_weight=weight[rows]))
    np.testing.assert_allclose([regressor.oof_score_, *regressor.member_scores_], expected)


@pytest.mark.parametrize("random_state", [0, 3])
def test_repeats_are_those_of_scikit_learn_with_the_same_random_state(line, quick, random_state):
    X, y = line
    settings = {**quick, "epochs": 1, "random_state": random_state}
    regressor = FusedKFoldRegressor(cv=3, n_repeats=2, **settings).fit(X, y)
    splitter = RepeatedKFold(n_splits=3, n_repeats=2, random_state=random_state)
    for split, (train, test) in zip(regressor.splits_, splitter.split(X), strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)
