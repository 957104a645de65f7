"""From the results of training to fitted attributes: histories, failures, out-of-fold predictions and scores."""

import dataclasses
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kfoldfuse.estimators.history import Histories
from kfoldfuse.estimators.network import TrainedMembers
from kfoldfuse.estimators.parameters import validation_of
from kfoldfuse.exceptions import MemberFailureError, MemberFailureWarning
from kfoldfuse.splitting import gather_out_of_fold


class OutcomeMixin:
    """What `fit` leaves behind."""

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
        interrupted = any(result.interrupted for result in results)
        keep_slots = bool(self.warm_start) or interrupted
        self._trained = TrainedMembers(fit.template, [result.state for result in results], fit.settings, keep_slots)
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
