"""Members are the folds of a cross-validation."""

import numpy as np
from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_array

from kfoldfuse.estimators import inputs
from kfoldfuse.estimators.base import FusedEstimator
from kfoldfuse.estimators.classifier import FusedClassifierMixin
from kfoldfuse.estimators.parameters import store_parameters, suggest
from kfoldfuse.estimators.regressor import FusedRegressorMixin
from kfoldfuse.splitting import resolve_splits


class FoldsMixin:
    """Members are folds: what `cv` says, with groups by metadata routing."""

    def fit(self, X, y, sample_weight=None, **params):
        """Train a network per fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            Of any rank; DataFrames are read by position. Several inputs are a dict with the names of the model's
            inputs, or a list or tuple of arrays with at least two axes each.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the loss and the scores. A row of weight 0 is not trained on at all.
        **params : dict
            ``groups``, of shape (n_samples,), for splitters and validation rows by group. With scikit-learn's metadata
            routing enabled, whatever the splitter has requested.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For anything wrong with parameters or data, before any training; the estimator is left as it was.
        MemberFailureError
            If all members fail, or one with ``on_member_failure="raise"``.
        """
        return self._fit(X, y, sample_weight, params)

    def get_metadata_routing(self):
        """What `fit` takes itself (sample_weight) and what it hands to the splitter (groups).

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
        """
        mapping = MethodMapping().add(caller="fit", callee="split")
        return MetadataRouter(owner=self).add_self_request(self).add(splitter=self.cv, method_mapping=mapping)

    def _check_own_parameters(self):
        return []

    def _make_splits(self, fit, params):
        split_params = self._route(params)
        fit.groups = split_params.pop("groups", None)
        if fit.groups is not None:
            fit.groups = check_array(fit.groups, ensure_2d=False, dtype=None, input_name="groups")
            if fit.groups.shape != (fit.n_rows,):
                raise ValueError(
                    f"`groups` must have the shape ({fit.n_rows},), one group per row of X. Got {fit.groups.shape}. "
                    "Pass a 1-D array."
                )
        seed = self.random_state if isinstance(self.random_state, (int, np.integer)) else fit.entropy % 2**32
        fit.splits = resolve_splits(
            self.cv,
            fit.n_rows if inputs.has_several(fit.x) else fit.x,
            fit.targets.numbers,
            fit.groups,
            classifier=fit.targets.classes is not None,
            n_repeats=self.n_repeats,
            random_state=seed,
            **split_params,
        )
        self._member_names = _name_folds(fit.splits)
        self._draw_seeds(fit, len(fit.splits))

    def _route(self, params):
        """What the splitter gets, in both modes of metadata routing."""
        params = {name: value for name, value in params.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **params).splitter.split) if params else {}
        unknown = [name for name in params if name != "groups"]
        if unknown:
            raise TypeError(
                f"`fit` must get X, y, sample_weight and groups. Got {unknown[0]!r}. "
                f"{suggest(unknown[0], ['sample_weight', 'groups'], 'Remove it, or enable metadata routing.')}"
            )
        return params

    def _name_member(self, index):
        return self._member_names[index]


def _name_folds(splits):
    if all(split.repeat == 0 for split in splits):
        return [f"fold {index}" for index in range(len(splits))]
    per_repeat = sum(split.repeat == 0 for split in splits)
    return [f"fold {index % per_repeat} of repeat {split.repeat}" for index, split in enumerate(splits)]


class FusedKFoldClassifier(FusedClassifierMixin, FoldsMixin, FusedEstimator):
    """Neural-network classifiers for the folds of a cross-validation, trained as one program.

    One fit gives a network per fold, out-of-fold predictions for every row, and an ensemble that predicts with all
    folds. Each member learns what it would learn alone. For one network, or several on all rows, use
    FusedEnsembleClassifier; very wide networks gain little, as one member already fills the machine.

    y holds labels of any kind, of shape (n_samples,); or 0 and 1 with a column per class. A matrix with exactly one 1
    in every row is one-hot, unless the model ends in sigmoid units or the loss is a binary cross-entropy: then, and for
    any other matrix, each column is a label by itself (multilabel).

    Parameters
    ----------
    model : callable, keras.Model or None, default=None
        A function that returns a new Keras model each time, compiled or not; or a Keras model, whose architecture is
        copied with fresh weights (it is only read). None is a multilayer perceptron (`default_model`). The function
        may take `meta`, a mapping with ``X_shape_``, ``X_dtype_``, ``n_features_in_``, ``n_outputs_``,
        ``target_type_``, ``classes_`` and ``n_classes_``, and keywords of its own. The network has one output of shape
        (batch, units).
    optimizer : str, dict, class or keras.optimizers.Optimizer, default="adam"
        The default gives way to the optimizer of a compiled model.
    loss : str, callable or keras.losses.Loss, default=None
        None takes the loss of a compiled model, or else cross-entropy for the kind of y
        and the last layer: sigmoid, softmax, or linear units, which are read as logits.
    metrics : list of str, callable or keras.metrics.Metric, default=None
        For ``history_``. None takes the metrics of a compiled model.
    epochs : int, default=100
        Passes over a member's training rows; with a warm start, further ones.
    batch_size : int, default=32
        Rows per update of each member.
    cv : int, None, splitter or iterable of (train, test), default=5
        An int is a number of folds, stratified by class, not shuffled; None is 5; else any scikit-learn splitter, or
        pairs of row indices or masks.
    n_repeats : int, default=1
        Passes over the folds, each shuffled anew; `cv` must be an int above 1.
    validation : None, float or "held_out", default=None
        Rows that early stopping and ``val_*`` metrics look at: a fraction of the member's own training rows (shuffled,
        by class or whole groups), or the rows that the member leaves out. The latter makes ``oof_score_`` optimistic:
        it chose the epoch; ``oof_is_biased_`` and the repr say so.
    early_stopping : bool or keras.callbacks.EarlyStopping, default=False
        Per member. True stops after 10 epochs without a better ``val_loss`` and restores the best weights; an object
        means what it means in Keras. With validation=None it looks at a tenth of the member's training rows.
    callbacks : list of keras.callbacks.Callback, default=None
        Copied for each member; hooks of epochs and of the training are called. Those with hooks for batches or for one
        file (ModelCheckpoint, TensorBoard, CSVLogger) are refused.
    preprocessor : transformer or keras.layers.Normalization, default=None
        A scikit-learn transformer is cloned and fitted on the rows each member trains on; each member then has data of
        its own. A Normalization layer is adapted to them and becomes part of each member's network, so that the data
        stay shared.
    class_weight : "balanced" or dict, default=None
        Weights of classes, keyed by the labels in y (those that are missing weigh 1); "balanced" gives the classes in
        each member's own training rows the same total weight.
    combine : {"mean", "median", "geometric", "vote", "weighted"} or callable, default="mean"
        How members' predictions become one. "weighted" weighs members by ``member_scores_``. A function gets an array
        of shape (n_members, n_samples, ...). Read when predicting, so it may be set after `fit`.
    max_fused : int or "auto", default="auto"
        Members per program; "auto" by the memory they need. Never changes results.
    n_jobs : int, default=None
        Programs at a time, through joblib.
    on_member_failure : {"warn", "raise"}, default="warn"
        When a member's loss becomes NaN or infinite: freeze it and leave it out of predictions, or raise. If all
        members fail, it raises.
    warm_start : bool, default=False
        True goes on from the fitted members: `epochs` more epochs with their weights and optimizer states, on the same
        splits. A splitter that shuffles needs a fixed `random_state`.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, RandomState or None, default=None
        Seeds initial weights, row orders and dropout; member *i* depends on this number and *i*, not on how many
        members there are. Global random state is neither used nor changed.
    **model__keywords
        ``model__NAME`` for keywords of the model's function, ``optimizer__NAME`` for arguments of the optimizer. They
        can be searched like other parameters.

    Attributes
    ----------
    model_ : keras.Model
        All members as one, inputs and outputs of shape (n_members, batch, ...).
    members_ : sequence of keras.Model
        The members by themselves, made on demand, compiled.
    history_ : Histories
        ``history_[i]`` is member *i*'s dict of losses and metrics per epoch; ``history_.to_table()`` is a DataFrame.
    splits_ : list of Split
        ``splits_[i].train`` and ``.test`` are the rows that member *i* may train on and leaves out.
    oof_predictions_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        For each row, the prediction of the mean over members that left it out; NaN where there is none.
    oof_proba_ : ndarray of shape (n_samples, n_classes)
        The same as probabilities.
    oof_counts_ : ndarray of shape (n_samples,)
        How many members left the row out.
    oof_score_ : float
        Accuracy of ``oof_predictions_`` on the rows that have one, with `sample_weight` if given.
    oof_is_biased_ : bool
        Whether members looked at the rows they left out.
    member_scores_ : ndarray of shape (n_members,)
        Accuracy of each member on the rows it left out; NaN for a failed one.
    best_epoch_ : list of int or None
        Epoch from 0 that early stopping restored, per member.
    n_epochs_ : ndarray of shape (n_members,)
        Epochs done, per member.
    failed_members_ : dict of int to Failure
        Members that failed, with epoch and cause.
    n_members_, n_outputs_ : int
        Members; units of the network's output.
    classes_ : ndarray of shape (n_classes,)
        Labels; column numbers where y is an indicator matrix.
    n_features_in_ : int
        Columns of X (axis 1); with several inputs, of all together.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X was a DataFrame with names that are all strings.
    preprocessors_ : list of transformer
        Of each member, where `preprocessor` is a transformer.
    fusion_report_ : dict
        "groups", "chunks" (members per program), "lowerings" per layer, "trace_seconds" and "train_seconds".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import StandardScaler
    >>> from kfoldfuse import FusedKFoldClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> estimator = FusedKFoldClassifier(cv=3, epochs=40, preprocessor=StandardScaler(), random_state=0)
    >>> estimator.fit(X, y).predict(X[:5]).shape
    (5,)
    >>> estimator.oof_score_ > 0.8
    True
    """

    def __init__(
        self,
        model=None,
        *,
        optimizer="adam",
        loss=None,
        metrics=None,
        epochs=100,
        batch_size=32,
        cv=5,
        n_repeats=1,
        validation=None,
        early_stopping=False,
        callbacks=None,
        preprocessor=None,
        class_weight=None,
        combine="mean",
        max_fused="auto",
        n_jobs=None,
        on_member_failure="warn",
        warm_start=False,
        verbose=0,
        random_state=None,
        **model__keywords,
    ):
        store_parameters(self, locals())


class FusedKFoldRegressor(FusedRegressorMixin, FoldsMixin, FusedEstimator):
    """Neural-network regressors for the folds of a cross-validation, trained as one program.

    One fit gives a network per fold, out-of-fold predictions for every row, and an ensemble that predicts with all
    folds. Each member learns what it would learn alone. For one network, or several on all rows, use
    FusedEnsembleRegressor; very wide networks gain little, as one member already fills the machine.

    Parameters
    ----------
    model : callable, keras.Model or None, default=None
        A function that returns a new Keras model each time, compiled or not; or a Keras model, whose architecture is
        copied with fresh weights (it is only read). None is a multilayer perceptron (`default_model`). The function
        may take `meta`, a mapping with ``X_shape_``, ``X_dtype_``, ``n_features_in_``, ``n_outputs_``,
        ``target_type_``, ``classes_`` and ``n_classes_``, and keywords of its own. The network has one output of shape
        (batch, units).
    optimizer : str, dict, class or keras.optimizers.Optimizer, default="adam"
        The default gives way to the optimizer of a compiled model.
    loss : str, callable or keras.losses.Loss, default=None
        None takes the loss of a compiled model, or else mean squared error.
    metrics : list of str, callable or keras.metrics.Metric, default=None
        For ``history_``. None takes the metrics of a compiled model.
    epochs : int, default=100
        Passes over a member's training rows; with a warm start, further ones.
    batch_size : int, default=32
        Rows per update of each member.
    cv : int, None, splitter or iterable of (train, test), default=5
        An int is a number of folds, not shuffled; None is 5; else any scikit-learn splitter, or
        pairs of row indices or masks.
    n_repeats : int, default=1
        Passes over the folds, each shuffled anew; `cv` must be an int above 1.
    validation : None, float or "held_out", default=None
        Rows that early stopping and ``val_*`` metrics look at: a fraction of the member's own training rows (shuffled,
        by whole groups), or the rows that the member leaves out. The latter makes ``oof_score_`` optimistic: it chose
        the epoch; ``oof_is_biased_`` and the repr say so.
    early_stopping : bool or keras.callbacks.EarlyStopping, default=False
        Per member. True stops after 10 epochs without a better ``val_loss`` and restores the best weights; an object
        means what it means in Keras. With validation=None it looks at a tenth of the member's training rows.
    callbacks : list of keras.callbacks.Callback, default=None
        Copied for each member; hooks of epochs and of the training are called. Those with hooks for batches or for one
        file (ModelCheckpoint, TensorBoard, CSVLogger) are refused.
    preprocessor : transformer or keras.layers.Normalization, default=None
        A scikit-learn transformer is cloned and fitted on the rows each member trains on; each member then has data of
        its own. A Normalization layer is adapted to them and becomes part of each member's network, so that the data
        stay shared.
    combine : {"mean", "median", "weighted"} or callable, default="mean"
        How members' predictions become one. "weighted" weighs members by ``member_scores_``. A function gets an array
        of shape (n_members, n_samples, ...). Read when predicting, so it may be set after `fit`.
    max_fused : int or "auto", default="auto"
        Members per program; "auto" by the memory they need. Never changes results.
    n_jobs : int, default=None
        Programs at a time, through joblib.
    on_member_failure : {"warn", "raise"}, default="warn"
        When a member's loss becomes NaN or infinite: freeze it and leave it out of predictions, or raise. If all
        members fail, it raises.
    warm_start : bool, default=False
        True goes on from the fitted members: `epochs` more epochs with their weights and optimizer states, on the same
        splits. A splitter that shuffles needs a fixed `random_state`.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, RandomState or None, default=None
        Seeds initial weights, row orders and dropout; member *i* depends on this number and *i*, not on how many
        members there are. Global random state is neither used nor changed.
    **model__keywords
        ``model__NAME`` for keywords of the model's function, ``optimizer__NAME`` for arguments of the optimizer. They
        can be searched like other parameters.

    Attributes
    ----------
    model_ : keras.Model
        All members as one, inputs and outputs of shape (n_members, batch, ...).
    members_ : sequence of keras.Model
        The members by themselves, made on demand, compiled.
    history_ : Histories
        ``history_[i]`` is member *i*'s dict of losses and metrics per epoch; ``history_.to_table()`` is a DataFrame.
    splits_ : list of Split
        ``splits_[i].train`` and ``.test`` are the rows that member *i* may train on and leaves out.
    oof_predictions_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        For each row, the prediction of the mean over members that left it out; NaN where there is none.
    oof_counts_ : ndarray of shape (n_samples,)
        How many members left the row out.
    oof_score_ : float
        R² of ``oof_predictions_`` on the rows that have one, with `sample_weight` if given.
    oof_is_biased_ : bool
        Whether members looked at the rows they left out.
    member_scores_ : ndarray of shape (n_members,)
        R² of each member on the rows it left out; NaN for a failed one.
    best_epoch_ : list of int or None
        Epoch from 0 that early stopping restored, per member.
    n_epochs_ : ndarray of shape (n_members,)
        Epochs done, per member.
    failed_members_ : dict of int to Failure
        Members that failed, with epoch and cause.
    n_members_, n_outputs_ : int
        Members; units of the network's output.
    n_features_in_ : int
        Columns of X (axis 1); with several inputs, of all together.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X was a DataFrame with names that are all strings.
    preprocessors_ : list of transformer
        Of each member, where `preprocessor` is a transformer.
    fusion_report_ : dict
        "groups", "chunks" (members per program), "lowerings" per layer, "trace_seconds" and "train_seconds".

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from sklearn.preprocessing import StandardScaler
    >>> from kfoldfuse import FusedKFoldRegressor
    >>> X, y = make_regression(150, 4, random_state=0)
    >>> y = (y - y.mean()) / y.std()
    >>> estimator = FusedKFoldRegressor(cv=3, epochs=40, preprocessor=StandardScaler(), random_state=0)
    >>> estimator.fit(X, y).predict(X[:5]).shape
    (5,)
    >>> estimator.oof_score_ > 0.8
    True
    """

    def __init__(
        self,
        model=None,
        *,
        optimizer="adam",
        loss=None,
        metrics=None,
        epochs=100,
        batch_size=32,
        cv=5,
        n_repeats=1,
        validation=None,
        early_stopping=False,
        callbacks=None,
        preprocessor=None,
        combine="mean",
        max_fused="auto",
        n_jobs=None,
        on_member_failure="warn",
        warm_start=False,
        verbose=0,
        random_state=None,
        **model__keywords,
    ):
        store_parameters(self, locals())
