"""Log lines on stderr: text for people, or one JSON object a line for programs."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import msgspec

from watcher.cli import defaults

logger = logging.getLogger("watcher")

FORMATS = ("text", "json")
# What a line says of itself beside its message, where the caller knows it.
_FIELDS = ("stream", "shard", "observer", "exit_status")


class _Lines(logging.Formatter):
    """Status lines as people read them: the bare text, with a word before what is wrong."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """A line each: an error's text may quote an item's data."""
        from watcher.text import printable  # not before there is a line: it needs boto3

        text = printable(record.message)
        return f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text


class _JsonLines(logging.Formatter):
    """A JSON object a line: time, level, message; shard, stream and the like where known."""

    def format(self, record: logging.LogRecord) -> str:
        """Whatever the message holds, it stays one line."""
        from watcher.text import printable_json

        created = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.name != logger.name:
            line["logger"] = record.name
        line |= {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        text = msgspec.json.encode(line, enc_hook=str).decode("utf-8", "backslashreplace")
        return printable_json(text)


def add_format(group: argparse._ActionsContainer) -> None:
    """The `--log-format` option; `chosen_format` has read it already."""
    group.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="status and errors as text (default), or as one JSON object a line",
    )


def chosen_format(command: str, arguments: Sequence[str]) -> str:
    """The `--log-format`: needed before the arguments are parsed, which may fail."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--log-format", nargs="?")
    given = first.parse_known_args(arguments)[0].log_format or defaults.raw(command, "log-format")
    return given if given in FORMATS else "text"


def set_up(log_format: str) -> None:
    """Send watcher's log to stderr; as JSON, everybody else's warnings and errors too."""
    handler = logging.StreamHandler(sys.stderr)
    logger.handlers[:] = [handler]
    logger.propagate = False
    if log_format == "text":
        handler.setFormatter(_Lines())
        return
    handler.setFormatter(_JsonLines())
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
    sys.excepthook = _log_crash


def is_json() -> bool:
    """Whether the log is one of JSON lines."""
    return any(isinstance(handler.formatter, _JsonLines) for handler in logger.handlers)


def _log_crash(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.critical(
        f"{kind.__name__}: {error}", exc_info=(kind, error, trace), extra={"exit_status": 1}
    )
