"""What all estimators share: fitting, what it leaves behind, and predicting with the members."""

import copy

import keras
import numpy as np
from keras import tree
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from kfoldfuse.combining import combine_predictions
from kfoldfuse.estimators import inputs, preprocessing
from kfoldfuse.estimators.fitting import FittingMixin
from kfoldfuse.estimators.network import MemberModels
from kfoldfuse.estimators.outcome import OutcomeMixin
from kfoldfuse.estimators.parameters import RoutedParametersMixin, list_of


class FusedEstimator(RoutedParametersMixin, FittingMixin, OutcomeMixin, BaseEstimator):
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

    def _score_rows(self, read, rows, predictions, sample_weight):
        """Score of predictions for some rows of the targets `read` in `fit`; NaN where it is not defined."""
        raise NotImplementedError

    # Prediction

    def _predict_own(self, data, rows):
        """Outputs of members that have data of their own."""
        n_rows = inputs.count_rows(data[0])
        # One array, since a program reads one; members take their part of it.
        joined = tree.map_structure(lambda *arrays: np.concatenate(arrays), *data)
        return self._trained.predict(joined, [own + member * n_rows for member, own in enumerate(rows)])

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

    def __sklearn_clone__(self):
        """A clone that shares models, layers, losses, metrics and optimizers, which are only read.

        scikit-learn would copy them by `copy.deepcopy`, which Keras does by the names of classes: an error for a class
        of the user's own, and 10 ms for a small model.
        """
        params = self.get_params(deep=False)
        shared = {name: value for name, value in params.items() if any(map(_is_of_keras, list_of(value)))}
        bare = copy.copy(self).set_params(**dict.fromkeys(shared))
        return super(FusedEstimator, bare).__sklearn_clone__().set_params(**shared)

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


def _is_of_keras(value):
    return isinstance(value, (keras.Layer, keras.Loss, keras.Metric, keras.Optimizer))


def _not_fitted(estimator, name):
    # An AttributeError, so that hasattr works as for every other fitted attribute.
    raise AttributeError(f"{type(estimator).__name__} has no `{name}` before `fit`. Call fit(X, y) first.")
