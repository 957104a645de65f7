"""Every optimizer of Keras, vectorised over members, against itself alone."""

import re

import keras
import numpy as np
import pytest

from kfoldfuse.testing import largest_difference, train_alone
from kfoldfuse.training import engine_members, train
from kfoldfuse.training.optimizer import MemberOptimizer

schedules = keras.optimizers.schedules

PLAIN = {
    name: value
    for name, value in vars(keras.optimizers).items()
    if isinstance(value, type) and issubclass(value, keras.Optimizer)
}
# What `PLAIN` holds but cannot be made without arguments, with the reason.
NOT_PLAIN = {
    "Optimizer": "the base class has no update",
    "LossScaleOptimizer": "wraps another one: below",
    "MultiOptimizer": "refused: below",
    "ScheduleFreeAdamW": "Keras 3.15 on TensorFlow departs from the optimizer's definition: below",
}
CONFIGURED = {
    "SGD with Nesterov momentum and weight decay": lambda: keras.optimizers.SGD(
        0.05, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "SGD clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "SGD clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.05),
    "RMSprop global_clipnorm": lambda: keras.optimizers.RMSprop(0.01, global_clipnorm=0.1),
    "RMSprop centred with momentum": lambda: keras.optimizers.RMSprop(0.01, centered=True, momentum=0.9),
    "Adam amsgrad": lambda: keras.optimizers.Adam(0.05, amsgrad=True),
    "Adam accumulating gradients": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2),
    "Adam averaging weights": lambda: keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.8),
    "SGD averaging and overwriting": lambda: keras.optimizers.SGD(0.05, use_ema=True, ema_overwrite_frequency=3),
    "SGD with a loss scale": lambda: keras.optimizers.SGD(0.05, loss_scale_factor=8.0),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05)),
    "AdamW without decay of biases": lambda: without_decay_of_biases(keras.optimizers.AdamW(0.05, weight_decay=0.3)),
    "SGD cosine": lambda: keras.optimizers.SGD(schedules.CosineDecay(0.1, 6)),
    "SGD steps": lambda: keras.optimizers.SGD(schedules.PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01])),
}


def without_decay_of_biases(optimizer):
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def build():
    constraint = keras.constraints.MaxNorm(0.8)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, "relu", kernel_constraint=constraint),
            keras.layers.Dense(1),
        ]
    )


@pytest.fixture
def one_by_one(monkeypatch):
    """Steps that had no vectorised form and fell back to one member after another: right, but slower."""
    from kfoldfuse.training import clear_programs

    fallen_back, try_vectorized = [], engine_members.try_vectorized

    def noted(function, elements):
        result = try_vectorized(function, elements)
        if result is None:
            fallen_back.append(function)
        return result

    monkeypatch.setattr(engine_members, "try_vectorized", noted)
    clear_programs()  # a program of an earlier test would not be traced again
    return fallen_back


def assert_equals_itself_alone(make_jobs, optimizer):
    # Training rows 15, 15, 16 in batches of 5: members 0 and 1 take fewer steps than member 2.
    jobs = make_jobs(build=build, optimizer=optimizer, batch_size=5)
    results, _ = train(jobs)
    for member in (0, 2):
        difference = largest_difference(results[member], train_alone(jobs[member]))
        assert max(difference.values()) < 1e-9, difference


def test_every_optimizer_of_keras_has_a_case():
    assert set(NOT_PLAIN) <= set(PLAIN)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", sorted(set(PLAIN) - set(NOT_PLAIN)))
def test_an_optimizer_equals_itself_alone(make_jobs, name, one_by_one):
    assert_equals_itself_alone(make_jobs, PLAIN[name]())
    assert not one_by_one


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", sorted(CONFIGURED))
def test_an_optimizer_with_settings_equals_itself_alone(make_jobs, name, one_by_one):
    assert_equals_itself_alone(make_jobs, CONFIGURED[name]())
    assert not one_by_one


@pytest.mark.usefixtures("float64")
def test_schedule_free_adam_follows_its_definition():
    # Defazio et al., "The Road Less Scheduled", 2024. Plain Keras 3.15 on TensorFlow does not: its `update_step` keeps
    # `momentum.value`, there a live variable, and reads it after the update.
    generator = np.random.default_rng(0)
    start, gradients = generator.normal(size=(2, 3)), generator.normal(size=(4, 2, 3))
    variable = keras.Variable(np.zeros(3))
    optimizer = keras.optimizers.ScheduleFreeAdamW(0.1)
    fused = MemberOptimizer(optimizer, [variable])
    slots = [np.stack(each) for each in zip(*[fused.initial_slots([own], optimizer) for own in start], strict=True)]
    values, slots = [keras.ops.convert_to_tensor(start)], [keras.ops.convert_to_tensor(slot) for slot in slots]
    z, x, y, second = start.copy(), start.copy(), start.copy(), 0.0
    for step, gradient in enumerate(gradients, start=1):
        values, slots = fused.update(values, slots, [keras.ops.convert_to_tensor(gradient)])
        second = 0.999 * second + 0.001 * gradient**2
        z = z - 0.1 * gradient / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        x = x + (z - x) / step
        y = 0.1 * z + 0.9 * x
    np.testing.assert_allclose(values[0], y, rtol=1e-5)  # Keras holds the decay rates in float32


class Drifting(keras.optimizers.SGD):
    """A user's own: the step shrinks with the norm of the whole gradient of a variable."""

    def update_step(self, gradient, variable, learning_rate):
        norm = keras.ops.sqrt(keras.ops.sum(keras.ops.square(gradient)))
        super().update_step(gradient / (1.0 + norm), variable, learning_rate)


@pytest.mark.usefixtures("float64")
def test_a_users_own_optimizer_equals_itself_alone(make_jobs):
    assert_equals_itself_alone(make_jobs, Drifting(0.05))


def test_keras_optimizers_run_as_one_vectorised_step(make_jobs, monkeypatch):
    from kfoldfuse.training import clear_programs

    taken = []
    vectorized_map = engine_members.tf.vectorized_map

    def spy(*args, **kwargs):
        result = vectorized_map(*args, **kwargs)
        taken.append(True)
        return result

    monkeypatch.setattr(engine_members.tf, "vectorized_map", spy)
    clear_programs()
    train(make_jobs(build=build, optimizer=keras.optimizers.Lamb(), epochs=1))
    assert taken == [True]
    train(make_jobs(build=build, optimizer=Drifting(), epochs=1))
    assert taken == [True]


def test_several_optimizers_in_one_are_refused(make_jobs):
    optimizer = keras.optimizers.MultiOptimizer(lambda variable: keras.optimizers.SGD())
    message = (
        "`optimizer` must be one optimizer for all variables. Got MultiOptimizer. Train with one optimizer, or freeze "
        "layers by `trainable=False` instead."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(make_jobs(build=build, optimizer=optimizer))


def test_weight_decay_that_leaves_out_variables_of_one_model_is_refused(make_jobs):
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_list=[build().layers[0].bias])
    message = (
        "`optimizer` must leave variables out of weight decay by name. Got "
        "exclude_from_weight_decay(var_list=...). "
        "Members have variables of their own. Use exclude_from_weight_decay(var_names=[...])."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(make_jobs(build=build, optimizer=optimizer))


@pytest.mark.usefixtures("float64")
def test_what_is_left_out_of_weight_decay_matters(make_jobs):
    decayed, spared = (
        train(make_jobs(build=build, optimizer=make(keras.optimizers.AdamW(0.05, weight_decay=0.3)), epochs=1))[0][0]
        for make in (lambda optimizer: optimizer, without_decay_of_biases)
    )
    assert not np.array_equal(decayed.state.values[1], spared.state.values[1])
