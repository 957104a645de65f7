"""The network of an estimator with ``model=None``."""

import keras


def default_model(meta, hidden_units=(64, 64), activation="relu", dropout=0.0):
    """A multilayer perceptron with a head for the targets.

    Good for scaled tabular data with up to some hundred columns; images and sequences are flattened, so give a network
    of your own for these. Its keywords are parameters of the estimator: ``model__hidden_units=(128,)``.

    Parameters
    ----------
    meta : mapping
        What the estimator knows about the data.
    hidden_units : int or sequence of int, default=(64, 64)
        Units of each hidden layer; one number is one layer.
    activation : str or callable, default="relu"
        Activation of the hidden layers.
    dropout : float, default=0.0
        Part of the units dropped behind each hidden layer, in [0, 1).

    Returns
    -------
    keras.Model
        Uncompiled; ends in softmax (multiclass), sigmoid (binary, multilabel) or linear units (regression).
    """
    if not isinstance(meta["X_shape_"], tuple):
        raise ValueError(
            "`model` must be a function or a Keras model where X holds several inputs. Got None. "
            "Write a model with one keras.Input for each."
        )
    heads = {"multiclass": "softmax", "binary": "sigmoid", "multilabel": "sigmoid", "regression": "linear"}
    inputs = keras.Input(meta["X_shape_"][1:])
    hidden = inputs if len(inputs.shape) == 2 else keras.layers.Flatten()(inputs)
    for units in [hidden_units] if isinstance(hidden_units, int) else hidden_units:
        hidden = keras.layers.Dense(units, activation=activation)(hidden)
        if dropout:
            hidden = keras.layers.Dropout(dropout)(hidden)
    outputs = keras.layers.Dense(meta["n_outputs_"], activation=heads[meta["target_type_"]])(hidden)
    return keras.Model(inputs, outputs)
