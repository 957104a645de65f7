"""The proof of a layer rule: the layer run fused equals separate Keras layers, whatever the other members do."""

import keras
import numpy as np
from keras import tree

from kfoldfuse.fusion import fuse, unfuse
from kfoldfuse.fusion._keras_private import default_dtype
from kfoldfuse.fusion.template import assign_values, describe
from kfoldfuse.testing._gradients import run

# Members equal to rows and not: a rule that lines up the wrong axes crashes in one and is silently wrong in the other.
# One member without rows, one with a single row; the open batch size of a graph is tried in float32.
_SETTINGS = (
    {"dtype": "float64", "n_valid": (3, 0, 2), "n_rows": 3, "in_graph": False},
    {"dtype": "float64", "n_valid": (1, 5), "n_rows": 5, "in_graph": False},
    {"dtype": "float32", "n_valid": (4, 5, 0), "n_rows": 5, "in_graph": True},
)
# float32: a few ulp through sums and square roots. Half precision: the result of one rounding step.
_TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}


def check_layer_rule(layer_factory, input_shape, *, lowering="rule", input_dtype=None, integers_below=4, seed=0):
    """Prove that a layer runs fused exactly as separate Keras layers do.

    Call it in a test of your own when you have registered a rule by `register_layer_rule`: once per option of the
    layer that the rule treats differently. It takes about a second and checks, in float64 and in float32, with as many
    rows as members and with more, in training and in inference: outputs, gradients, updates of the state, penalties;
    that padding and members without rows change nothing; that NaN in one member changes not a bit in another; the round
    trip through `fuse` and `unfuse`; that the layer handed over is left as it was.

    Parameters
    ----------
    layer_factory : callable
        Returns a new layer, or a new Keras model, with the same settings each time.
    input_shape : tuple of int, or list of them
        Shape of one row, without batch and member axis; a list for a layer that takes a list of tensors.
    lowering : {"rule", "folded", "copied"} or None
        How the layer must have run; None for any. For a model: each of its layers.
    input_dtype : str, optional
        Of the inputs, such as ``"int32"``; None follows the precision under test.
    integers_below : int
        Integer inputs are drawn from 0 to this, exclusive.
    seed : int
        For the random weights, inputs and gradients.

    Raises
    ------
    AssertionError
        One sentence: which property fails, by how much, for which members and rows.

    Examples
    --------
    >>> import keras
    >>> from kfoldfuse.testing import check_layer_rule
    >>> check_layer_rule(lambda: keras.layers.Dense(3, activation="relu"), (4,))
    """
    for setting in _SETTINGS:
        with default_dtype(setting["dtype"]):
            inputs = _Inputs(input_shape, input_dtype or setting["dtype"], integers_below)
            try:
                trial = _Trial(layer_factory, inputs, setting, np.random.default_rng(seed))
                trial.check(lowering)
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(
                    f"The layer must run with {len(setting['n_valid'])} members of {setting['n_rows']} rows in "
                    f"{setting['dtype']}. It raised {type(error).__name__}: {error}"
                ) from error


class _Inputs:
    def __init__(self, shape, dtype, integers_below):
        self.shapes = [tuple(one) for one in shape] if isinstance(shape, list) else [tuple(shape)]
        self.is_list = isinstance(shape, list)
        self.dtype = dtype
        self.integers_below = integers_below

    def structure(self, values):
        return list(values) if self.is_list else values[0]

    def symbolic(self):
        return self.structure([keras.Input(shape, dtype=self.dtype) for shape in self.shapes])

    def draw(self, generator, n_members, n_rows):
        if keras.backend.is_float_dtype(self.dtype):
            drawn = [generator.normal(size=(n_members, n_rows, *shape)).astype(self.dtype) for shape in self.shapes]
        else:
            drawn = [
                generator.integers(0, self.integers_below, size=(n_members, n_rows, *shape)).astype(self.dtype)
                for shape in self.shapes
            ]
        return self.structure(drawn)


class _Trial:
    """One layer with fixed numbers of members and rows: the fused model next to the members alone."""

    def __init__(self, layer_factory, inputs, setting, generator):
        self.setting = setting
        self.n_members, self.n_rows = len(setting["n_valid"]), setting["n_rows"]
        self.generator = generator
        self.alone = [self._model(layer_factory(), inputs) for _ in range(self.n_members)]
        for member, model in enumerate(self.alone):
            assign_values(model, [_unlike_the_first_value(variable, member, generator) for variable in model.variables])
        self.values = [[_numpy(variable) for variable in model.variables] for model in self.alone]
        self.configs = [describe(model) for model in self.alone]
        self.fused = fuse(self.alone)
        self.network = self.fused.fused_network.value
        self.template_values = [_numpy(variable) for variable in self.network.template.model.variables]
        self.template_config = describe(self.network.template.model)
        self.inputs = inputs.draw(generator, self.n_members, self.n_rows)
        shapes = [output.shape[1:] for output in tree.flatten(self.alone[0].output)]
        self.directions = [generator.normal(size=(self.n_members, self.n_rows, *_sizes(shape))) for shape in shapes]
        dtypes = {_dtype(output) for output in tree.flatten(self.alone[0].output)} & set(_TOLERANCE)
        dtypes |= {layer.compute_dtype for layer in self.alone[0]._flatten_layers()} & set(_TOLERANCE)
        self.tolerance = max(_TOLERANCE[dtype] for dtype in dtypes | {setting["dtype"]})

    @staticmethod
    def _model(layer, inputs):
        symbolic = inputs.symbolic()
        return keras.Model(symbolic, layer(symbolic))

    def check(self, lowering):
        taken = self.network.lowerings
        if lowering is not None:
            self._require(set(taken.values()) == {lowering}, f"the lowering must be {lowering!r}, but was {taken}")
        cases = [self.setting["n_valid"]]
        if not self.setting["in_graph"]:  # traces are dear, and the cases differ by no code
            cases += [None, (self.n_rows,) * self.n_members]
        for training in (False, True):
            for n_valid in cases:
                self._check_equal_to_alone(training, n_valid)
        if not self.setting["in_graph"]:
            self._check_isolation()
            self._check_padding()
            self._check_round_trip()
        self._check_untouched()

    def _require(self, condition, sentence):
        if not condition:
            setting = self.setting
            raise AssertionError(
                f"{self.alone[0].layers[-1].name}: {sentence} "
                f"({self.n_members} members, {self.n_rows} rows, {setting['dtype']})."
            )

    def _directions(self, n_valid):
        counts = np.arange(self.n_rows) < np.asarray(n_valid)[:, None]
        return [np.where(_right_pad(counts, one.ndim), one, 0) for one in self.directions]

    def _run_fused(self, training, n_valid, inputs=None):
        full = (self.n_rows,) * self.n_members if n_valid is None else n_valid
        return run(
            self.fused,
            self.network.stacked,
            self.inputs if inputs is None else inputs,
            self._directions(full),
            training=training,
            active=np.asarray(full) > 0,
            n_valid=n_valid,
            in_graph=self.setting["in_graph"],
        )

    def _run_alone(self, member, training, n_valid):
        rows = slice(None, n_valid)
        model = self.alone[member]
        inputs = tree.map_structure(lambda value: value[member, rows], self.inputs)
        directions = [one[member, rows] for one in self.directions]
        return run(model, model.variables, inputs, directions, training=training)

    def _check_equal_to_alone(self, training, n_valid):
        fused = self._run_fused(training, n_valid)
        mode = "training" if training else "inference"
        for member in range(self.n_members):
            n_rows = self.n_rows if n_valid is None else n_valid[member]
            if n_rows == 0:
                for before, after in zip(self.values[member], fused.state, strict=True):
                    same = _same_bits(before, after[member])
                    self._require(same, f"in {mode}, the state of a member without rows must not move, but did")
                continue
            where = f"in {mode}, member {member} with {n_rows} of its rows counting"
            alone = self._run_alone(member, training, n_rows)
            self._compare(where, "outputs", alone.outputs, [o[member, :n_rows] for o in fused.outputs])
            self._compare(where, "state", alone.state, [value[member] for value in fused.state])
            penalties = sum(alone.penalties), sum(penalty[member] for penalty in fused.penalties)
            self._compare(where, "penalties", *[[np.float64(penalty)] for penalty in penalties])
            self._compare(
                where, "gradients of the inputs", alone.input_gradients, _at(fused.input_gradients, member, n_rows)
            )
            self._compare(
                where, "gradients of the weights", alone.weight_gradients, _at(fused.weight_gradients, member)
            )

    def _compare(self, where, what, expected, actual):
        for one, other in zip(expected, actual, strict=True):
            if one is None and other is None:
                continue
            one, other = np.asarray(one), np.asarray(other)
            self._require(
                one.shape == other.shape and one.dtype == other.dtype,
                f"{where}: the {what} must be {one.dtype}{one.shape}, but are {other.dtype}{other.shape}",
            )
            if np.issubdtype(one.dtype, np.integer) or one.dtype == bool:
                self._require(np.array_equal(one, other), f"{where}: the {what} must equal those of the layer alone")
                continue
            one, other = one.astype("float64"), other.astype("float64")
            scale = max(1.0, np.abs(one).max(initial=0.0))
            self._require(
                np.allclose(one, other, rtol=self.tolerance, atol=self.tolerance * scale),
                f"{where}: the {what} must equal those of the layer alone, but differ by up to "
                f"{np.abs(one - other).max(initial=0.0):.3g}",
            )

    def _check_padding(self):
        """NaN in rows that do not count changes no output of those that do, and no state."""
        n_valid = self.setting["n_valid"]
        poisoned = tree.map_structure(np.copy, self.inputs)
        for value in tree.flatten(poisoned):
            if np.issubdtype(value.dtype, np.floating):
                for member, n_rows in enumerate(n_valid):
                    value[member, n_rows:] = np.nan
        clean, dirty = self._run_fused(True, n_valid), self._run_fused(True, n_valid, poisoned)
        for member, n_rows in enumerate(n_valid):
            same = all(
                _same_bits(one[member, :n_rows], other[member, :n_rows])
                for one, other in zip(clean.outputs, dirty.outputs, strict=True)
            )
            same &= all(
                _same_bits(one[member], other[member]) for one, other in zip(clean.state, dirty.state, strict=True)
            )
            self._require(same, "rows that do not count must change no output and no state, but NaN in them did")

    def _check_isolation(self):
        """NaN in the inputs or weights of one member changes no bit of another's results."""
        full = (self.n_rows,) * self.n_members
        clean = self._run_fused(True, full)
        for poisoned in (0, self.n_members - 1):
            inputs = tree.map_structure(np.copy, self.inputs)
            for value in tree.flatten(inputs):
                if np.issubdtype(value.dtype, np.floating):
                    value[poisoned] = np.nan
            self._require_isolated("inputs", poisoned, clean, self._run_fused(True, full, inputs))
            for position, stacked in enumerate(self.network.stacked):
                value = _numpy(stacked)
                if not np.issubdtype(value.dtype, np.floating):
                    continue
                value[poisoned] = np.nan
                stacked.assign(value)
                dirty = self._run_fused(True, full)
                stacked.assign(np.stack([values[position] for values in self.values]))
                self._require_isolated(f"{stacked.name}", poisoned, clean, dirty)

    def _require_isolated(self, what, poisoned, clean, dirty):
        others = [member for member in range(self.n_members) if member != poisoned]
        for field in ("outputs", "penalties", "input_gradients", "weight_gradients", "state"):
            for one, other in zip(getattr(clean, field), getattr(dirty, field), strict=True):
                self._require(
                    one is None or _same_bits(one[others], other[others]),
                    f"NaN in the {what} of member {poisoned} must change no bit of another member, but changed its "
                    f"{field.replace('_', ' ')}",
                )

    def _check_round_trip(self):
        for model, values in zip(unfuse(self.fused), self.values, strict=True):
            same = all(
                _same_bits(_numpy(variable), value) for variable, value in zip(model.variables, values, strict=True)
            )
            self._require(same, "`unfuse` must give back the weights that were fused, but they differ")
            self._require(describe(model) == self.configs[0], "`unfuse` must give back the same config, but it differs")

    def _check_untouched(self):
        for model, values, config in (
            *zip(self.alone, self.values, self.configs, strict=True),
            (self.network.template.model, self.template_values, self.template_config),
        ):
            same = all(
                _same_bits(_numpy(variable), value) for variable, value in zip(model.variables, values, strict=True)
            )
            self._require(same, "the values of the layer handed over must stay as they were, but changed")
            self._require(describe(model) == config, "the config of the layer must stay as it was, but changed")


def _unlike_the_first_value(variable, member, generator):
    """Initial values hide errors: a bias of zero may be forgotten, a scale of one left out."""
    value = _numpy(variable)
    if variable.name == "seed_generator_state":
        return np.array([generator.integers(1, 2**31), 3], dtype=value.dtype)
    if np.issubdtype(value.dtype, np.floating):
        return value + generator.uniform(-0.5, 0.5, size=value.shape).astype(value.dtype)
    return value if value.dtype == bool else value + member


def _at(gradients, member, n_rows=None):
    rows = member if n_rows is None else (member, slice(None, n_rows))
    return [None if gradient is None else gradient[rows] for gradient in gradients]


def _right_pad(array, ndim):
    return array.reshape(array.shape + (1,) * (ndim - array.ndim))


def _same_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _sizes(shape):
    if None in shape:
        raise ValueError(f"The output must have a fixed shape but for the batch. Got {shape}.")
    return tuple(shape)


def _dtype(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def _numpy(variable):
    return np.array(keras.ops.convert_to_numpy(variable.value))
