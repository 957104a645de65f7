"""What all estimators share: `fit` as a ladder from (parameters, X, y) to jobs and from results to attributes."""

import dataclasses
import warnings
from typing import Any

import numpy as np
from keras import tree
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from kfoldfuse.combining import check_combine, combine_predictions
from kfoldfuse.estimators import head, inputs, model_builder, optimizers, preprocessing, targets, weights
from kfoldfuse.estimators.history import Histories
from kfoldfuse.estimators.network import MemberModels, TrainedMembers
from kfoldfuse.estimators.parameters import (
    RoutedParametersMixin,
    check_common_parameters,
    training_callbacks,
    validation_of,
)
from kfoldfuse.exceptions import MemberFailureError, MemberFailureWarning
from kfoldfuse.fusion.template import make_template
from kfoldfuse.splitting import draw_entropy, gather_out_of_fold, member_seed, split_validation
from kfoldfuse.training import FitJob, Settings, train


@dataclasses.dataclass
class Fit:
    """What one call of `fit` knows so far; each step of the ladder adds its part.

    Attributes
    ----------
    x : ndarray, DataFrame, or dict or list of ndarray
        As given, checked; with a transformer as `preprocessor` its values are not looked at.
    n_rows : int
    targets : Targets
    sample_weight : ndarray of shape (n_rows,) or None
    entropy : int
    seeds : list of int
    splits : list of Split
    groups : ndarray of shape (n_rows,) or None
    rows, validation_rows : list of ndarray of int
        Of each member; None where a member looks at no rows.
    transformers : list of transformer or None
    data : list of structure of ndarray
        What each member's network gets; the same object where members share it.
    template : Template
    units : int
    outputs : str
        "probabilities", "logits" or "numbers".
    y : ndarray
        As the loss gets it.
    settings : Settings
    """

    x: Any
    n_rows: int
    targets: Any
    sample_weight: Any = None
    entropy: int = 0
    seeds: list = ()
    splits: list = ()
    groups: Any = None
    rows: list = ()
    validation_rows: list = ()
    transformers: list | None = None
    data: list = ()
    template: Any = None
    units: int = 0
    outputs: str = ""
    y: Any = None
    settings: Any = None


class FusedEstimator(RoutedParametersMixin, BaseEstimator):
    """Parent of the four estimators. They say what members are (folds, random restarts) and what targets mean."""

    # What subclasses answer

    def _check_own_parameters(self):
        """Problems of the parameters that only this kind of estimator has, one sentence each."""
        raise NotImplementedError

    def _make_splits(self, fit, params):
        """The members' splits, and what `groups` are; sets ``fit.splits``, ``fit.seeds`` and ``fit.groups``."""
        raise NotImplementedError

    def _name_member(self, index):
        """A member's name in messages, such as "fold 2"."""
        raise NotImplementedError

    def _read_targets(self, y):
        raise NotImplementedError

    def _to_predictions(self, raw):
        """Outputs of the network of shape (..., units) as what is combined."""
        raise NotImplementedError

    def _to_result(self, combined):
        """What `predict` returns for combined predictions."""
        raise NotImplementedError

    def _score_rows(self, rows, predictions, sample_weight):
        """Score of predictions for some rows of the y of `fit`, NaN where it is not defined."""
        raise NotImplementedError

    # The ladder of fit

    def _fit(self, x, y, sample_weight, params):
        before = dict(vars(self))
        try:
            fit = self._read_data(x, y, sample_weight)
            self._seed(fit)
            self._make_splits(fit, params)
            self._choose_rows(fit)
            self._preprocess(fit)
            self._make_template(fit)
            jobs = self._make_jobs(fit)
            results, reports = train(jobs, max_fused=self.max_fused, n_jobs=self.n_jobs, verbose=int(self.verbose))
            self._keep(fit, results, reports)
        except BaseException:
            # Bad input and failures leave the estimator as it was, fitted or not.
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def _read_data(self, x, y, sample_weight):
        """Check parameters and data; everything wrong with the parameters is said at once."""
        problems = [
            *check_common_parameters(self),
            *preprocessing.check_preprocessor(self.preprocessor),
            *self._check_own_parameters(),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        check_combine(self.combine, is_probability=self._probability_kind())
        x = inputs.read_inputs(self, x, reset=True, raw=self._has_transformer())
        read = self._read_targets(y)
        n_rows = inputs.count_rows(x)
        check_consistent_length(np.empty(n_rows), read.numbers)
        return Fit(x=x, n_rows=n_rows, targets=read, sample_weight=weights.read_sample_weight(sample_weight, n_rows))

    def _seed(self, fit):
        going_on = self._goes_on() and not isinstance(self.random_state, (int, np.integer))
        fit.entropy = self._entropy if going_on else draw_entropy(self.random_state)

    def _draw_seeds(self, fit, n_members):
        fit.seeds = [member_seed(fit.entropy, index) for index in range(n_members)]

    def _choose_rows(self, fit):
        """Rows to train on and to look at; a row of weight zero is not there at all."""
        validation = validation_of(self)
        fit.rows, fit.validation_rows = [], []
        for index, (split, seed) in enumerate(zip(fit.splits, fit.seeds, strict=True)):
            rows = split.train
            if fit.sample_weight is not None:
                rows = rows[fit.sample_weight[rows] > 0]
            if len(rows) == 0:
                raise ValueError(
                    f"`sample_weight` must leave every member a row to train on. Got only zeros for the "
                    f"{len(split.train)} training rows of {self._name_member(index)}. Use fewer zeros or other splits."
                )
            looked_at = None
            if validation == "held_out":
                looked_at = split.test
                if len(looked_at) == 0:
                    raise ValueError(
                        "`validation` must be None or a fraction where a member leaves out no rows. Got 'held_out', "
                        f"and {self._name_member(index)} trains on all rows. Use validation=0.1."
                    )
            elif validation is not None:
                rows, looked_at = split_validation(rows, validation, seed, strata=fit.targets.codes, groups=fit.groups)
            fit.rows.append(rows)
            fit.validation_rows.append(looked_at)

    def _has_transformer(self):
        return self.preprocessor is not None and not preprocessing.is_normalization(self.preprocessor)

    def _preprocess(self, fit):
        if self._has_transformer():
            y = fit.targets.numbers if fit.targets.classes is None or fit.targets.indicator else fit.targets.codes
            fit.transformers, fit.data = preprocessing.fit_transformers(self.preprocessor, fit.x, y, fit.rows)
        else:
            fit.data = [fit.x] * len(fit.rows)

    def _make_template(self, fit):
        """Build the network, read what its outputs are, and settle optimizer, loss, metrics and the numbers of y."""
        x = fit.data[0]
        # The kind of the targets is what a model's function asks for, so a loss that settles it comes first.
        given_loss = head.make_loss(self.loss)
        fit.targets = targets.settle_kind(fit.targets, None, given_loss)
        meta = model_builder.make_meta(self, x, fit.targets)
        build = model_builder.make_builder(self.model, self._keywords_of("model__"), meta)
        built = []

        def build_noted():
            model = build()
            if not built:  # members are built by the same function later
                built.append(model)
            return model

        builder = build_noted
        if preprocessing.is_normalization(self.preprocessor):
            if inputs.has_several(x):
                raise ValueError(
                    "`preprocessor` must be None where X holds several inputs. Got a dict or list of arrays. "
                    "Put the preprocessing into the model, as Keras layers."
                )
            builder = preprocessing.prepend_normalization(self.preprocessor, build_noted, x)
        template = make_template(builder, seed=fit.entropy % 2**31, input_specs=inputs.input_specs(x))
        compiled = model_builder.read_compiled(self.model if hasattr(self.model, "get_compile_config") else built[0])

        graph = template.graph
        fit.units, activation = head.count_units(graph), head.find_activation(graph)
        loss = given_loss if given_loss is not None else head.make_loss(compiled.loss)
        fit.targets = targets.settle_kind(fit.targets, activation, loss)
        targets.check_units(fit.targets, fit.units, activation)
        fit.outputs = head.NUMBERS if fit.targets.classes is None else head.read_outputs(activation, loss)
        if loss is None:
            loss = targets.default_loss(fit.targets, fit.units, fit.outputs)
        self._check_classes(fit)
        fit.y = targets.encode(fit.targets, fit.units, loss)
        fit.template, fit.settings = template, self._make_settings(fit, loss, compiled)
        distinct = {id(data): data for data in fit.data}
        fitted = {key: inputs.fit_to_template(template, data) for key, data in distinct.items()}
        fit.data = [fitted[id(data)] for data in fit.data]  # members that shared an array still do

    def _make_settings(self, fit, loss, compiled):
        keywords = self._keywords_of("optimizer__")
        is_default = isinstance(self.optimizer, str) and self.optimizer == optimizers.DEFAULT_OPTIMIZER
        optimizer = compiled.optimizer if is_default and compiled.optimizer is not None else self.optimizer
        independent = fit.targets.classes is not None and (fit.units == 1 or fit.targets.kind == targets.MULTILABEL)

        def metrics(identifiers):
            return optimizers.make_metrics(identifiers, fit.y, fit.units, independent=independent, outputs=fit.outputs)

        return Settings(
            optimizer=optimizers.make_optimizer(optimizer, keywords),
            loss=loss,
            metrics=metrics(compiled.metrics if self.metrics is None else self.metrics),
            weighted_metrics=metrics(compiled.weighted_metrics),
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
            callbacks=training_callbacks(self),
        )

    def _check_classes(self, fit):
        """Refuse what only a classifier can get wrong, once its labels are known."""

    def _weigh(self, fit, member):
        """Weight of each row for one member."""
        return fit.sample_weight

    def _make_jobs(self, fit):
        n_members = len(fit.splits)
        starts, first_epochs = [None] * n_members, [0] * n_members
        if self._goes_on():
            self._check_going_on(fit)
            starts, first_epochs = self._trained.states(fit.settings.optimizer), self.n_epochs_.tolist()
            fit.template = self._trained.template
        elif preprocessing.is_normalization(self.preprocessor):
            starts = preprocessing.adapted_states(self.preprocessor, fit.template, fit.x, fit.rows, fit.seeds)
        return [
            FitJob(
                template=fit.template,
                x=fit.data[member],
                y=fit.y,
                rows=fit.rows[member],
                settings=fit.settings,
                seed=fit.seeds[member],
                validation_rows=fit.validation_rows[member],
                sample_weight=self._weigh(fit, member),
                start=starts[member],
                first_epoch=first_epochs[member],
                name=self._name_member(member),
            )
            for member in range(n_members)
        ]

    # Warm start

    def _goes_on(self):
        return bool(self.warm_start) and self.__sklearn_is_fitted__()

    def _check_going_on(self, fit):
        """Refuse a warm start that would mix what members have seen, or does not fit their networks."""
        shapes = [variable.shape for variable in fit.template.model.variables]
        if shapes != [values.shape[1:] for values in self._trained.stacked]:
            raise ValueError(
                "With warm_start=True the network must stay the same. Got weights of other shapes than the fitted "
                "members have. Use warm_start=False to train new members."
            )
        kept, given = self.splits_, fit.splits
        same = len(kept) == len(given) and all(
            np.array_equal(old.train, new.train) and np.array_equal(old.test, new.test)
            for old, new in zip(kept, given, strict=True)
        )
        if not same:
            raise ValueError(
                "With warm_start=True members must go on with their own rows: a row that a member has trained on must "
                f"not become a row that it leaves out. Got other splits ({len(given)} for {len(kept)} members). "
                "Fit the same number of rows with the same splitter and a fixed random_state, or use warm_start=False."
            )

    # From results to attributes

    def _keep(self, fit, results, reports):
        sound = np.array([result.failure is None for result in results])
        self.failed_members_ = {
            member: result.failure for member, result in enumerate(results) if result.failure is not None
        }
        self._report_failures(len(results))
        if any(result.interrupted for result in results):
            warnings.warn(
                "Training was interrupted. The members keep the epochs done (see n_epochs_), and predict with them. "
                "Fit again with warm_start=True to go on.",
                ConvergenceWarning,
                stacklevel=4,
            )
        earlier = list(zip(self.history_, self.n_epochs_, strict=True)) if self._goes_on() else [({}, 0)] * len(results)
        self._entropy, self._targets = fit.entropy, dataclasses.replace(fit.targets, numbers=None)
        self._outputs, self._sound = fit.outputs, sound
        self._input_shapes = inputs.shapes_of(fit.data[0]) if fit.transformers is None else None
        self._trained = TrainedMembers(
            fit.template, [result.state for result in results], fit.settings, keep_slots=bool(self.warm_start)
        )
        if fit.targets.classes is not None:
            self.classes_ = fit.targets.classes
        if fit.transformers is not None:
            self.preprocessors_ = fit.transformers
        elif hasattr(self, "preprocessors_"):
            del self.preprocessors_
        self.n_outputs_ = fit.units
        self.n_members_ = len(results)
        self.splits_ = fit.splits
        self.history_ = Histories(
            [_joined(old, result.history) for (old, _), result in zip(earlier, results, strict=True)]
        )
        self.n_epochs_ = np.array([n + result.n_epochs for (_, n), result in zip(earlier, results, strict=True)])
        self.best_epoch_ = [result.best_epoch for result in results]
        self.fusion_report_ = _summarize(reports)
        self._keep_out_of_fold(fit)

    def _report_failures(self, n_members):
        if not self.failed_members_:
            return
        described = "; ".join(
            f"{self._name_member(member)} in epoch {failure.epoch} ({failure.cause})"
            for member, failure in self.failed_members_.items()
        )
        advice = "Lower the learning rate, scale X and y, or clip gradients with optimizer__clipnorm=1.0."
        if self.on_member_failure == "raise" or len(self.failed_members_) == n_members:
            raise MemberFailureError(
                f"Members must train without NaN or infinity. Got {len(self.failed_members_)} of {n_members} that "
                f"failed: {described}. {advice}"
            )
        warnings.warn(
            f"{len(self.failed_members_)} of {n_members} members failed and are left out of predictions: {described}. "
            f"{advice}",
            MemberFailureWarning,
            stacklevel=5,
        )

    def _keep_out_of_fold(self, fit):
        """Predictions of members for the rows they left out, and their scores there."""
        for name in ("oof_predictions_", "oof_proba_", "oof_counts_", "oof_score_", "oof_is_biased_", "member_scores_"):
            if hasattr(self, name):
                delattr(self, name)
        if not any(len(split.test) and ok for split, ok in zip(fit.splits, self._sound, strict=True)):
            return
        if fit.transformers is None:
            raw = self._trained.predict(fit.data[0], [split.test for split in fit.splits])
        else:
            raw = self._predict_own(fit.data, [split.test for split in fit.splits])
        predictions = [
            self._to_predictions(output) if ok else None for output, ok in zip(raw, self._sound, strict=True)
        ]
        combined, self.oof_counts_ = gather_out_of_fold(predictions, fit.splits, fit.n_rows)
        self._keep_combined(combined)
        numbers = fit.targets
        self.member_scores_ = np.array(
            [
                np.nan if own is None else self._score_rows(numbers, split.test, own, fit.sample_weight)
                for own, split in zip(predictions, fit.splits, strict=True)
            ]
        )
        predicted = np.flatnonzero(self.oof_counts_)
        self.oof_score_ = self._score_rows(numbers, predicted, combined[predicted], fit.sample_weight)
        self.oof_is_biased_ = validation_of(self) == "held_out"

    def _keep_combined(self, combined):
        self.oof_predictions_ = self._to_result(combined)

    def _predict_own(self, data, rows):
        """Outputs of members that have data of their own."""
        n_rows = inputs.count_rows(data[0])
        # One array, since a program reads one; members take their part of it.
        joined = tree.map_structure(lambda *arrays: np.concatenate(arrays), *data)
        return self._trained.predict(joined, [own + member * n_rows for member, own in enumerate(rows)])

    # Prediction

    def _predict_sound(self, x):
        """Predictions of members that did not fail: (n_sound, n_samples, ...)."""
        check_is_fitted(self)
        x = inputs.read_inputs(self, x, reset=False, raw=hasattr(self, "preprocessors_"))
        template = self._trained.template
        if hasattr(self, "preprocessors_"):
            data = [
                inputs.fit_to_template(template, preprocessing.transform(transformer, x))
                for transformer in self.preprocessors_
            ]
            raw = np.stack(self._predict_own(data, [np.arange(inputs.count_rows(data[0]))] * len(data)))
        else:
            raw = self._trained.predict(inputs.fit_to_template(template, x))
        return self._to_predictions(raw[self._sound])

    def _predict_combined(self, x):
        return self._combine(self._predict_sound(x))

    def _combine(self, predictions):
        member_weights = self._member_weights() if self.combine == "weighted" else None
        kind = self._probability_kind()
        return combine_predictions(predictions, self.combine, weights=member_weights, is_probability=kind)

    def _member_weights(self):
        """Scores on left-out rows as weights; members no better than nothing get none, if others are."""
        if not hasattr(self, "member_scores_"):
            raise ValueError(
                "`combine` must be another than 'weighted' where members leave out no rows to score them on. "
                "Got 'weighted'. Use combine='mean'."
            )
        scores = np.nan_to_num(self.member_scores_[self._sound], nan=0.0).clip(min=0.0)
        return scores if scores.any() else np.ones(len(scores))

    def _probability_kind(self):
        return False

    def predict_members(self, X):
        """Predictions of each member by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_members, n_samples, ...)
            Probabilities of shape (n_members, n_samples, n_classes) for a classifier. NaN for a failed member.
        """
        sound = self._predict_sound(X)
        if self._sound.all():
            return sound
        members = np.full((len(self._sound), *sound.shape[1:]), np.nan, dtype=sound.dtype)
        members[self._sound] = sound
        return members

    # Keras models

    @property
    def model_(self):
        """The fused Keras model: inputs and outputs of shape (n_members, batch, ...)."""
        return self._trained.fused_model() if self.__sklearn_is_fitted__() else _not_fitted(self, "model_")

    @property
    def members_(self):
        """The members as ordinary Keras models, a sequence; each is made when it is asked for."""
        return MemberModels(self._trained) if self.__sklearn_is_fitted__() else _not_fitted(self, "members_")

    # scikit-learn

    def __sklearn_is_fitted__(self):
        """Whether `fit` has ended well."""
        return "_trained" in vars(self)

    def __sklearn_tags__(self):
        """Dense X of any rank; missing values only where a preprocessor takes them."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        if self.preprocessor is not None and hasattr(self.preprocessor, "__sklearn_tags__"):
            tags.input_tags.allow_nan = get_tags(self.preprocessor).input_tags.allow_nan
        return tags

    def __repr__(self, N_CHAR_MAX=700):
        text = super().__repr__(N_CHAR_MAX)
        if vars(self).get("oof_is_biased_"):
            text += "  # oof_score_ is optimistic: members looked at the rows they were held out from"
        return text


def _joined(earlier, new):
    names = dict.fromkeys([*earlier, *new])
    return {name: [*earlier.get(name, []), *new.get(name, [])] for name in names}


def _summarize(reports):
    lowerings = {}
    for report in reports:
        lowerings.update(report.lowerings)
    return {
        "groups": len({report.group for report in reports}),
        "chunks": [report.n_members for report in reports],
        "lowerings": lowerings,
        "trace_seconds": sum(report.trace_seconds for report in reports),
        "train_seconds": sum(report.train_seconds for report in reports),
    }


def _not_fitted(estimator, name):
    # An AttributeError, so that hasattr works as for every other fitted attribute.
    raise AttributeError(f"{type(estimator).__name__} has no `{name}` before `fit`. Call fit(X, y) first.")
