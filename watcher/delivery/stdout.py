"""Standard output as observers leave it: brought out, full, or with nobody to read it any more."""

from __future__ import annotations

import select
import sys

from watcher.errors import ObserverError


class OutputClosed(Exception):
    """Standard output is closed (`| head`): time to end, quietly."""


def flush() -> None:
    """Bring out what observers have printed. Raises OutputClosed, ObserverError (disk full)."""
    if sys.stdout is None or sys.stdout.closed:  # an observer's doing, or `>&-`
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        raise ObserverError(f"can't write standard output: {error.strerror}") from error


def caused(error: BaseException) -> bool:
    """Whether an observer's error is none of its own: nobody reads what it prints."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and _is_closed()


def _is_closed() -> bool:
    """Whether nobody reads our output any more; a flush can't tell, it may have nothing left."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # an observer has closed or replaced it
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
