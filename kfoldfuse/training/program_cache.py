"""Fused networks and traced programs by signature, a bounded number of them, so that the next fit need not trace."""

import collections
import threading

from kfoldfuse.fusion.fuse import build_fused
from kfoldfuse.training.engine import Predictor, Program
from kfoldfuse.training.signature import bakes_in_user_code, settings_signature, template_signature

_MAX_ENTRIES = 16


class _BoundedCache:
    """Least recently used entries go first. Keys hold the objects they stand for, so an id is never reused."""

    def __init__(self):
        self._entries = collections.OrderedDict()
        self._lock = threading.RLock()

    def get(self, key, make):
        with self._lock:
            if key not in self._entries:
                self._entries[key] = make()
                while len(self._entries) > _MAX_ENTRIES:
                    self._entries.popitem(last=False)
            self._entries.move_to_end(key)
            return self._entries[key]

    def clear(self):
        with self._lock:
            self._entries.clear()


_networks, _programs, _predictors = _BoundedCache(), _BoundedCache(), _BoundedCache()


def find_network(template, n_members):
    """A fused network of this architecture; its stacked variables mean nothing, values are passed to each call."""
    key = (template_signature(template), n_members)
    return _networks.get(key, lambda: build_fused(template, n_members))


def find_program(template, settings, n_members, padded_size, target_spec, weighted):
    """The program for these jobs, traced before or new. Arguments as of `Program`."""
    key = (
        template_signature(template),
        settings_signature(settings),
        n_members,
        padded_size,
        tuple(target_spec.shape[1:]),
        target_spec.dtype,
        weighted,
        settings if bakes_in_user_code(settings) else None,
    )
    network = find_network(template, n_members)
    return _programs.get(key, lambda: Program(network, settings, padded_size, target_spec, weighted))


def find_predictor(template, n_members):
    """The predictor of this architecture for a number of members."""
    network = find_network(template, n_members)
    return _predictors.get((template_signature(template), n_members), lambda: Predictor(network))


def clear_programs():
    """Forget all traced programs, to free their memory."""
    for cache in (_networks, _programs, _predictors):
        cache.clear()
