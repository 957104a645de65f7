"""What regressors add: one or several numbers per row, and their spread over the members."""

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score

from kfoldfuse.estimators import targets


class FusedRegressorMixin(MultiOutputMixin, RegressorMixin):
    """Targets are numbers."""

    def _read_targets(self, y):
        return targets.read_numbers(self, y)

    def _to_predictions(self, raw):
        return targets.to_numbers(raw, self._targets)

    def _to_result(self, combined):
        return combined

    def _score_rows(self, read, rows, predictions, sample_weight):
        weight = None if sample_weight is None else sample_weight[rows]
        if len(rows) < 2 or (weight is not None and not weight.any()):
            return np.nan  # R² of one row is not defined
        return float(r2_score(read.numbers[rows], predictions, sample_weight=weight))

    def predict(self, X, return_std=False):
        """Combine the members' predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            As in `fit`.
        return_std : bool, default=False
            Also return the standard deviation over the members: how much they disagree, not how noisy y is.

        Returns
        -------
        predictions : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In the form of the y of `fit`.
        std : ndarray of the same shape
            Only with `return_std`.
        """
        members = self._predict_sound(X)
        combined = self._combine(members)
        return (combined, members.std(axis=0)) if return_std else combined
