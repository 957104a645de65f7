import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils.class_weight import compute_class_weight

from kfoldfuse import FusedEnsembleClassifier, FusedEnsembleRegressor, FusedKFoldClassifier, FusedKFoldRegressor
from kfoldfuse.exceptions import MemberFailureError, MemberFailureWarning


def fits(kind, X, y, *settings, **fit_params):
    return [kind(**each).fit(X, y, **fit_params) for each in settings]


@pytest.mark.parametrize(("max_fused", "n_jobs"), [(1, None), (2, None), (3, None), (1, 2)])
def test_programs_do_not_change_members(line, quick, max_fused, n_jobs):
    X, y = line
    settings = {**quick, "cv": 3}
    parts = {**settings, "max_fused": max_fused, "n_jobs": n_jobs}
    together, parts = fits(FusedKFoldRegressor, X, y, settings, parts)
    np.testing.assert_allclose(together.predict_members(X), parts.predict_members(X), rtol=1e-5, atol=1e-6)
    assert sum(parts.fusion_report_["chunks"]) == 3
    assert max(parts.fusion_report_["chunks"]) <= max_fused


def test_member_depends_on_its_index_and_not_on_the_number_of_members(line, quick):
    X, y = line
    few, many = fits(FusedEnsembleRegressor, X, y, {**quick, "n_members": 2}, {**quick, "n_members": 5})
    np.testing.assert_allclose(few.predict_members(X), many.predict_members(X)[:2], rtol=1e-5, atol=1e-6)
    assert not np.allclose(many.predict_members(X)[0], many.predict_members(X)[1], atol=1e-3)


def test_fold_is_the_same_whatever_the_other_folds_are(line, quick):
    X, y = line
    pairs = list(KFold(5, shuffle=True, random_state=1).split(X))
    five = FusedKFoldRegressor(cv=pairs, **quick).fit(X, y)
    three = FusedKFoldRegressor(cv=[pairs[0], pairs[1], pairs[2]], **quick).fit(X, y)
    np.testing.assert_allclose(five.predict_members(X)[2], three.predict_members(X)[2], rtol=1e-5, atol=1e-6)


def test_same_random_state_gives_the_same_bits(line, quick):
    X, y = line
    first, second = fits(FusedKFoldRegressor, X, y, quick, quick)
    np.testing.assert_array_equal(first.predict_members(X), second.predict_members(X))
    other = FusedKFoldRegressor(**{**quick, "random_state": 1}).fit(X, y)
    assert not np.array_equal(first.predict(X), other.predict(X))


def test_early_stopping_looks_at_a_tenth_of_each_members_training_rows(blobs, quick):
    X, y = blobs
    classifier = FusedKFoldClassifier(**{**quick, "epochs": 80}, cv=3, early_stopping=True).fit(X, y)
    assert classifier.oof_is_biased_ is False
    assert len(classifier.best_epoch_) == 3
    for member, best in enumerate(classifier.best_epoch_):
        losses = classifier.history_[member]["val_loss"]
        assert np.argmin(losses) == best
        assert classifier.n_epochs_[member] == len(losses) == min(best + 11, 80)
    assert len(set(classifier.n_epochs_)) > 1


def test_early_stopping_object_means_what_it_means_in_keras(line, quick):
    stopping = keras.callbacks.EarlyStopping(monitor="loss", min_delta=10.0, patience=2)
    regressor = FusedKFoldRegressor(cv=3, early_stopping=stopping, **quick).fit(*line)
    assert regressor.n_epochs_.tolist() == [3, 3, 3]
    assert "val_loss" not in regressor.history_[0]
    assert stopping.model is None


class Recorder(TransformerMixin, BaseEstimator):
    """Remembers the rows it was fitted on, by the number in their last column."""

    def fit(self, X, y=None):
        self.rows_ = X[:, -1].astype(int)
        return self

    def transform(self, X):
        return X[:, :-1]


def test_validation_rows_are_a_part_of_the_members_own_rows(line, quick):
    X, y = line
    numbered = np.column_stack([X, np.arange(60)])
    settings = {**quick, "preprocessor": Recorder(), "cv": 3, "validation": 0.25, "metrics": ["mae"]}
    regressor = FusedKFoldRegressor(**settings).fit(numbered, y)
    assert set(regressor.history_[0]) == {"loss", "mae", "val_loss", "val_mae"}
    for split, recorder in zip(regressor.splits_, regressor.preprocessors_, strict=True):
        assert set(recorder.rows_) < set(split.train)
        assert len(recorder.rows_) == 30


def test_validation_rows_are_whole_groups(line, quick):
    X, y = line
    numbered, groups = np.column_stack([X, np.arange(60)]), np.arange(60) % 12
    settings = {**quick, "preprocessor": Recorder(), "cv": GroupKFold(3), "validation": 0.25}
    regressor = FusedKFoldRegressor(**settings).fit(numbered, y, groups=groups)
    for split, recorder in zip(regressor.splits_, regressor.preprocessors_, strict=True):
        looked_at = np.setdiff1d(split.train, recorder.rows_)
        assert len(looked_at) == 10
        sides = [set(groups[rows]) for rows in (recorder.rows_, looked_at, split.test)]
        assert sum(map(len, sides)) == 12 == len(set.union(*sides))


def test_validation_rows_are_stratified(blobs, quick):
    X, y = blobs
    numbered = np.column_stack([X, np.arange(60)])
    classifier = FusedEnsembleClassifier(**quick, preprocessor=Recorder(), validation=0.5).fit(numbered, y)
    assert np.bincount(y[classifier.preprocessors_[0].rows_]).tolist() == [10, 10, 10]


def test_history_is_a_table(line, quick):
    regressor = FusedKFoldRegressor(**{**quick, "epochs": 2}, cv=3, metrics=["mae"]).fit(*line)
    table = regressor.history_.to_table()
    assert isinstance(table, pd.DataFrame)
    assert list(table) == ["member", "epoch", "loss", "mae"]
    assert table["member"].tolist() == [0, 0, 1, 1, 2, 2]
    assert table["loss"][3] == regressor.history_[1]["loss"][1]


def test_rows_of_weight_zero_are_removed_rows(blobs, quick):
    X, y = blobs
    kept = np.arange(60) % 3 != 0
    # The same folds of the rows that are left, as indices of all rows and as indices of those.
    pairs = list(KFold(2).split(np.flatnonzero(kept)))
    whole = [tuple(np.flatnonzero(kept)[rows] for rows in pair) for pair in pairs]
    whole = [(np.concatenate([train, np.flatnonzero(~kept)]), test) for train, test in whole]
    weight = np.where(kept, 2.0, 0.0)
    poisoned = np.where(kept[:, None], X, 1e30)  # they would show up anywhere
    weighted = FusedKFoldClassifier(cv=whole, **quick).fit(poisoned, y, sample_weight=weight)
    removed = FusedKFoldClassifier(cv=pairs, **quick).fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(weighted.predict_proba(X), removed.predict_proba(X))


def test_weights_weigh(line, quick):
    X, y = line
    y = np.where(np.arange(60) % 2, y, 5.0)
    regressor = FusedEnsembleRegressor(**quick).fit(X, y, sample_weight=np.where(np.arange(60) % 2, 1e-6, 1.0))
    np.testing.assert_allclose(regressor.predict(X), 5.0, atol=0.7)


def test_class_weight_is_a_sample_weight_of_each_members_own_rows(blobs, quick):
    X, y = blobs
    labels = np.where(y == 2, "rare", "often")
    balanced = FusedEnsembleClassifier(**quick, class_weight="balanced").fit(X, labels)
    weight = compute_class_weight("balanced", classes=np.array(["often", "rare"]), y=labels)
    by_hand = FusedEnsembleClassifier(**quick).fit(X, labels, sample_weight=weight[(labels == "rare").astype(int)])
    np.testing.assert_array_equal(balanced.predict_proba(X), by_hand.predict_proba(X))
    by_label = FusedEnsembleClassifier(**quick, class_weight={"rare": weight[1], "often": weight[0]}).fit(X, labels)
    np.testing.assert_array_equal(balanced.predict_proba(X), by_label.predict_proba(X))


def test_balanced_looks_at_the_members_rows_only(blobs, quick):
    X, y = blobs
    y = np.sort(y > 0)
    pairs = [(np.arange(0, 40), np.arange(40, 60)), (np.arange(10, 60), np.arange(10))]
    classifier = FusedKFoldClassifier(cv=pairs, class_weight="balanced", **quick).fit(X, y)
    counts = np.bincount(y[:40])
    weight = np.ones(60)
    weight[:40] = (40 / (2 * counts))[y[:40].astype(int)]
    alone = FusedKFoldClassifier(cv=pairs, **quick).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(classifier.predict_members(X)[0], alone.predict_members(X)[0])


def test_class_weight_does_not_weigh_validation_rows(blobs, quick):
    X, y = blobs
    settings = {**quick, "validation": "held_out", "cv": 3, "epochs": 1}
    light, heavy = fits(
        FusedKFoldClassifier, X, y, settings, {**settings, "class_weight": dict.fromkeys([0, 1, 2], 1.0)}
    )
    assert light.history_[0]["val_loss"] == pytest.approx(heavy.history_[0]["val_loss"])
    doubled = FusedKFoldClassifier(**{**settings, "class_weight": dict.fromkeys([0, 1, 2], 2.0), "optimizer": "sgd"})
    doubled.set_params(optimizer__learning_rate=0.0).fit(X, y)
    single = FusedKFoldClassifier(**{**settings, "optimizer": "sgd"}).set_params(optimizer__learning_rate=0.0)
    single.fit(X, y)
    assert doubled.history_[0]["loss"] == pytest.approx(2 * np.array(single.history_[0]["loss"]), rel=1e-5)
    assert doubled.history_[0]["val_loss"] == pytest.approx(single.history_[0]["val_loss"], rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_warm_start_goes_on_as_if_it_had_not_stopped(line, quick, optimizer):
    X, y = line
    settings = {**quick, "optimizer": optimizer, "cv": 3}
    whole = FusedKFoldRegressor(**{**settings, "epochs": 8}).fit(X, y)
    parts = FusedKFoldRegressor(**{**settings, "epochs": 5}, warm_start=True).fit(X, y)
    parts.set_params(epochs=3).fit(X, y)
    np.testing.assert_array_equal(parts.predict_members(X), whole.predict_members(X))
    assert parts.n_epochs_.tolist() == [8, 8, 8]
    assert parts.history_[1]["loss"] == whole.history_[1]["loss"]


def test_warm_start_without_random_state_keeps_its_seeds(line, quick):
    X, y = line
    regressor = FusedEnsembleRegressor(
        **{**quick, "random_state": None}, n_members=2, bootstrap=True, warm_start=True
    ).fit(X, y)
    before = [split.train for split in regressor.splits_]
    regressor.fit(X, y)
    assert all(np.array_equal(old, split.train) for old, split in zip(before, regressor.splits_, strict=True))


def test_warm_start_on_other_splits_is_refused(line, quick):
    X, y = line
    regressor = FusedKFoldRegressor(cv=3, warm_start=True, **quick).fit(X, y)
    before = regressor.predict(X)
    with pytest.raises(ValueError) as caught:
        regressor.set_params(cv=4).fit(X, y)
    assert str(caught.value) == (
        "With warm_start=True members must go on with their own rows: a row that a member has trained on must not "
        "become a row that it leaves out. Got other splits (4 for 3 members). Fit the same number of rows with the "
        "same splitter and a fixed random_state, or use warm_start=False."
    )
    with pytest.raises(ValueError, match=r"^With warm_start=True the network must stay the same\. "):
        regressor.set_params(cv=3, model__units=9).fit(X, y)
    np.testing.assert_array_equal(regressor.predict(X), before)


@pytest.mark.parametrize("combine", ["median", "geometric", "vote", "weighted", lambda members: members[0]], ids=str)
def test_combine_is_read_when_predicting(blobs, quick, combine):
    X, y = blobs
    classifier = FusedKFoldClassifier(cv=3, **quick).fit(X, y)
    mean = classifier.predict_proba(X)
    np.testing.assert_allclose(mean, classifier.predict_members(X).mean(axis=0), rtol=1e-6)
    combined = classifier.set_params(combine=combine).predict_proba(X)
    assert not np.array_equal(mean, combined)
    np.testing.assert_allclose(combined.sum(axis=1), 1, rtol=1e-5)
    if combine == "weighted":
        expected = np.average(classifier.predict_members(X), axis=0, weights=classifier.member_scores_)
        np.testing.assert_allclose(combined, expected, rtol=1e-5)


def poison(pairs, y, member):
    """Targets that make one member fail and no other: a NaN would be refused, so a number that overflows."""
    y = y.copy()
    others = np.unique(np.concatenate([train for index, (train, _) in enumerate(pairs) if index != member]))
    own = np.setdiff1d(pairs[member][0], others)
    y[own] = 1e30  # its square is infinite in float32
    return y, own


def test_failed_member_is_left_out(line, quick):
    X, y = line
    rows = np.arange(60)
    pairs = [(rows[:30], rows[50:]), (rows[10:40], rows[50:]), (rows[10:50], rows[50:])]
    y, own = poison(pairs, y, 0)
    assert own.tolist() == list(range(10))
    regressor = FusedKFoldRegressor(cv=pairs, **quick)
    with pytest.warns(MemberFailureWarning) as caught:
        regressor.fit(X, y)
    messages = [str(one.message) for one in caught if one.category is MemberFailureWarning]
    assert messages == [
        "1 of 3 members failed and are left out of predictions: fold 0 in epoch 0 "
        f"({regressor.failed_members_[0].cause}). Lower the learning rate, scale X and y, or clip gradients with "
        "optimizer__clipnorm=1.0."
    ]
    assert list(regressor.failed_members_) == [0]
    members = regressor.predict_members(X)
    assert np.isnan(members[0]).all()
    np.testing.assert_allclose(regressor.predict(X), members[1:].mean(axis=0), rtol=1e-6)
    assert np.isnan(regressor.member_scores_[0])
    assert regressor.oof_counts_[50:].tolist() == [2] * 10
    assert np.isfinite(regressor.set_params(combine="weighted").predict(X)).all()
    with pytest.raises(MemberFailureError, match=r"^Members must train without NaN or infinity\. Got 1 of 3 that "):
        FusedKFoldRegressor(cv=pairs, on_member_failure="raise", **quick).fit(X, y)


def test_all_members_failing_is_an_error(line, quick):
    X, y = line
    with pytest.raises(MemberFailureError, match=r"Got 2 of 2 that failed: member 0 in epoch 0 \(.*member 1 in"):
        FusedEnsembleRegressor(n_members=2, **quick).fit(X, y * 1e30)


def test_interrupted_training_keeps_the_epochs_done(line, quick):
    X, y = line

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 3:
                raise KeyboardInterrupt

    regressor = FusedEnsembleRegressor(callbacks=[Interrupt()], **quick)
    with pytest.warns(UserWarning, match="^Training was interrupted. The members keep the epochs done"):
        regressor.fit(X, y)
    assert regressor.n_epochs_[0] in (3, 4)
    assert np.isfinite(regressor.predict(X)).all()


def test_compiled_model_brings_its_settings(blobs):
    X, y = blobs

    def build(units=6):
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(units, activation="tanh"), keras.layers.Dense(3)]
        )
        model.compile(
            keras.optimizers.SGD(0.5, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    classifier = FusedKFoldClassifier(build, cv=3, epochs=15, random_state=0).fit(X, y)
    assert classifier.oof_score_ > 0.8
    member = classifier.members_[0]
    assert type(member.optimizer) is keras.optimizers.SGD
    assert member.optimizer.momentum == 0.9
    assert set(classifier.history_[0]) == {"loss", "accuracy"}
    slow = FusedKFoldClassifier(build, cv=3, epochs=1, optimizer__learning_rate=0.25).fit(X, y)
    assert float(slow.members_[0].optimizer.learning_rate) == pytest.approx(0.25)
    assert slow.members_[0].optimizer.momentum == 0.9
    other = FusedKFoldClassifier(build, cv=3, epochs=1, optimizer="rmsprop").fit(X, y)
    assert type(other.members_[0].optimizer) is keras.optimizers.RMSprop


def test_compiled_model_brings_its_weighted_metrics(line):
    X, y = line
    weight = np.where(np.arange(60) % 2, 0.25, 4.0)
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    network.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"], weighted_metrics=["mae"])
    regressor = FusedEnsembleRegressor(network, epochs=1).fit(X, y, sample_weight=weight)
    expected = {"mae": np.abs(y).mean(), "weighted_mae": np.average(np.abs(y), weights=weight)}
    history = regressor.history_[0]
    assert {name: history[name] for name in expected} == {
        name: pytest.approx([value], rel=1e-5) for name, value in expected.items()
    }
