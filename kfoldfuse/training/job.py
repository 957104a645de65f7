"""What crosses from the estimators to the engine, and what comes back: one job and one result per member."""

import dataclasses
from typing import Any

import numpy as np

from kfoldfuse.fusion.template import Template


@dataclasses.dataclass(frozen=True, eq=False)
class Settings:
    """How members train. Jobs with equal settings may share a program.

    Attributes
    ----------
    optimizer : keras.optimizers.Optimizer
        Never applied itself: every member gets the state of a copy.
    loss : keras.losses.Loss
    metrics : tuple of keras.metrics.Metric
        Their names are the keys of the history; never updated themselves.
    weighted_metrics : tuple of keras.metrics.Metric
        As `metrics`, updated with the sample weights.
    epochs, batch_size : int
        As in Keras.
    callbacks : tuple of keras.callbacks.Callback
        Copied per member. Hooks of epochs and of the whole training are called.
    shuffle : bool
        New order of the rows each epoch, from the member's seed.
    """

    optimizer: Any
    loss: Any
    metrics: tuple = ()
    weighted_metrics: tuple = ()
    epochs: int = 1
    batch_size: int = 32
    callbacks: tuple = ()
    shuffle: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class MemberState:
    """Everything a member is made of.

    Attributes
    ----------
    values : list of ndarray
        In the order of ``template.model.variables``.
    slots : list of ndarray or None
        In the order of ``optimizer.variables``; None for a fresh optimizer.
    """

    values: list
    slots: list | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class FitJob:
    """One member to train.

    Attributes
    ----------
    template : Template
    x : structure of ndarray of shape (n_rows, ...)
        As the template's inputs. Jobs that hold the same objects share them on the device.
    y : ndarray of shape (n_rows, ...)
    rows : ndarray of int
        Rows of `x` and `y` to train on; a row may come several times.
    settings : Settings
    seed : int
        The member's own: initial weights, order of rows, dropout.
    validation_rows : ndarray of int or None
        Rows behind the ``val_*`` entries of the history.
    sample_weight : ndarray of shape (n_rows,) or None
    start : MemberState or None
        Where to start from; None draws initial weights from the seed.
    first_epoch : int
        Epochs this member has done before; its row orders go on from there.
    name : str
        For messages, such as "fold 3".
    """

    template: Template
    x: Any
    y: np.ndarray
    rows: np.ndarray
    settings: Settings
    seed: int
    validation_rows: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    start: MemberState | None = None
    first_epoch: int = 0
    name: str = "member"


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why and when a member was frozen."""

    epoch: int
    cause: str


@dataclasses.dataclass(eq=False)
class FitResult:
    """A trained member.

    Attributes
    ----------
    state : MemberState
        After the last epoch, or the best one where a callback restored it; for a failed member the last finite one.
    history : dict of str to list of float
        As ``keras.callbacks.History.history``: one entry per epoch done.
    n_epochs : int
        Epochs done by this call.
    best_epoch : int or None
        Counted from 0, of the weights that an early-stopping callback judged best.
    failure : Failure or None
    interrupted : bool
        Whether Ctrl-C ended the training.
    """

    state: MemberState
    history: dict
    n_epochs: int
    best_epoch: int | None = None
    failure: Failure | None = None
    interrupted: bool = False
