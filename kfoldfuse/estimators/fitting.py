"""The ladder of `fit`: parameters, X and y to jobs, step by step; each rung may be overridden."""

import dataclasses
from typing import Any

import keras
import numpy as np
from sklearn.utils.validation import check_consistent_length

from kfoldfuse.combining import check_combine
from kfoldfuse.estimators import head, inputs, model_builder, optimizers, preprocessing, targets, weights
from kfoldfuse.estimators.parameters import check_common_parameters, training_callbacks, validation_of
from kfoldfuse.fusion.template import make_template
from kfoldfuse.splitting import draw_entropy, member_seed, split_validation
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


class FittingMixin:
    """From the arguments of `fit` to trained members."""

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
        inputs.refuse_rows_as_inputs(x, y)
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
            fit.transformers, fit.data = preprocessing.fit_transformers(
                self.preprocessor, fit.x, fit.targets.numbers, fit.rows
            )
        else:
            fit.data = [fit.x] * len(fit.rows)

    def _make_template(self, fit):
        """Build the network, read what its outputs are, and settle optimizer, loss, metrics and the numbers of y."""
        # The kind of the targets is what a model's function asks for, so a loss that settles it comes first.
        loss = head.make_loss(self.loss)
        fit.targets = targets.settle_kind(fit.targets, None, loss)
        fit.template, compiled = self._build(fit)
        if loss is None:
            loss = head.make_loss(compiled.loss)
        fit.units, activation = head.count_units(fit.template.graph), head.find_activation(fit.template.graph)
        fit.targets = targets.settle_kind(fit.targets, activation, loss)
        targets.check_units(fit.targets, fit.units, activation)
        targets.check_loss(fit.targets, fit.units, loss)
        self._check_classes(fit)
        fit.outputs = head.NUMBERS if fit.targets.classes is None else head.read_outputs(activation, loss)
        if loss is None:
            loss = targets.default_loss(fit.targets, fit.units, fit.outputs)
        fit.y = targets.encode(fit.targets, fit.units, loss)
        fit.settings = self._make_settings(fit, loss, compiled)
        distinct = {id(data): data for data in fit.data}
        fitted = {key: inputs.fit_to_template(fit.template, data) for key, data in distinct.items()}
        fit.data = [fitted[id(data)] for data in fit.data]  # members that shared an array still do

    def _build(self, fit):
        """The template, and what its model was compiled with."""
        x = fit.data[0]
        meta = model_builder.make_meta(self, x, fit.targets)
        build = model_builder.make_builder(self.model, self._keywords_of("model__"), meta)
        built = []

        def build_noted():
            model = build()
            if not built:  # the same function builds members later
                built.append(model_builder.read_compiled(model))
            return model

        if isinstance(self.model, keras.Model):
            built.append(model_builder.read_compiled(self.model))
        builder = build_noted
        if preprocessing.is_normalization(self.preprocessor):
            if inputs.has_several(x):
                raise ValueError(
                    "`preprocessor` must be None where X holds several inputs. Got a dict or list of arrays. "
                    "Put the preprocessing into the model, as Keras layers."
                )
            builder = preprocessing.prepend_normalization(self.preprocessor, build_noted, x.shape[1:], x.dtype)
        template = make_template(builder, seed=fit.entropy % 2**31, input_specs=inputs.input_specs(x))
        return template, built[0]

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
