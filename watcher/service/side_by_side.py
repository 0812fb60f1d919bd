"""Several calls at once, for a program that has no threads otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from watcher.errors import WatcherError

# As many connections as botocore keeps.
_AT_ONCE = 10

_Name = TypeVar("_Name")


def side_by_side(
    calls: Mapping[_Name, Callable[[], object]],
) -> dict[_Name, WatcherError | None]:
    """What each call has raised, once all are through; None where nothing.

    The threads end before this returns: a process that forks others must not have any.
    """

    def made(call: Callable[[], object]) -> WatcherError | None:
        try:
            call()
        except WatcherError as error:
            return error
        return None

    if len(calls) == 1:
        return {name: made(call) for name, call in calls.items()}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(calls, threads.map(made, calls.values()), strict=True))
