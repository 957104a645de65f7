"""Which rows a member trains on, which it looks at, which it never sees: index arrays, and the seeds they come from."""

from kfoldfuse.splitting.bootstrap import draw_rows
from kfoldfuse.splitting.folds import Split, resolve_splits
from kfoldfuse.splitting.out_of_fold import gather_out_of_fold
from kfoldfuse.splitting.seeds import draw_entropy, member_generator, member_seed
from kfoldfuse.splitting.validation import split_validation

__all__ = [
    "Split",
    "draw_entropy",
    "draw_rows",
    "gather_out_of_fold",
    "member_generator",
    "member_seed",
    "resolve_splits",
    "split_validation",
]
