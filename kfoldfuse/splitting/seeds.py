"""Seeds: one number for a fit, one for each member, one stream of numbers for each purpose.

Invariant: what a member draws depends on the fit's entropy, its own index and the purpose only. It does not depend on
how many members there are or on what anybody drew before, so members may be added, left out or reordered.
"""

import numpy as np
from sklearn.utils import check_random_state


def draw_entropy(random_state=None):
    """Draw the number that all randomness of one fit comes from.

    Parameters
    ----------
    random_state : None, int or numpy.random.RandomState, default=None
        An int gives the same number each time. A RandomState is advanced by one draw. None takes fresh entropy from
        the operating system: unlike in scikit-learn, numpy's global generator is neither read nor advanced, since a
        fit leaves global random state as it found it.

    Returns
    -------
    int
        A number from 0 to 2**63 - 1.

    Raises
    ------
    ValueError
        If `random_state` is something else (scikit-learn's message).

    Examples
    --------
    >>> draw_entropy(0) == draw_entropy(0)
    True
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
    return int(check_random_state(random_state).randint(0, np.iinfo(np.int64).max, dtype=np.int64))


def member_seed(entropy, index):
    """Compute the seed of one member from the fit's entropy and the member's own index.

    Parameters
    ----------
    entropy : int
        What `draw_entropy` returned.
    index : int
        The member's index, from 0. Members of the same index and entropy are the same, whatever stands beside them.

    Returns
    -------
    int
        A number from 0 to 2**31 - 1: it fits every signed or unsigned 32-bit seed of numpy, Keras and TensorFlow.
        Two of 1,000 members share a seed with a probability of 2e-4.

    References
    ----------
    M. E. O'Neill, "Developing a seed_seq Alternative", 2015, the hash behind numpy.random.SeedSequence.

    Examples
    --------
    >>> member_seed(7, 2) == member_seed(7, 2) != member_seed(7, 3)
    True
    """
    state = np.random.SeedSequence(entropy, spawn_key=(index,)).generate_state(1, np.uint32)
    return int(state[0] >> np.uint32(1))


def member_generator(seed, *key):
    """Make the generator of one member for one purpose, and for one epoch of it if that is in the key.

    Parameters
    ----------
    seed : int
        What `member_seed` returned.
    *key : str or int
        The purpose and, where it repeats, its number: ``("shuffle", epoch)``. Different keys give independent streams.

    Returns
    -------
    numpy.random.Generator

    Examples
    --------
    >>> first, again = member_generator(3, "shuffle", 0), member_generator(3, "shuffle", 0)
    >>> bool((first.permutation(5) == again.permutation(5)).all())
    True
    """
    words = [int.from_bytes(part.encode(), "big") if isinstance(part, str) else int(part) for part in key]
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=words))
