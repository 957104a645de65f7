"""The only place in `kfoldfuse.fusion` that touches what Keras does not export.

Each entry says why no public way exists. `tests/fusion/test_keras_private.py` fails when Keras changes one of them.
"""

import contextlib
import threading

import keras
from keras.src.backend.common import global_state, masking
from keras.src.models.functional import Functional
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
from keras.src.utils.rng_utils import GLOBAL_RANDOM_SEED

_recording = threading.local()
_install_lock = threading.Lock()


def is_functional(model):
    """Whether the graph of `model` says all there is to its call. Keras exports no name for the class."""
    return isinstance(model, Functional) and type(model).call is Functional.call


def get_mask(tensor):
    """Mask that Keras attached to `tensor`, or None. Keras losses look at it, and nothing public reads it."""
    return masking.get_keras_mask(tensor)


def set_mask(tensor, mask):
    """Attach `mask` to `tensor`, as a layer that supports masking does."""
    masking.set_keras_mask(tensor, mask)


def get_logits(tensor):
    """Logits behind a softmax or sigmoid output, or None.

    On TensorFlow, Keras' cross-entropies do not use the probabilities they are given: they look up the logits the
    probabilities were made from. A fused output that loses them trains on clipped probabilities, off by 1e-7.
    """
    logits = getattr(tensor, "_keras_logits", None)
    if logits is not None:
        return logits
    operation = getattr(tensor, "op", None) if not hasattr(tensor, "numpy") else None
    if operation is not None and operation.type in ("Softmax", "Sigmoid"):
        return operation.inputs[0]
    return None


def set_logits(tensor, logits):
    """Attach the `logits` that `tensor` was made from."""
    if logits is not None:
        tensor._keras_logits = logits


def is_autocast(variable):
    """Whether layers with a mixed dtype policy read `variable` in their compute dtype."""
    return variable._autocast


@contextlib.contextmanager
def kept_global_seed():
    """Leave Keras' global seed generator as it was found. Keras has a setter for the seed, none for its state."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    state = None if generator is None else keras.ops.convert_to_numpy(generator.state.value)
    seed = global_state.get_global_attribute(GLOBAL_RANDOM_SEED)
    try:
        yield
    finally:
        global_state.set_global_attribute(GLOBAL_RANDOM_SEED, seed)
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)
        if generator is not None:
            generator.state.assign(state)


def use_global_seed(seed):
    """Replace Keras' global seed generator; only inside `kept_global_seed`."""
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, keras.random.SeedGenerator(seed))


@contextlib.contextmanager
def default_dtype(dtype):
    """Make layers in `dtype` meanwhile, and leave the defaults as found.

    `keras.config.set_floatx` alone changes nothing once a layer was made: the default policy was noted by then, and no
    public way takes that note back.
    """
    floatx, policy = keras.config.floatx(), global_state.get_global_attribute("dtype_policy")
    try:
        keras.config.set_floatx(dtype)
        global_state.set_global_attribute("dtype_policy", None)
        yield
    finally:
        keras.config.set_floatx(floatx)
        global_state.set_global_attribute("dtype_policy", policy)


@contextlib.contextmanager
def recorded_initializers():
    """Note, for each variable created meanwhile in this thread, its initializer and the value that it drew.

    A Keras variable forgets its initializer once it has a value, and members need it to draw their own. Yields a
    dict: id of the variable -> (variable, initializer, value drawn).
    """
    _install_recorder()
    outer = getattr(_recording, "records", None)
    _recording.records = {}
    try:
        yield _recording.records
    finally:
        _recording.records = outer


def _install_recorder():
    with _install_lock:
        variable_class = keras.Variable
        original = variable_class._initialize_with_initializer
        if getattr(original, "records_for_kfoldfuse", False):
            return

        def initialize(self, initializer):
            records = getattr(_recording, "records", None)
            if records is None:
                return original(self, initializer)
            drawn = []

            def recorder(shape, dtype=None):
                value = initializer(shape, dtype=dtype)
                drawn.append(value)
                return value

            original(self, recorder)
            if drawn:
                records[id(self)] = (self, initializer, drawn[-1])
            return None

        initialize.records_for_kfoldfuse = True
        variable_class._initialize_with_initializer = initialize
