"""One loss per member: each member's own weighted mean over its own rows, as Keras computes it for the member alone.

Keras divides a weighted loss by the size of the batch, padding included, so its reduction cannot be used on a padded
batch of several members. Losses that treat rows one by one are called on the rows of all members together and reduced
here; any other loss is called once per member on its valid rows.
"""

import keras
from keras import ops

from kfoldfuse.fusion import rows
from kfoldfuse.fusion._keras_private import get_logits, get_mask, set_logits, set_mask

# Keras' own losses whose value for a row depends on other rows too.
_ACROSS_ROWS = (keras.losses.Dice, keras.losses.Tversky, keras.losses.Circle)
_FUNCTIONS_ACROSS_ROWS = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


class FunctionLoss(keras.losses.Loss):
    """A loss function as a `keras.losses.Loss`, with the ranks of targets and predictions matched as Keras does."""

    def __init__(self, function, dtype=None):
        # The name becomes a TensorFlow scope, which "<lambda>" cannot be.
        super().__init__(name=getattr(function, "__name__", type(function).__name__).strip("<>"), dtype=dtype)
        self.function = function

    def call(self, y_true, y_pred):
        """Values of the function, of shape (n_rows, ...) where it treats rows one by one."""
        return self.function(*_same_rank(y_true, y_pred))

    def __reduce__(self):
        return FunctionLoss, (self.function, self.dtype)  # Keras would look for the class among registered ones


def resolve_loss(identifier):
    """A `keras.losses.Loss` from a name, function, config or object."""
    loss = keras.losses.get(identifier)
    return loss if isinstance(loss, keras.losses.Loss) else FunctionLoss(loss)


def is_row_wise_loss(loss):
    """Whether the loss is one of Keras' own that treats rows one by one."""
    if isinstance(loss, FunctionLoss):
        function = loss.function
        return _is_exported(function) and function not in _FUNCTIONS_ACROSS_ROWS
    return getattr(keras.losses, type(loss).__name__, None) is type(loss) and type(loss) not in _ACROSS_ROWS


def member_losses(loss, y_true, y_pred, sample_weight=None):
    """Loss of each member over the rows that count.

    Parameters
    ----------
    loss : keras.losses.Loss
    y_true : tensor of shape (n_members, batch, ...)
    y_pred : tensor of shape (n_members, batch, ...)
    sample_weight : tensor of shape (n_members, batch), optional

    Returns
    -------
    tensor of shape (n_members,)
        Members without valid rows get some finite number.
    """
    if not is_row_wise_loss(loss):
        return _losses_one_by_one(loss, y_true, y_pred, sample_weight)
    n_members = y_pred.shape[0]
    n_rows = ops.shape(y_pred)[1]
    target = ops.convert_to_tensor(rows.merge_members(y_true), dtype=loss.dtype)
    prediction = with_attachments(y_pred, rows.merge_members, loss.dtype)
    mask = get_mask(prediction)
    values = loss.call(target, prediction)
    own_mask = get_mask(values)
    if own_mask is not None:
        mask = own_mask if mask is None else ops.logical_and(mask, own_mask)
    values = rows.split_members(ops.convert_to_tensor(values, dtype=loss.dtype), n_members)
    if mask is not None:
        mask = rows.split_members(mask, n_members)
    return _reduce(values, sample_weight, mask, n_rows, loss.reduction)


def _reduce(values, sample_weight, mask, n_rows, reduction):
    """Sum (M, B, ...) per member and divide by what Keras would divide the member's own batch by."""
    counts = rows.row_mask(n_rows)
    if counts is None:
        counts = ops.ones(ops.shape(values)[:2], dtype="bool")
    counts = _expand_to(counts, values)
    if mask is not None:
        counts = ops.logical_and(counts, _expand_to(ops.cast(mask, "bool"), values))
    counts = ops.broadcast_to(counts, ops.shape(values))
    axes = tuple(range(1, len(values.shape)))
    weighted = values
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, values.dtype)
        weighted = values * _expand_to(sample_weight, values)
    total = ops.sum(ops.where(counts, weighted, 0), axis=axes)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        # Keras sums the weights as given: one per row, whatever the number of values in a row.
        row_counts = counts if mask is not None else counts[(slice(None), slice(None), *[0] * (len(values.shape) - 2))]
        weight = _expand_to(sample_weight, row_counts)
        divisor = ops.sum(ops.where(row_counts, weight, 0), axis=tuple(range(1, len(row_counts.shape))))
    else:
        divisor = ops.sum(ops.cast(counts, values.dtype), axis=axes)
    return ops.divide_no_nan(total, divisor)


def _losses_one_by_one(loss, y_true, y_pred, sample_weight):
    n_valid = rows.current()
    losses = []
    for member in range(y_pred.shape[0]):
        prediction = with_attachments(y_pred, lambda value, m=member: rows.take_valid(value, m, n_valid))
        weight = None if sample_weight is None else rows.take_valid(sample_weight, member, n_valid)
        losses.append(loss(rows.take_valid(y_true, member, n_valid), prediction, sample_weight=weight))
    return ops.stack(losses)


def with_attachments(tensor, change, dtype=None):
    """`change(tensor)`, keeping the logits and the mask that Keras' losses look up on the tensor."""
    changed = change(tensor)
    same_dtype = dtype is None or keras.backend.standardize_dtype(changed.dtype) == dtype
    if not same_dtype:
        changed = ops.convert_to_tensor(changed, dtype=dtype)
    logits, mask = get_logits(tensor), get_mask(tensor)
    if logits is not None and same_dtype:  # Keras, too, loses the logits when it casts
        set_logits(changed, change(logits))
    if mask is not None:
        set_mask(changed, change(mask))
    return changed


def _expand_to(tensor, values):
    """Append axes to `tensor` until it has the rank of `values`."""
    return ops.reshape(tensor, (*ops.shape(tensor), *[1] * (len(values.shape) - len(tensor.shape))))


def _is_exported(function):
    return getattr(keras.losses, getattr(function, "__name__", ""), None) is function


def _same_rank(y_true, y_pred):
    """Match (n,) with (n, 1), the one case in which Keras changes ranks."""
    if len(y_true.shape) == 1 and len(y_pred.shape) == 2 and y_pred.shape[-1] == 1:
        return ops.expand_dims(y_true, -1), y_pred
    if len(y_pred.shape) == 1 and len(y_true.shape) == 2 and y_true.shape[-1] == 1:
        return y_true, ops.expand_dims(y_pred, -1)
    if len(y_true.shape) == len(y_pred.shape) + 1 and y_true.shape[-1] == 1:
        return ops.squeeze(y_true, -1), y_pred
    return y_true, y_pred
