"""The user's own layers and functions: copied, and right, whatever they do; ruled only where the user says so."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kfoldfuse import fuse, register_layer_rule
from kfoldfuse.fusion.registry import find_rule, unregister_layer_rule

COPIED, RULE = "copied", "rule"


class Halve(layers.Layer):
    def call(self, x):
        return x / 2


class MinusBatchMean(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class Scale(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale


class Counting(layers.Layer):
    """State that moves in training: how many rows it has seen."""

    def build(self, shape):
        self.n_rows = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)

    def call(self, x, training=False):
        if training:
            self.n_rows.assign(self.n_rows + ops.shape(x)[0])
        return x + ops.cast(self.n_rows, x.dtype)


class Noisy(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        return x + keras.random.normal(ops.shape(x), seed=self.generator, dtype=x.dtype) if training else x


class Penalised(layers.Layer):
    """A penalty that is a mean over the batch, hence must not see padding."""

    def call(self, x):
        self.add_loss(ops.mean(ops.square(x)))
        self.add_loss(0.1 * ops.max(x))
        return x


class DenseTwice(layers.Dense):
    def call(self, x):
        return super().call(x) * 2


class Block(layers.Layer):
    """Layers inside a layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.norm, self.drop = layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.4)

    def build(self, shape):
        self.dense.build(shape)
        self.norm.build(shape)

    def call(self, x, training=False):
        return self.drop(self.norm(self.dense(x), training=training), training=training)


class Gated(layers.Layer):
    """A keyword argument besides the inputs."""

    def call(self, x, gate=None, strength=1.0):
        return x * gate * strength


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.block, self.head = Block(), layers.Dense(2)

    def call(self, x, training=False):
        return self.head(self.block(x, training=training))


def across_rows(x):
    return x - ops.mean(x, axis=0, keepdims=True)


def chain(*make_layers, shape=(4,)):
    return lambda: keras.Sequential([keras.Input(shape), *[make() for make in make_layers]])


@pytest.mark.parametrize(
    "layer_type", [Halve, MinusBatchMean, Scale, Counting, Noisy, Penalised, Block], ids=lambda kind: kind.__name__
)
def test_a_layer_of_the_users_own_is_copied(layer_type, check_same_as_alone):
    check_same_as_alone(chain(layer_type, layer_type), (4,), lowerings=[COPIED, COPIED])


def test_a_subclass_does_not_inherit_a_rule(check_same_as_alone):
    check_same_as_alone(chain(lambda: DenseTwice(3)), (4,), lowerings=[COPIED])


def test_a_keyword_tensor_and_a_setting_reach_the_layer(check_same_as_alone):
    def build():
        inputs = keras.Input((4,))
        return keras.Model(inputs, Gated()(inputs, gate=ops.sin(inputs), strength=3.0))

    check_same_as_alone(build, (4,))


@pytest.mark.parametrize("activation", [across_rows, lambda x: x - ops.max(x, axis=0)], ids=["function", "lambda"])
def test_an_activation_of_the_users_own_may_look_across_rows(activation, check_same_as_alone):
    check_same_as_alone(chain(lambda: layers.Dense(3, activation=activation)), (4,), lowerings=[COPIED])


def test_an_activation_that_is_a_layer_with_weights(check_same_as_alone):
    def build():
        model = chain(lambda: layers.Dense(3, activation=layers.PReLU()))()
        model(np.zeros((1, 4)))  # only then does Keras build the activation
        return model

    check_same_as_alone(build, (4,), lowerings=[COPIED])


def test_a_lambda_layer_may_enclose_values(check_same_as_alone):
    factor = 3.0
    check_same_as_alone(chain(lambda: layers.Lambda(lambda x: across_rows(x) * factor)), (4,), lowerings=[COPIED])


def test_a_model_built_by_subclassing(check_same_as_alone):
    def build():
        model = Subclassed()
        model(np.zeros((1, 4)))
        return model

    check_same_as_alone(build, (4,), lowerings=[COPIED])


def test_a_subclassed_model_inside_a_functional_one(check_same_as_alone):
    def build():
        inputs = keras.Input((4,))
        return keras.Model(inputs, layers.Dense(2)(Subclassed()(inputs)))

    check_same_as_alone(build, (4,), lowerings=[COPIED, RULE])


def test_a_custom_regularizer_constraint_and_initializer_are_kept_per_member(check_same_as_alone):
    class LargestWeight(keras.regularizers.Regularizer):
        def __call__(self, x):
            return ops.max(x)

        def get_config(self):
            return {}

    class NoMoreThanHalfTheLargest(keras.constraints.Constraint):
        def __call__(self, x):
            return ops.minimum(x, ops.max(x) / 2)

        def get_config(self):
            return {}

    fused = check_same_as_alone(
        chain(
            lambda: layers.Dense(3, kernel_regularizer=LargestWeight(), kernel_constraint=NoMoreThanHalfTheLargest())
        ),
        (4,),
        lowerings=[RULE],
    )
    kernel = fused.trainable_variables[0]
    constrained = np.stack([np.minimum(one, one.max() / 2) for one in kernel.numpy()])
    np.testing.assert_array_equal(kernel.constraint(kernel), constrained)


@pytest.fixture
def rule_for_scale():
    def register(function, **options):
        return register_layer_rule(Scale, function, **options)

    yield register
    unregister_layer_rule(Scale)


def fused_scale(layer, weights, x, *, training):
    return x * ops.expand_dims(weights(layer.scale), 1)


def test_a_rule_of_the_users_own_is_used_and_can_be_taken_back(rule_for_scale, check_same_as_alone):
    rule_for_scale(fused_scale, variables=("scale",))
    check_same_as_alone(chain(Scale), (4,), lowerings=[RULE])
    unregister_layer_rule(Scale)
    check_same_as_alone(chain(Scale), (4,), lowerings=[COPIED])


def test_a_rule_is_for_the_exact_type(rule_for_scale):
    class ScaleMore(Scale):
        pass

    rule_for_scale(fused_scale, variables=("scale",))
    models = [chain(kind)() for kind in (Scale, ScaleMore)]
    assert [find_rule(model.layers[0]) is not None for model in models] == [True, False]


def test_a_rule_that_does_not_know_all_variables_is_not_used(rule_for_scale):
    rule_for_scale(fused_scale, variables=())
    assert find_rule(chain(Scale)().layers[0]) is None


def test_a_rule_may_decline_a_layer(rule_for_scale):
    rule_for_scale(fused_scale, variables=("scale",), applies=lambda layer: layer.name != "not_this_one")
    assert find_rule(chain(lambda: Scale(name="this_one"))().layers[0]) is not None
    assert find_rule(chain(lambda: Scale(name="not_this_one"))().layers[0]) is None


def test_what_is_not_a_layer_type_or_not_a_rule_is_refused():
    with pytest.raises(TypeError) as caught:
        register_layer_rule("Dense", fused_scale)
    assert str(caught.value) == (
        "`layer_type` must be a class derived from keras.layers.Layer. Got 'Dense'. Pass the class itself."
    )
    with pytest.raises(TypeError) as caught:
        register_layer_rule(Scale, 3)
    assert str(caught.value) == "`rule` must be callable. Got 3. Pass a function (layer, weights, *args, training)."
    assert find_rule(chain(Scale)().layers[0]) is None


def test_members_of_a_copied_layer_are_isolated_from_nan(random_models):
    models = random_models(chain(Block, Counting, lambda: layers.LSTM(3), shape=(5, 4)), 3)
    x = np.random.default_rng(0).normal(size=(3, 6, 5, 4)).astype("float32")
    clean = fuse(models)(x, training=True).numpy()
    x[1] = np.nan
    for variable in models[2].trainable_variables:
        variable.assign(np.nan * variable.numpy())
    dirty = fuse(models)(x, training=True).numpy()
    assert np.isnan(dirty[1:]).all()
    assert dirty[0].tobytes() == clean[0].tobytes()
