"""Log lines on stderr: text for people, or one JSON object a line for programs."""

from __future__ import annotations

import logging
import select
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO, TypeAlias

from watcher.errors import StreamError, error_text, without_passwords, without_secrets
from watcher.files import give_up
from watcher.shutdown import Overdue, in_charge

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

logger = logging.getLogger("watcher")

# What a line says of itself beside its message, where the caller knows it.
_LINE_SECONDS = 0.5  # the wait for a reader of a line, once the program is to end
_FIELDS = ("stream", "shard", "handler", "exit_status")


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes log lines to stderr.

    A reader of the pipe may be slow: lines wait for it, but the program's end does not.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handle(self, record: logging.LogRecord) -> bool:
        """Writes a line; while the program ends, drops one that can't be written."""
        try:
            shutdown = in_charge()
            with shutdown.writing_line():
                if shutdown.signal and not _takes_more(self.stream):
                    return False
                return super().handle(record)
        except Overdue:
            return False

    def handleError(self, record: logging.LogRecord) -> None:
        """Reports a line that can't be formatted, as a line."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            # There is no stderr to say it on. Python brings out what was not said before it starts
            # a process: as long as that fails, there would be none for another shard.
            give_up(self.stream)
        elif record.args:
            record.msg = f"{record.msg!r} with {record.args!r} can't be logged: {error}"
            record.args = ()
            self.emit(record)


def _takes_more(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # somebody's own, in memory
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(_LINE_SECONDS * 1000))


class _Lines(logging.Formatter):
    """Formats log lines for people: bare text, with the level before warnings and errors."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns one safe line: an error's text may quote an item's data."""
        # Not before there is a line: it needs boto3.
        from watcher.formatting.style import about_table
        from watcher.formatting.text import printable

        text = about_table(record.message, vars(record).get("stream", ""))
        text = printable(without_passwords(text))
        return f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text

    def formatException(self, ei: _ExcInfo) -> str:
        """Returns a traceback without secrets: other libraries' errors quote whole URLs."""
        from watcher.formatting.text import printable_lines

        return printable_lines(without_secrets(super().formatException(ei)))


class _JsonLines(logging.Formatter):
    """Formats log lines as JSON: time, level, message; stream, shard and handler if known."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as one line, whatever its message holds."""
        import msgspec  # not for lines of text, nor for help

        from watcher.formatting.text import printable_json

        created = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.name != logger.name:
            line["logger"] = record.name
            line["message"] = without_secrets(line["message"])
        line |= {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        text = msgspec.json.encode(line, enc_hook=str).decode("utf-8", "backslashreplace")
        return printable_json(without_passwords(text))


def set_up(log_format: str) -> None:
    """Sends watcher's log to stderr; as JSON, other libraries' warnings and errors too."""
    handler = _Stderr()
    logger.handlers[:] = [handler]
    logger.propagate = False
    if log_format == "text":
        handler.setFormatter(_Lines())
        return
    handler.setFormatter(_JsonLines())
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
    status = StreamError.exit_status
    sys.excepthook = lambda _kind, error, _trace: _log_uncaught(error, exit_status=status)
    threading.excepthook = lambda failed: _log_uncaught(failed.exc_value)
    sys.unraisablehook = lambda failed: _log_uncaught(failed.exc_value)


def is_json() -> bool:
    """True if log lines are JSON."""
    return any(isinstance(handler.formatter, _JsonLines) for handler in logger.handlers)


def _log_uncaught(error: BaseException | None, **known: int) -> None:
    """Logs an uncaught error, instead of Python's own report."""
    if error is not None:
        text = f"{type(error).__name__}: {error_text(error)}"
        logger.error(text, exc_info=error, extra=known)
