"""Standard output for handlers: flushed, and checked for a full disk or a closed pipe."""

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
    """The reader of standard output has gone (`| head`): the program ends without a message."""


@contextmanager
def whole() -> Iterator[None]:
    """Replaces standard output with one that writes all that is printed, or raises.

    Python's own, without a buffer (`python -u`), drops the rest of a partial write; with a buffer,
    it drops what a non-blocking descriptor refuses. Raises as `flush`.
    """
    out = sys.stdout
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper) or out.closed:
        yield  # replaced by the program that calls us
        return
    with suppress(OSError):
        out.flush()
    file = WholeFile(out.fileno(), "w", closefd=False)
    buffer: Any = io.BufferedWriter(file) if hasattr(out.buffer, "raw") else file
    sys.stdout = replacement = io.TextIOWrapper(
        buffer,
        out.encoding,
        out.errors,
        line_buffering=out.line_buffering,
        write_through=True,  # into the buffer
    )
    try:
        yield
    finally:
        if sys.stdout is replacement:
            sys.stdout = out
        try:
            _flush(replacement)
        except (OutputClosed, Overdue):
            pass
        finally:
            file.is_given_up = True


def flush() -> None:
    """Flushes standard output. Raises OutputClosed, HandlerError (disk full)."""
    if sys.stdout is not None:  # `>&-`
        _flush(sys.stdout)


def _flush(out: TextIO) -> None:
    if getattr(out, "closed", False):  # by a handler
        return
    with _translated_errors():
        out.flush()


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error
    except BrokenOff as error:
        raise Overdue from error
    except OSError as error:
        raise HandlerError(f"can't write standard output: {error.strerror}") from error


def caused(error: BaseException) -> bool:
    """True where a handler's error only means that the reader of standard output has gone."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and (isinstance(cause, NobodyReads) or _is_closed())


def _is_closed() -> bool:
    """Returns True if the reader of standard output has gone.

    A flush can't tell: its buffer may be empty.
    """
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # closed or replaced by a handler
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
