"""From jobs to results: plan, then epoch by epoch through each program. No Python runs per step."""

import dataclasses
import time

import joblib
import keras
import numpy as np
from tqdm.auto import tqdm

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.training import engine
from kfoldfuse.training.batches import make_schedule, padded_batch_size, row_order
from kfoldfuse.training.callbacks import MemberCallbacks, MemberView, check_callbacks, check_monitors
from kfoldfuse.training.initial import initial_state
from kfoldfuse.training.job import Failure, FitResult, MemberState
from kfoldfuse.training.optimizer import check_optimizer
from kfoldfuse.training.plan import plan
from kfoldfuse.training.program_cache import find_program


@dataclasses.dataclass(frozen=True)
class ChunkReport:
    """How one program ran.

    Attributes
    ----------
    group : int
        Programs of one group train the same architecture with the same settings.
    n_members : int
    lowerings : dict of str to str
        "rule", "folded" or "copied" per layer of the template.
    trace_seconds : float
        Building and tracing, with the first epoch; 0 where a program of an earlier fit was used again.
    train_seconds : float
        All other epochs, in seconds.
    """

    group: int
    n_members: int
    lowerings: dict
    trace_seconds: float
    train_seconds: float


def train(jobs, *, max_fused="auto", n_jobs=None, verbose=0):
    """Train members, as many in one program as the plan allows.

    Parameters
    ----------
    jobs : list of FitJob
    max_fused : int or "auto"
        Members per program. Never changes results.
    n_jobs : int or None
        Programs at a time, through joblib's active backend.
    verbose : int
        1 shows a progress bar of epochs per program.

    Returns
    -------
    results : list of FitResult
        In the order of the jobs.
    report : list of ChunkReport
        One per program.

    Raises
    ------
    KeyboardInterrupt
        Where Ctrl-C came before any member had done an epoch. Later on, the epochs done are kept; a member that had not
        begun comes back as failed.
    """
    for job in jobs:
        if not job.template.model.variables:
            raise UnfusableModelError(
                f"`model` must have weights. Got {job.template.model.name!r} without any. Add a layer that learns, "
                "such as Dense."
            )
        check_optimizer(job.settings.optimizer)
        check_callbacks(job.settings.callbacks)
    chunks = plan(jobs, max_fused)
    in_parallel = len(chunks) > 1 and n_jobs not in (None, 1)
    if in_parallel:  # drawn here: initialisers of the user's own need not travel to another process
        jobs = [dataclasses.replace(job, start=job.start or initial_state(job.template, job.seed)) for job in jobs]
    parts = [([jobs[position] for position in chunk.positions], chunk.group, verbose) for chunk in chunks]
    if in_parallel:
        done = joblib.Parallel(n_jobs=n_jobs, prefer="threads")(joblib.delayed(_train_chunk)(*part) for part in parts)
    else:
        done = _train_in_turn(parts)
    results = [None] * len(jobs)
    for chunk, (chunk_results, _) in zip(chunks, done, strict=True):
        for position, result in zip(chunk.positions, chunk_results, strict=True):
            results[position] = result
    return results, [report for _, report in done]


def _train_in_turn(parts):
    done, interrupted = [], False
    for part in parts:
        try:
            if interrupted:
                raise KeyboardInterrupt
            done.append(_train_chunk(*part))
        except KeyboardInterrupt:
            if not done:
                raise
            done.append(_not_begun(*part))
        interrupted = done[-1][0][0].interrupted
    return done


def _not_begun(jobs, group, verbose):
    """Results of members that Ctrl-C kept from their first epoch; what had been trained before stays as it is."""
    failure = Failure(0, "training was interrupted before its first epoch")
    results = [
        FitResult(
            state=job.start or initial_state(job.template, job.seed),
            history={},
            n_epochs=0,
            failure=failure if job.start is None else None,
            interrupted=True,
        )
        for job in jobs
    ]
    return results, ChunkReport(group, len(jobs), {}, 0.0, 0.0)


def _train_chunk(jobs, group, verbose):
    started = time.perf_counter()
    run = _Run(jobs)
    to_be_traced = not run.program.is_traced
    epochs = max(job.settings.epochs for job in jobs)
    first_epoch_done = None
    interrupted = False
    try:
        run.call("on_train_begin")
        for epoch in tqdm(range(epochs), disable=not verbose, unit="epoch", desc=f"{len(jobs)} members"):
            if not run.active(epoch).any():
                break
            run.run_epoch(epoch)
            first_epoch_done = first_epoch_done or time.perf_counter()
    except KeyboardInterrupt:
        if first_epoch_done is None:
            raise
        run.undo_begun_epoch()
        interrupted = True
    results = run.finish(interrupted)
    ended = time.perf_counter()
    border = (first_epoch_done or ended) if to_be_traced else started
    return results, ChunkReport(group, len(jobs), dict(run.program.network.lowerings), border - started, ended - border)


class _Run:
    """The members of one chunk while they train: state, callbacks and histories."""

    def __init__(self, jobs):
        self.jobs = jobs
        first = jobs[0]
        self.template = first.template
        inputs, target, weight, offsets = _gather_sources(jobs)
        padded = padded_batch_size(first.settings.batch_size, max(len(job.rows) for job in jobs))
        spec = engine.target_spec(target)
        self.program = find_program(self.template, first.settings, len(jobs), padded, spec, weight is not None)
        self._data = engine.device_data(inputs, target, weight)
        self._padded = padded
        self._rows = [job.rows + offset for job, offset in zip(jobs, offsets, strict=True)]
        self._validation = _validation_schedule(jobs, offsets, padded)
        for job in jobs:
            check_monitors(job.settings.callbacks, _log_names(self.program, job))
        self._state = self.program.initial_state(
            [(job.start or initial_state(job.template, job.seed), job.settings.optimizer) for job in jobs]
        )
        self.weight_positions = _positions(self.template.model.weights, self.template.model.variables)
        self._host = None
        self._written = False
        self.failures = [None] * len(jobs)
        self.histories = [{} for _ in jobs]
        self.n_epochs = [0] * len(jobs)
        self._before_epoch = None
        self.callbacks = [
            MemberCallbacks(job.settings.callbacks, MemberView(self, member), {"epochs": job.settings.epochs})
            for member, job in enumerate(jobs)
        ]

    def active(self, epoch):
        """Members that still train in this epoch, counted from 0."""
        return np.array(
            [
                epoch < job.settings.epochs and not callbacks.view.stop_training and failure is None
                for job, callbacks, failure in zip(self.jobs, self.callbacks, self.failures, strict=True)
            ]
        )

    def call(self, hook, members=None):
        """Call a hook without an epoch for the members."""
        for member in range(len(self.jobs)) if members is None else members:
            self.callbacks[member].call(hook)
        self._apply_changes()

    def run_epoch(self, epoch):
        """One epoch of all active members, with their callbacks."""
        lengths = [{name: len(values) for name, values in history.items()} for history in self.histories]
        self._before_epoch = (self._state, list(self.n_epochs), list(self.failures), lengths)
        active = self.active(epoch)
        members = np.flatnonzero(active)
        for member in members:
            self.callbacks[member].call("on_epoch_begin", self.jobs[member].first_epoch + epoch)
        self._apply_changes()
        orders = [
            row_order(rows, job.seed, job.first_epoch + epoch, job.settings.shuffle) if active[member] else rows[:0]
            for member, (rows, job) in enumerate(zip(self._rows, self.jobs, strict=True))
        ]
        schedule = make_schedule(orders, self.jobs[0].settings.batch_size, self._padded)
        self._state, logs = self.program.train_epoch(self._state, active, self._data, schedule)
        self._host = None
        self._note_failures(members, epoch)
        if self._validation is not None:
            val_logs = self.program.evaluate(self._state, active, self._data, self._validation)
            for member in members:
                if self._validation.n_valid[:, member].any():
                    logs[member].update({f"val_{name}": value for name, value in val_logs[member].items()})
        for member in members:
            self.n_epochs[member] += 1
            if self.failures[member] is None:
                self.callbacks[member].call("on_epoch_end", self.jobs[member].first_epoch + epoch, logs[member])
            for name, value in logs[member].items():
                self.histories[member].setdefault(name, []).append(float(value))
        self._apply_changes()
        self._before_epoch = None

    def undo_begun_epoch(self):
        """Go back to the last whole epoch: Ctrl-C may come between an update and the notes about it."""
        if self._before_epoch is None:
            return
        self._state, self.n_epochs, self.failures, lengths = self._before_epoch
        self._host, self._written, self._before_epoch = None, False, None
        self.histories = [
            {name: values[: kept[name]] for name, values in history.items() if name in kept}
            for history, kept in zip(self.histories, lengths, strict=True)
        ]

    def finish(self, interrupted):
        """Results of all members."""
        sound = [member for member, failure in enumerate(self.failures) if failure is None]
        self._state = self.program.finalize(self._state)
        self._host = None
        self.call("on_train_end", sound)
        values, slots = self._arrays()
        return [
            FitResult(
                state=MemberState([value[m].copy() for value in values], [slot[m].copy() for slot in slots]),
                history=self.histories[m],
                n_epochs=self.n_epochs[m],
                best_epoch=self.callbacks[m].best_epoch,
                failure=self.failures[m],
                interrupted=interrupted,
            )
            for m in range(len(self.jobs))
        ]

    def _note_failures(self, members, epoch):
        alive = self._state.alive.numpy()
        for member in members:
            if not alive[member]:
                self.failures[member] = Failure(epoch, "a loss or an updated weight was not finite (NaN or infinite)")

    # What callbacks read and write

    @property
    def metrics(self):
        """The program's metrics."""
        return self.program.metrics.metrics

    def read_value(self, position, member):
        """A copy of one value of a member."""
        return self._arrays()[0][position][member].copy()

    def read_all(self, member):
        """All values of a member."""
        return [value[member].copy() for value in self._arrays()[0]]

    def write_value(self, position, member, value):
        """Set one value of a member, from the next epoch on."""
        self._writable()[0][position][member] = value

    def read_slot(self, name, member):
        """A slot of a member, by name."""
        return self._arrays()[1][self._slot(name)][member].copy()

    def write_slot(self, name, member, value):
        """Set a slot of a member, from the next epoch on."""
        self._writable()[1][self._slot(name)][member] = keras.ops.convert_to_numpy(value)

    def _slot(self, name):
        names = self.program.optimizer.names
        if name not in names:
            raise AttributeError(f"The optimizer has no {name} to read or set. Its state has {names}.")
        return names.index(name)

    def _arrays(self):
        if self._host is None:
            self._host = self.program.host_arrays(self._state)
        return self._host

    def _writable(self):
        if not self._written:
            values, slots = self._arrays()
            self._host = [value.copy() for value in values], [slot.copy() for slot in slots]
            self._written = True
        return self._host

    def _apply_changes(self):
        if self._written:
            self._state = self.program.with_arrays(self._state, *self._host)
            self._written = False
            self._host = None


def _log_names(program, job):
    names = ["loss", *program.metrics.names]
    return names if job.validation_rows is None else [*names, *(f"val_{name}" for name in names)]


def _positions(some, variables):
    where = {id(variable): position for position, variable in enumerate(variables)}
    return [where[id(variable)] for variable in some]


def _gather_sources(jobs):
    """Data of all jobs, each distinct set once, one after another, and where each job's rows begin."""
    sources, offsets, n_rows = {}, [], 0
    for job in jobs:
        key = (id(job.x), id(job.y))
        if key not in sources:
            sources[key] = (job, n_rows)
            n_rows += len(job.y)
        offsets.append(sources[key][1])
    parts = [job for job, _ in sources.values()]
    specs = keras.tree.flatten(jobs[0].template.graph.input)
    flat = [_flat_inputs(job) for job in parts]
    inputs = [
        _joined([np.asarray(each[i]) for each in flat]).astype(keras.backend.standardize_dtype(spec.dtype), copy=False)
        for i, spec in enumerate(specs)
    ]
    target = _joined([np.asarray(job.y) for job in parts])
    if target.dtype.kind == "f":
        target = target.astype(keras.config.floatx(), copy=False)
    return inputs, target, _joined_weights(jobs, offsets, n_rows), offsets


def _flat_inputs(job):
    structure = job.template.graph.input
    if isinstance(structure, dict) and isinstance(job.x, dict):
        return keras.tree.flatten({name: job.x[name] for name in structure})
    return keras.tree.flatten(job.x)


def _joined(arrays):
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined_weights(jobs, offsets, n_rows):
    if all(job.sample_weight is None for job in jobs):
        return None
    first = jobs[0].sample_weight
    if all(job.sample_weight is first for job in jobs) and len(first) == n_rows:
        return np.asarray(first)[None]
    weight = np.ones((len(jobs), n_rows))
    for member, (job, offset) in enumerate(zip(jobs, offsets, strict=True)):
        if job.sample_weight is not None:
            weight[member, offset : offset + len(job.y)] = job.sample_weight
    return weight


def _validation_schedule(jobs, offsets, padded):
    if all(job.validation_rows is None for job in jobs):
        return None
    none = np.zeros(0, dtype=np.int64)
    rows = [
        none if job.validation_rows is None else np.asarray(job.validation_rows) + offset
        for job, offset in zip(jobs, offsets, strict=True)
    ]
    return make_schedule(rows, jobs[0].settings.batch_size, padded)
