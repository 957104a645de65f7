"""The trial that decides whether an operation may see rows of several members in one batch."""

import keras
import pytest
from keras import layers, ops

from kfoldfuse.fusion.rowwise import is_row_wise


def tried(call, *shapes, dtype="float32", **kwargs):
    """Whether the operation of the one node that `call` makes is row-wise."""
    tensors = [keras.KerasTensor((7, *shape), dtype=dtype) for shape in shapes]
    operation = call(*tensors)._keras_history.operation
    arguments = operation._inbound_nodes[0].arguments
    return is_row_wise(operation, arguments.args, arguments.kwargs)


ROW_WISE = {
    "sum over features": lambda x: ops.sum(x, axis=-1),
    "softmax over features": lambda x: ops.softmax(x, axis=1),
    "flip of the features": lambda x: ops.flip(x, axis=1),
    "sort of the features": lambda x: ops.sort(x, axis=-1),
    "addition of a constant": lambda x: x + 1.0,
    "reshape within a row": lambda x: ops.reshape(x, (-1, 4, 3)),
    "expansion behind": lambda x: ops.expand_dims(x, -1),
    "transpose behind": lambda x: ops.transpose(x, (0, 2, 1)),
    "flatten": lambda x: layers.Flatten()(x),
    "pooling": lambda x: layers.MaxPooling1D(2)(x),
}
ACROSS_ROWS = {
    "mean over the batch": lambda x: ops.mean(x, axis=0),
    "mean over the batch, kept": lambda x: ops.mean(x, axis=0, keepdims=True),
    "softmax over the batch": lambda x: ops.softmax(x, axis=0),
    "flip of the batch": lambda x: ops.flip(x, axis=0),
    "flip of everything": lambda x: ops.flip(x),
    "sort of the batch": lambda x: ops.sort(x, axis=0),
    "cumulative sum over the batch": lambda x: ops.cumsum(x, axis=0),
    "cumulative product over the batch": lambda x: ops.cumprod(x, axis=0),
    "reshape across rows": lambda x: ops.reshape(x, (-1, 4)),
    "expansion in front": lambda x: ops.expand_dims(x, 0),
    "transpose of the batch": lambda x: ops.transpose(x),
    "norm over the batch": lambda x: ops.normalize(x, axis=0),
}


@pytest.mark.parametrize("call", ROW_WISE.values(), ids=ROW_WISE.keys())
def test_row_wise_operations_are_recognised(call):
    assert tried(call, (3, 4))


@pytest.mark.parametrize("call", ACROSS_ROWS.values(), ids=ACROSS_ROWS.keys())
def test_operations_across_rows_are_recognised(call):
    assert not tried(call, (3, 4))


def test_several_tensors_are_tried_together():
    assert tried(lambda x, y: layers.Concatenate()([x, y]), (3,), (2,))
    assert not tried(lambda x, y: layers.Concatenate(axis=0)([x, y]), (3,), (3,))
    assert not tried(lambda x, y: ops.add(x, y), (3,), (1, 3))  # rows against rows


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_and_booleans_are_tried(dtype):
    assert tried(lambda x: ops.logical_not(x), (3,), dtype=dtype)
    assert not tried(lambda x: ops.flip(x, axis=0), (3,), dtype=dtype)


def test_an_operation_that_fails_is_not_row_wise():
    assert not is_row_wise(layers.Reshape((5, 5)), *_one_tensor())


def _one_tensor():
    return (keras.KerasTensor((7, 3)),), {}
