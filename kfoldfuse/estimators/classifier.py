"""What classifiers add: labels, probabilities, class weights."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from kfoldfuse.estimators import targets, weights


class FusedClassifierMixin(ClassifierMixin):
    """Targets are classes or labels; what members predict, and what is combined, are probabilities."""

    def _read_targets(self, y):
        return targets.read_classes(self, y)

    def _probability_kind(self):
        known = vars(self).get("_targets")
        return "labels" if known is not None and known.kind == targets.MULTILABEL else "classes"

    def _read_data(self, x, y, sample_weight):
        fit = super()._read_data(x, y, sample_weight)
        if fit.sample_weight is not None and fit.targets.codes is not None:
            left = np.unique(fit.targets.codes[fit.sample_weight > 0])
            if len(left) < 2:
                raise ValueError(
                    "`sample_weight` must leave rows of at least 2 classes. Got weights above 0 for 1 class only, "
                    f"{fit.targets.classes.tolist()[left[0]]!r}. Give rows of another class a weight."
                )
        return fit

    def _check_classes(self, fit):
        weights.check_class_weight(self.class_weight, fit.targets.classes, fit.targets.kind)

    def _weigh(self, fit, member):
        if self.class_weight is None:
            return fit.sample_weight
        classes, codes, rows = fit.targets.classes, fit.targets.codes, fit.rows[member]
        of_class = weights.weigh_classes(self.class_weight, classes, codes, rows, fit.sample_weight)
        weight = np.ones(fit.n_rows) if fit.sample_weight is None else fit.sample_weight.copy()
        own = np.unique(rows)  # as in Keras, class weights do not weigh the rows that a member only looks at
        weight[own] *= of_class[codes[own]]
        return weight

    def _to_predictions(self, raw):
        return targets.to_probabilities(raw, self._targets, self._outputs)

    def _to_result(self, combined):
        return targets.to_labels(combined, self._targets)

    def _keep_combined(self, combined):
        self.oof_proba_ = combined
        super()._keep_combined(combined)

    def _score_rows(self, read, rows, predictions, sample_weight):
        weight = None if sample_weight is None else sample_weight[rows]
        if len(rows) == 0 or (weight is not None and not weight.any()):
            return np.nan
        if read.codes is not None:
            return float(accuracy_score(read.codes[rows], predictions.argmax(axis=1), sample_weight=weight))
        return float(accuracy_score(read.numbers[rows] > 0.5, predictions > 0.5, sample_weight=weight))

    def predict(self, X):
        """Predict labels by the combined probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_classes) if y was an indicator matrix
            In the form and dtype of the y of `fit`.
        """
        return self._to_result(self._predict_combined(X))

    def predict_proba(self, X):
        """Combine the members' probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``. With several labels per row, the probability of each label by itself.
        """
        return self._predict_combined(X)

    def predict_log_proba(self, X):
        """Logarithm of `predict_proba`; minus infinity for a probability of 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or dict or list of them
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self):
        """Binary, multiclass and multilabel targets."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
