"""The members' histories: what ``history_`` is."""

import itertools
from collections.abc import Sequence


class Histories(Sequence):
    """Losses and metrics of each member, epoch by epoch.

    ``histories[i]`` is the dict that ``keras.callbacks.History.history`` would be after training member *i* alone: name
    to list of one float per epoch. Members may differ in length, as early stopping is each member's own.

    Parameters
    ----------
    histories : list of dict of str to list of float

    Examples
    --------
    >>> histories = Histories([{"loss": [0.5, 0.25]}, {"loss": [0.75]}])
    >>> histories[1]
    {'loss': [0.75]}
    >>> histories.to_columns()
    {'member': [0, 0, 1], 'epoch': [0, 1, 0], 'loss': [0.5, 0.25, 0.75]}
    """

    def __init__(self, histories):
        self._histories = [dict(history) for history in histories]

    def __len__(self):
        return len(self._histories)

    def __getitem__(self, index):
        return self._histories[index]

    def __repr__(self):
        names = list(dict.fromkeys(itertools.chain.from_iterable(self._histories)))
        return f"<Histories of {len(self)} members: {', '.join(names)}>"

    def to_columns(self):
        """Tidy columns: "member", "epoch" (from 0) and one per metric, one row per member and epoch.

        Returns
        -------
        dict of str to list
            NaN where a member has no such entry for an epoch.
        """
        names = list(dict.fromkeys(itertools.chain.from_iterable(self._histories)))
        columns = {"member": [], "epoch": [], **{name: [] for name in names}}
        for member, history in enumerate(self._histories):
            n_epochs = max(map(len, history.values()), default=0)
            columns["member"] += [member] * n_epochs
            columns["epoch"] += range(n_epochs)
            for name in names:
                values = list(history.get(name, []))
                columns[name] += values + [float("nan")] * (n_epochs - len(values))
        return columns

    def to_table(self):
        """`to_columns` as a pandas DataFrame, which needs pandas.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        return pd.DataFrame(self.to_columns())
