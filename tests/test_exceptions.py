"""One `except` catches all of kfoldfuse's errors; each is also the builtin a user would expect."""

import pytest

from kfoldfuse.exceptions import (
    FusionError,
    LossyCopyError,
    MemberFailureError,
    MemberFailureWarning,
    UnfusableModelError,
)


@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        (UnfusableModelError, (FusionError, ValueError)),
        (LossyCopyError, (FusionError, ValueError)),
        (MemberFailureError, (FusionError, RuntimeError)),
        (MemberFailureWarning, (UserWarning,)),
    ],
)
def test_errors_are_caught_by_their_parents(kind, parents):
    assert all(issubclass(kind, parent) for parent in parents)
