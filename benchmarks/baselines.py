"""What the benchmarks compare with: the loop people write today, and the fastest one-member loop TensorFlow allows."""

import os
import platform
import time

import keras
import numpy as np
import tensorflow as tf


def seconds(function, *args):
    """Wall time of one call."""
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started


def print_machine():
    """What the figures below were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = len(tf.config.list_physical_devices("GPU"))
    print(
        f"{platform.machine()}, {cores} cores, {gpus} GPUs, Python {platform.python_version()}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}\n"
    )


def keras_loop(build, loss, x, y, row_sets, *, epochs, batch_size):
    """One network after another by `compile` and `fit`, as one would write it.

    Parameters
    ----------
    build : callable
        Returns a new, uncompiled Keras model.
    loss : str
    x, y : ndarray of shape (n_rows, ...)
    row_sets : list of ndarray of int
        Rows each member trains on.
    epochs, batch_size : int
    """
    for rows in row_sets:
        model = build()
        model.compile(optimizer="adam", loss=loss)
        model.fit(x[rows], y[rows], epochs=epochs, batch_size=batch_size, verbose=0)


class TightLoop:
    """One network after another by a single `tf.function` that runs a whole epoch, with TensorFlow's own Adam kernel.

    No Python runs per step, the data are on the device, the batches are gathered there, and the function is traced once
    for all members: what is left is the work of the steps themselves. Fusing has to beat this one to be more than a
    cure for the overhead of `fit`.

    Parameters
    ----------
    build, loss, x, y, row_sets, epochs, batch_size
        As of `keras_loop`.
    """

    def __init__(self, build, loss, x, y, row_sets, *, epochs, batch_size):
        self._build, self._row_sets, self._epochs, self._batch_size = build, row_sets, epochs, batch_size
        self._x, self._y = tf.constant(x), tf.constant(y)
        self._loss = keras.losses.get(loss)
        self._model = build()
        self._weights = [variable.value for variable in self._model.trainable_variables]
        self._slots = [tf.Variable(tf.zeros_like(weight)) for weight in self._weights + self._weights]
        self._step = tf.Variable(0.0)

    def run(self):
        """Train all members."""
        for member, rows in enumerate(self._row_sets):
            generator = np.random.default_rng(member)
            self._start_afresh()
            for _ in range(self._epochs):
                self._epoch(tf.constant(generator.permutation(rows), "int32"))

    def _start_afresh(self):
        for weight, value in zip(self._weights, self._build().trainable_variables, strict=True):
            weight.assign(value.value)
        for slot in self._slots:
            slot.assign(tf.zeros_like(slot))
        self._step.assign(0.0)

    @tf.function(input_signature=[tf.TensorSpec((None,), "int32")], autograph=False)
    def _epoch(self, order):
        size = self._batch_size
        n_steps = (tf.shape(order)[0] + size - 1) // size
        first, second = self._slots[: len(self._weights)], self._slots[len(self._weights) :]

        def body(step):
            rows = order[step * size : (step + 1) * size]
            with tf.GradientTape() as tape:
                outputs = self._model(tf.gather(self._x, rows), training=True)
                loss = tf.reduce_mean(self._loss(tf.gather(self._y, rows), outputs))
            gradients = tape.gradient(loss, self._weights)
            self._step.assign_add(1.0)
            for weight, m, v, gradient in zip(self._weights, first, second, gradients, strict=True):
                tf.raw_ops.ResourceApplyAdam(
                    var=weight.handle,
                    m=m.handle,
                    v=v.handle,
                    beta1_power=0.9**self._step,
                    beta2_power=0.999**self._step,
                    lr=0.001,
                    beta1=0.9,
                    beta2=0.999,
                    epsilon=1e-7,
                    grad=gradient,
                )
            return step + 1

        tf.while_loop(lambda step: step < n_steps, body, [0])


def compare(estimator, build, loss, x, y, *, with_keras_loop=True):
    """Train the folds of an estimator in all three ways, and print seconds and ratios.

    Parameters
    ----------
    estimator : FusedKFoldClassifier
        Is fitted.
    build, loss, x, y
        As of `keras_loop`.
    with_keras_loop : bool
    """

    def line(what, value, to=None):
        print(f"{what:<64}{value:>9.2f}" + (f"{value / to:>10.1f}" if to else ""), flush=True)

    print(f"{'':<64}{'seconds':>9}{'/ fused':>10}")
    training = {"epochs": estimator.epochs, "batch_size": estimator.batch_size}
    cold, warm = seconds(estimator.fit, x, y), seconds(estimator.fit, x, y)
    row_sets = [split.train for split in estimator.splits_]
    tight = TightLoop(build, loss, x, y, row_sets, **training)
    line("fused, first fit (building and tracing included)", cold)
    line("fused, second fit (traced program from the cache)", warm)
    line("tight one-member loop, one after another, tracing included", seconds(tight.run), cold)
    line("tight one-member loop, traced before", seconds(tight.run), warm)
    if with_keras_loop:
        loop = seconds(lambda: keras_loop(build, loss, x, y, row_sets, **training))
        line("Keras loop, model.fit one after another (against the first fit)", loop, cold)
