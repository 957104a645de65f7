import keras

from kfoldfuse.estimators._keras_private import producer_of


def test_producer_is_the_operation_of_this_very_call():
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    data = keras.Input((3,))
    first = inner(data)
    second = inner(first)
    assert producer_of(second) == (inner, [first])
    assert producer_of(first) == (inner, [data])
    flipped = keras.ops.flip(second, axis=1)
    operation, inputs = producer_of(flipped)
    assert type(operation).__name__ == "Flip"
    assert inputs == [second]
