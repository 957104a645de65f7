"""Estimators with scikit-learn's interface: parameters, X and y to jobs, results to attributes."""

from kfoldfuse.estimators.ensemble import FusedEnsembleClassifier, FusedEnsembleRegressor
from kfoldfuse.estimators.kfold import FusedKFoldClassifier, FusedKFoldRegressor

__all__ = [
    "FusedEnsembleClassifier",
    "FusedEnsembleRegressor",
    "FusedKFoldClassifier",
    "FusedKFoldRegressor",
]
