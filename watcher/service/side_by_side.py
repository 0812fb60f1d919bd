"""Several calls at once, for a program that has no threads otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from watcher.errors import WatcherError

# As many connections as botocore keeps.
_AT_ONCE = 10

_Name = TypeVar("_Name")


def side_by_side(
    calls: Mapping[_Name, Callable[[], object]],
) -> dict[_Name, WatcherError | None]:
    """What each call has raised, once all are through; None where nothing.

    The threads end before this returns: a process that forks others must not have any. They keep
    no program from its end.
    """

    def made(call: Callable[[], object]) -> WatcherError | None:
        try:
            call()
        except WatcherError as error:
            return error
        return None

    if len(calls) == 1:
        return {name: made(call) for name, call in calls.items()}
    errors: dict[_Name, WatcherError | None] = dict.fromkeys(calls)
    others: list[BaseException] = []
    left = iter(list(calls.items()))  # a list's iterator: each thread gets its own item

    def work() -> None:
        try:
            for name, call in left:
                errors[name] = made(call)
        except BaseException as error:
            others.append(error)

    # Not an executor's threads, which a program waits for at its end.
    threads = [threading.Thread(target=work, daemon=True) for _ in calls][:_AT_ONCE]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if others:
        raise others.pop(0)  # its own frame is not to hold it
    return errors
