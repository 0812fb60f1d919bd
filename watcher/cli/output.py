"""Standard output and stderr, and the status line at the bottom of a terminal."""

import io
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from watcher.cli import logs
from watcher.errors import UsageError
from watcher.files import BrokenOff, WholeFile, give_up, raw, replacing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger("watcher")

_BUFFER_BYTES = 1024 * 1024
_ERASE = b"\r\x1b[2K"
_COLUMNS = 80
# For the `^C^C` that a terminal shows of Ctrl-C, and as some wrap once the last column is taken.
_FREE_COLUMNS = 5


class Line:
    """One line of text below everything that `TerminalFile` writes to the same terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._device = os.fstat(descriptor).st_rdev
        self._text = ""
        self._drawn = False
        self._at_line_start = True
        self._open = True
        from watcher import process_start  # not at a TAB: it needs multiprocessing

        # A child would erase what we have drawn.
        process_start.in_forked_child(self._leave)

    def set(self, text: str) -> None:
        """Shows this text from now on, cut at the terminal's edge."""
        if text != self._text or not self._drawn:
            self._text = text
            self._draw()

    def is_beneath(self, descriptor: int) -> bool:
        """True if this descriptor is the same terminal."""
        return self._open and os.fstat(descriptor).st_rdev == self._device

    def erase(self) -> None:
        """Erases the line to make room for output."""
        if self._drawn:
            self._write(_ERASE)
            self._drawn = False  # not before: a signal may end us in between

    def come_back(self, written: bytes) -> None:
        """Redraws the line below new output; waits where that has no line end yet."""
        self._at_line_start = written.endswith(b"\n")
        self._draw()

    def close(self) -> None:
        """Erases the line for good."""
        self.erase()
        self._open = False

    def _draw(self) -> None:
        if self._open and self._text and self._at_line_start and self._in_foreground():
            text = self._text[: max(0, self._columns() - _FREE_COLUMNS)]
            self._drawn = True
            self._write(_ERASE + text.encode(sys.stderr.encoding, "replace"))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._descriptor).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _in_foreground(self) -> bool:
        """Returns False in a background job (`&`)."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # it is not the terminal that we were started from
            return True

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # a terminal that is gone
            os.write(self._descriptor, data)

    def _leave(self) -> None:
        self._open = self._drawn = False


class TerminalFile(WholeFile):
    """A standard stream that is a terminal: the status line makes room for what is written."""

    line: ClassVar[Line | None] = None

    def write(self, data: "ReadableBuffer") -> int:
        """Writes data, with the status line moved below it."""
        line = TerminalFile.line
        if line is None or not line.is_beneath(self.fileno()):
            return super().write(data)
        line.erase()
        count = super().write(data)
        line.come_back(bytes(memoryview(data).cast("B")[:count]))
        return count


@contextmanager
def status_line() -> Iterator[Line | None]:
    """Yields the line at the bottom of the terminal; None if there is no place for it."""
    dumb = os.environ.get("TERM") in (None, "", "dumb", "unknown")
    unwanted = dumb or logs.is_json() or _is_piped()
    unwanted = unwanted or not logger.isEnabledFor(logging.INFO)  # --quiet
    if unwanted or not isinstance(raw(sys.stderr), TerminalFile):
        yield None
        return
    line = TerminalFile.line = Line(sys.stderr.fileno())
    try:
        yield line
    finally:
        line.close()
        TerminalFile.line = None


def _is_piped() -> bool:
    """True if stdout goes to another program, which may print to the same terminal."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # there is no such stream
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


# A file that a command writes


@contextmanager
def written_file(name: str) -> Iterator[IO[str]]:
    """Yields a file that takes its place once it is complete. Raises UsageError."""
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"can't write {name}: it is a folder; name a file in it")
    place = path.resolve()  # a link stays one
    try:
        if place.exists() and not place.is_file():  # a pipe: nothing to replace
            opened: AbstractContextManager[WholeFile] = WholeFile(str(place), "w")
        else:
            opened = replacing(place, place.with_name(f".{place.name}.{os.getpid()}"))
        with opened as file:
            text = io.TextIOWrapper(
                io.BufferedWriter(file), encoding="utf-8", errors="backslashreplace"
            )
            yield text
            text.flush()
            text.detach().detach()
    except OSError as error:
        raise UsageError(f"can't write {name}: {error.strerror}") from None


# Standard output, from the start to the end


def set_up_streams() -> None:
    """Replaces stdout and stderr with the streams that the rest of the program writes to."""
    # Started with `>&-`: what is written is lost, and that is an error. With `2>&-` it is not. Both
    # numbers are taken, or the next file or socket would be one that others take for a terminal.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w")
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        if out is sys.__stdout__:
            out = _larger(out)
        # The wire's JSON is UTF-8 whatever the locale says. Written through to the bytes' buffer,
        # so that text and bytes can be written in turn; that one is flushed once per page.
        encoding = None if out.isatty() else "utf-8"
        out.reconfigure(encoding=encoding, errors="backslashreplace", write_through=True)
        sys.stdout = out
    err = sys.stderr
    if isinstance(err, io.TextIOWrapper) and err is sys.__stderr__:
        # Python's own would wait at the end for what a stuck pipe has not taken.
        kind = TerminalFile if err.isatty() else WholeFile
        raw = kind(err.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), err.encoding, err.errors, line_buffering=True
        )


def _larger(out: io.TextIOWrapper) -> io.TextIOWrapper:
    """Returns standard output with a buffer for a page, unless Python runs unbuffered."""
    kind = TerminalFile if out.isatty() else WholeFile
    file: Any = kind(out.fileno(), "w", closefd=False)
    has_buffer = hasattr(out.buffer, "raw")
    return io.TextIOWrapper(
        io.BufferedWriter(file, _BUFFER_BYTES) if has_buffer else file, out.encoding
    )


def flush_stdout() -> bool:
    """Flushes stdout; returns False if it can't be written (disk full)."""
    if sys.stdout.closed:  # by a handler
        return True
    try:
        sys.stdout.flush()
    except (BrokenPipeError, BrokenOff):  # nobody reads, or not in time
        pass
    except OSError as error:
        log_unwritten(error)
        return False
    return True


def is_of_stdout(error: OSError) -> bool:
    """True for an error of stdout itself; unbuffered, a handler's print raises it."""
    file = raw(sys.stdout)
    return isinstance(file, WholeFile) and file.error is error


def log_unwritten(error: OSError) -> None:
    """Logs why stdout can't be written."""
    logger.error(f"can't write standard output: {error.strerror}")


def close_streams() -> None:
    """Closes stdout quietly if its reader has gone (`| head`); Python's flush would complain."""
    give_up(sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            give_up(sys.stdout)
    except ValueError:  # closed by a handler
        pass
