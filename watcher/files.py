"""Files for item data: written whole or not at all, and private to their owner."""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from watcher.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger("watcher")

_PRIVATE = 0o600
# The part of a write that is searched for a line's end first.
_TAIL_BYTES = 4096


class NobodyReads(BrokenPipeError):
    """The reader of our output has gone (`| head`)."""


class BrokenOff(OSError):
    """An earlier write was interrupted, at an unknown place."""


class WholeFile(io.FileIO):
    """An unbuffered file that writes all of its data, or raises.

    Python's FileIO writes only what the system accepts at once, which is less after a signal, on a
    full disk or with a non-blocking descriptor; callers that ignore the result lose the rest. This
    one goes on, and waits. Where it can't, a regular file is cut back to its last whole line, and
    all further writes raise the same error.
    """

    error: OSError | None = None
    """The error that ended the writing, raised again by all further writes."""
    is_given_up = False
    """True once further data is dropped in silence."""
    _since_line_end = 0

    def write(self, data: ReadableBuffer) -> int:
        """Writes all of `data`. Raises OSError, also as NobodyReads or BrokenOff."""
        view = memoryview(data).cast("B")
        if self.error is not None:
            if not self.is_given_up:
                raise self.error
            return len(view)
        done = 0
        try:
            while done < len(view):
                written = super().write(view[done:])
                if written is None:
                    poll = select.poll()
                    poll.register(self.fileno(), select.POLLOUT)
                    poll.poll()
                else:
                    done += written
        except OSError as error:
            self._count(view[:done])
            self._cut_back()
            if isinstance(error, BrokenPipeError):
                error = NobodyReads(error.errno, error.strerror)
            self.error = error
            raise error from None
        except BaseException:
            # Not EINTR, after which Python's buffers would retry.
            self.error = BrokenOff(errno.ECANCELED, "the last write was interrupted")
            raise
        self._count(view)
        return done

    def _count(self, written: memoryview) -> None:
        for last in (written[-_TAIL_BYTES:], written):
            end = bytes(last).rfind(b"\n")
            if end >= 0:
                self._since_line_end = len(last) - 1 - end
                return
        self._since_line_end += len(written)

    def _cut_back(self) -> None:
        """Removes an incomplete last line at the end of a regular file."""
        with suppress(OSError):
            status = os.fstat(self.fileno())
            end = os.lseek(self.fileno(), 0, os.SEEK_CUR)
            if stat.S_ISREG(status.st_mode) and end == status.st_size and self._since_line_end:
                end -= self._since_line_end
                os.ftruncate(self.fileno(), end)
                os.lseek(self.fileno(), end, os.SEEK_SET)


def raw(stream: object) -> object:
    """Returns the file below a text stream."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def give_up(stream: object) -> None:
    """Makes a failed text stream on a WholeFile drop all further data."""
    if isinstance(file := raw(stream), WholeFile):
        file.is_given_up = True


def append_lines(path: str) -> WholeFile:
    """Opens a file to append lines to; a new one is private to its owner.

    An incomplete last line (after a crash) stays, on a line of its own, with a warning. Raises
    OSError.
    """
    file = WholeFile(path, "ab", opener=_opened)
    try:
        if _has_torn_line(path):
            logger.warning(
                f"The last line of {path} is cut off, as after a crash; "
                "the next one begins on a new line"
            )
            file.write(b"\n")
    except BaseException:
        file.close()
        raise
    return file


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE)


def _has_torn_line(path: str) -> bool:
    with suppress(PermissionError):  # writable, but not readable
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            with open(path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
    return False


@contextmanager
def replacing(target: Path, aside: Path) -> Iterator[WholeFile]:
    """Yields a file that replaces `target` once it is complete.

    It is first written `aside`, in the same folder, and synced to disk. A replacement keeps the
    mode; a new file is private to its owner. Raises OSError.
    """
    aside.unlink(missing_ok=True)  # left by a crash
    try:
        with WholeFile(os.fspath(aside), "w", opener=_created) as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _created(path: str, flags: int) -> int:
    """Creates a file; never opens an existing one, or a link."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE)


def text_in(path: str) -> str:
    """Returns a file's text. Raises UsageError."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"can't read {path}: {reason}") from None


def temporary_folder(longest: int | None = None) -> str:
    """Returns a folder for temporary files; its path has at most `longest` bytes.

    In a container it may be /dev/shm. Raises ResourceError.
    """
    import tempfile  # not for help: it takes a twentieth of that start

    folders = ["/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108
    with suppress(FileNotFoundError):  # TMPDIR's comes first
        folders.insert(0, tempfile.gettempdir())
    for folder in folders:
        if longest is None or len(os.fsencode(folder)) <= longest:
            with suppress(OSError), tempfile.TemporaryFile(dir=folder):
                return folder
    raise ResourceError(
        f"can't write temporary files to {', '.join(dict.fromkeys(folders))}; "
        "mount a volume at /tmp, or set TMPDIR to a writable folder"
    )


def is_terminal(file: object) -> bool:
    """True for a terminal; a host program's replacement may lack `isatty`."""
    isatty = getattr(file, "isatty", None)
    try:
        return isatty is not None and bool(isatty())
    except (OSError, ValueError):  # closed
        return False
