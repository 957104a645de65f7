"""What members start from: their own seed, the layer's own initialiser, and nothing of the process's random state."""

import random
import threading

import keras
import numpy as np
import pytest
from keras import layers

from kfoldfuse.exceptions import UnfusableModelError
from kfoldfuse.fusion.template import SEED, copy_model, draw_initial_weights, make_template, member_model


def template_of(*make_layers, shape=(4,), seed=0):
    return make_template(lambda: keras.Sequential([keras.Input(shape), *[make() for make in make_layers]]), seed=seed)


def equal(one, other):
    return [np.array_equal(*pair) for pair in zip(one, other, strict=True)]


def test_weights_depend_on_the_members_seed_only():
    make = (lambda: layers.Dense(3), lambda: layers.Dropout(0.5), lambda: layers.Dense(2))
    first, second = template_of(*make, seed=0), template_of(*make, seed=1)
    assert all(equal(draw_initial_weights(first, 7), draw_initial_weights(second, 7)))
    different = equal(draw_initial_weights(first, 7), draw_initial_weights(first, 8))
    # kernel, bias (zeros), state of the dropout, kernel, bias
    assert sorted(different) == [False, False, False, True, True]


def test_a_large_seed_is_accepted():
    assert draw_initial_weights(template_of(lambda: layers.Dense(3)), 2**60)[0].shape == (4, 3)


def test_members_draw_with_the_fan_of_one_member():
    # On the stacked shape (10, 64, 64) Glorot would take another fan: a deviation of 0.040 instead of 0.125.
    template = template_of(lambda: layers.Dense(64), shape=(64,))
    deviations = [draw_initial_weights(template, seed)[0].std() for seed in range(10)]
    np.testing.assert_allclose(deviations, 0.125, atol=0.004)


INITIALIZERS = ["glorot_normal", "he_uniform", "lecun_normal", "orthogonal", "random_normal", "truncated_normal"]


@pytest.mark.parametrize("name", INITIALIZERS)
def test_members_draw_what_the_initializer_draws_for_a_seed(name):
    template = template_of(lambda: layers.Dense(5, kernel_initializer=name))
    drawn = draw_initial_weights(template, 3)[0]
    assert not np.array_equal(drawn, draw_initial_weights(template, 4)[0])
    seed = int(np.random.SeedSequence(3, spawn_key=(0,)).generate_state(1)[0]) % (2**31 - 1)
    initializer = type(keras.initializers.get(name))(seed=seed)
    np.testing.assert_array_equal(drawn, initializer((4, 5)))


def test_two_layers_of_one_member_start_unlike():
    template = template_of(lambda: layers.Dense(4), lambda: layers.Dense(4))
    kernels = [value for value in draw_initial_weights(template, 0) if value.ndim == 2]
    assert not np.array_equal(*kernels)


def test_deterministic_values_are_the_templates():
    template = template_of(
        lambda: layers.BatchNormalization(moving_variance_initializer=keras.initializers.Constant(2.0)),
        lambda: layers.Dense(4, kernel_initializer="identity", bias_initializer="ones"),
    )
    for seed in (0, 1):
        values = draw_initial_weights(template, seed)
        assert all(equal(values, [variable.numpy() for variable in template.model.variables]))


def test_the_forget_gate_starts_open():
    template = template_of(lambda: layers.LSTM(2), shape=(5, 3))
    bias = draw_initial_weights(template, 3)[2]
    np.testing.assert_array_equal(bias, [0, 0, 1, 1, 0, 0, 0, 0])


def test_weights_that_the_function_set_itself_are_kept():
    def build():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
        model.layers[0].set_weights([np.full((4, 3), 5.0), np.full(3, 6.0)])
        return model

    template = make_template(build, seed=0)
    first, second = draw_initial_weights(template, 0), draw_initial_weights(template, 1)
    assert equal(first, second) == [True, True, False, True]
    assert (first[0] == 5).all()
    assert (first[1] == 6).all()


def test_a_model_made_before_keeps_its_weights():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    template = make_template(lambda: model, seed=0)
    assert all(equal(draw_initial_weights(template, 0), model.get_weights()))


def test_members_are_separate_even_where_the_function_returns_the_same_model():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    before = model.get_weights()
    template = make_template(lambda: model, seed=0)
    members = [member_model(template, [np.full((4, 3), value), np.zeros(3)]) for value in (1, 2)]
    assert [member.get_weights()[0][0, 0] for member in members] == [1, 2]
    assert all(equal(model.get_weights(), before))


def numpy_draws(shape, dtype=None):
    return np.random.normal(size=shape).astype(dtype)  # noqa: NPY002


def python_draws(shape, dtype=None):
    return np.full(shape, random.random(), dtype)


def keras_draws(shape, dtype=None):
    return keras.random.normal(shape, dtype=dtype)


def keras_initializer_draws(shape, dtype=None):
    return keras.initializers.GlorotUniform()(shape, dtype=dtype)


@pytest.mark.parametrize("initializer", [numpy_draws, python_draws, keras_draws, keras_initializer_draws])
def test_an_initializer_of_the_users_own_draws_from_the_members_seed(initializer):
    template = template_of(lambda: layers.Dense(3, kernel_initializer=initializer))
    first, again, other = (draw_initial_weights(template, seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("user_seeds_keras", [True, False])
def test_global_random_state_is_left_as_found(user_seeds_keras):
    if user_seeds_keras:
        keras.utils.set_random_seed(5)

    def draws():
        return random.random(), np.random.normal(), float(keras.random.normal(()))  # noqa: NPY002

    def build():
        layers_ = [layers.Dense(3, kernel_initializer=numpy_draws), layers.Dense(2, kernel_initializer=keras_draws)]
        draws()
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.Input((4,)), *layers_])

    keras.random.normal(())
    states = random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    expected_template = keras.src.random.seed_generator.global_seed_generator().state.numpy()
    expected_seed = keras.src.utils.rng_utils.get_random_seed()
    template = make_template(build, seed=0)
    draw_initial_weights(template, 3)
    assert keras.src.utils.rng_utils.get_random_seed() == expected_seed
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert np.array_equal(keras.src.random.seed_generator.global_seed_generator().state.numpy(), expected_template)


def test_global_random_state_is_left_as_found_after_a_failure():
    def build():
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        raise KeyError("of the user's")

    states = random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    with pytest.raises(KeyError):
        make_template(build, seed=0)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002


def test_threads_do_not_draw_from_each_others_seeds():
    template = template_of(lambda: layers.Dense(300, kernel_initializer=numpy_draws))
    expected = [draw_initial_weights(template, seed)[0] for seed in range(8)]
    drawn = [None] * 8

    def draw(seed):
        for _ in range(20):
            drawn[seed] = draw_initial_weights(template, seed)[0]
            if not np.array_equal(drawn[seed], expected[seed]):
                return

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(equal(drawn, expected))


def test_random_states_start_at_the_members_seed():
    template = template_of(lambda: layers.Dropout(0.5))
    assert template.initializers == [SEED]
    (first,), (second,) = draw_initial_weights(template, 0), draw_initial_weights(template, 1)
    assert first.dtype == template.model.variables[0].dtype
    assert first[0] != second[0]
    assert first[1] == second[1] == 0


def test_what_only_a_call_builds_is_built_and_drawn():
    template = template_of(lambda: layers.Dense(3, activation=layers.PReLU(alpha_initializer="random_normal")))
    assert len(template.model.variables) == 3
    assert equal(draw_initial_weights(template, 0), draw_initial_weights(template, 1)) == [False, True, False]
    values = draw_initial_weights(template, 0)
    assert all(equal([variable.numpy() for variable in member_model(template, values).variables], values))


def test_a_sequential_model_without_an_input_takes_the_shape_of_the_data():
    template = make_template(
        lambda: keras.Sequential([layers.Dense(3)]), seed=0, input_specs=keras.KerasTensor((None, 4))
    )
    assert [value.shape for value in draw_initial_weights(template, 0)] == [(4, 3), (3,)]
    assert member_model(template, draw_initial_weights(template, 0)).input_shape == (None, 4)


def test_members_are_built_by_the_users_function_again():
    def build():
        activation = lambda x: x * 2  # noqa: E731 - what Keras cannot copy by name
        return keras.Sequential([keras.Input((4,)), layers.Dense(3, activation=activation)])

    template = make_template(build, seed=0)
    values = draw_initial_weights(template, 0)
    x = np.ones((2, 4), "float32")
    np.testing.assert_allclose(member_model(template, values)(x), x @ values[0] * 2, rtol=1e-6)


def test_a_function_that_returns_something_else_is_refused():
    with pytest.raises(UnfusableModelError) as caught:
        make_template(lambda: 3, seed=0)
    assert str(caught.value) == (
        "`model` must be a Keras model or a function that returns one. Got int from the function. Return the model."
    )


def test_a_function_that_builds_something_else_each_time_is_refused():
    units = iter([2, 3])
    template = make_template(lambda: keras.Sequential([keras.Input((4,)), layers.Dense(next(units))]), seed=0)
    with pytest.raises(UnfusableModelError) as caught:
        member_model(template, draw_initial_weights(template, 0))
    assert str(caught.value) == (
        "`model` must build the same architecture whenever it is called. Got weights of shapes [(4, 3), (3,)] after "
        "[(4, 2), (2,)]. Make the function depend on its arguments only."
    )


def test_a_compiled_model_is_copied_without_looking_up_its_loss():
    def own_loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    inputs = keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    inner.compile(loss=own_loss)
    models = [
        keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1, trainable=False)]),
        keras.Sequential([layers.Dense(3), layers.Dense(1)]),
        keras.Model(inputs, layers.Dense(1, trainable=False)(inner(inputs))),
    ]
    for model in models:
        model.compile("sgd", loss=own_loss, metrics=[lambda y_true, y_pred: y_pred])
        nodes = [len(layer._inbound_nodes) for layer in model.layers]
        copied = copy_model(model)
        assert type(copied) is type(model)
        assert not copied.compiled
        assert [layer.trainable for layer in copied.layers] == [layer.trainable for layer in model.layers]
        assert [v.shape for v in copied.variables] == [v.shape for v in model.variables]
        assert [len(layer._inbound_nodes) for layer in model.layers] == nodes
        assert model.compiled
