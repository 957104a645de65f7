"""Fit jobs -> programs -> fit results."""

from kfoldfuse.training.callbacks import check_callbacks
from kfoldfuse.training.job import Failure, FitJob, FitResult, MemberState, Settings
from kfoldfuse.training.loop import train
from kfoldfuse.training.losses import resolve_loss
from kfoldfuse.training.metrics import resolve_metrics
from kfoldfuse.training.optimizer import check_optimizer
from kfoldfuse.training.prediction import predict
from kfoldfuse.training.program_cache import clear_programs

__all__ = [
    "Failure",
    "FitJob",
    "FitResult",
    "MemberState",
    "Settings",
    "check_callbacks",
    "check_optimizer",
    "clear_programs",
    "predict",
    "resolve_loss",
    "resolve_metrics",
    "train",
]
