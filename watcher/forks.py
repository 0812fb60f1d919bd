"""What a forked child must give up, whoever forks: a shard's process, or an observer."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

_methods: set[weakref.WeakMethod[Callable[[], object]]] = set()


def in_child(method: Callable[[], object]) -> None:
    """Call a bound method in every child forked from now on, as long as its object lives."""
    _methods.add(weakref.WeakMethod(method, _methods.discard))


def _call_all() -> None:
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_call_all)
