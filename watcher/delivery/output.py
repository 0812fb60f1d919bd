"""Standard output as handlers leave it: brought out, full, or with nobody to read it any more."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from watcher.errors import HandlerError
from watcher.files import BrokenOff, NobodyReads, WholeFile
from watcher.shutdown import Overdue


class OutputClosed(Exception):
    """Standard output is closed (`| head`): time to end, quietly."""


@contextmanager
def whole() -> Iterator[None]:
    """Standard output that takes all that is printed meanwhile, or raises.

    Python's own, without a buffer (`python -u`), drops what a write cut short has left; and with
    one, what a descriptor that does not wait has refused. Raises as `flush`.
    """
    out = sys.stdout
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper) or out.closed:
        yield  # it is somebody's own
        return
    with suppress(OSError):
        out.flush()
    file = WholeFile(out.fileno(), "w", closefd=False)
    buffer: Any = io.BufferedWriter(file) if hasattr(out.buffer, "raw") else file
    sys.stdout = made = io.TextIOWrapper(
        buffer,
        out.encoding,
        out.errors,
        line_buffering=out.line_buffering,
        write_through=True,  # into the buffer
    )
    try:
        yield
    finally:
        if sys.stdout is made:
            sys.stdout = out
        try:
            _flush(made)
        except (OutputClosed, Overdue):
            pass
        finally:
            file.give_up()


def flush() -> None:
    """Bring out what handlers have printed. Raises OutputClosed, HandlerError (disk full)."""
    if sys.stdout is not None:  # `>&-`
        _flush(sys.stdout)


def _flush(out: TextIO) -> None:
    if getattr(out, "closed", False):  # a handler's doing
        return
    try:
        out.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
    except BrokenOff as error:
        raise Overdue from error
    except OSError as error:
        raise HandlerError(f"can't write standard output: {error.strerror}") from error


def caused(error: BaseException) -> bool:
    """Whether a handler's error is none of its own: nobody reads what it prints."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and (isinstance(cause, NobodyReads) or _is_closed())


def _is_closed() -> bool:
    """Whether nobody reads our output any more; a flush can't tell, it may have nothing left."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # a handler has closed or replaced it
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
