"""The only place in `kfoldfuse.estimators` that touches what Keras does not export.

`tests/estimators/test_keras_private.py` fails when Keras changes it.
"""


def producer_of(tensor):
    """The operation that a symbolic tensor comes from, and the tensors it was called on.

    Public ``operation.output`` is that of the first call only, and of a nested model its own output.

    Parameters
    ----------
    tensor : keras.KerasTensor
        Of a functional model.

    Returns
    -------
    operation : keras.Operation
    inputs : list of keras.KerasTensor
    """
    history = tensor._keras_history
    return history.operation, history.operation._inbound_nodes[history.node_index].input_tensors
