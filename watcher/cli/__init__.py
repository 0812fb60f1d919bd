"""The command line: which command runs, and what becomes of its errors."""

from __future__ import annotations

import importlib
import logging
import os
import sys

from watcher.errors import WatcherError

logger = logging.getLogger("watcher")

COMMANDS = {
    "watch": "watch a table's changes (the default)",
    "streams": "list the streams of a region or a table",
    "shards": "show a stream's shards as a tree",
    "demo": "watch a small shop on an embedded DynamoDB; no AWS account needed",
}


class _Lines(logging.Formatter):
    """Status lines as people read them: the bare text, with a word before what is wrong."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text


def main(argv: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, or that of the error (see errors.py)."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    _set_up_output()
    command = importlib.import_module(f"watcher.cli.{name or 'watch'}")
    try:
        status: int = command.main(arguments[1:] if name else arguments)
        sys.stdout.flush()
        return status
    except WatcherError as error:
        logger.error(str(error), exc_info=logger.isEnabledFor(logging.DEBUG))
        return error.exit_status
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        _give_up_closed_stdout()


def set_verbose(verbose: bool) -> None:
    """With `-v`: more status, and tracebacks."""
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def _set_up_output() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logger.handlers[:] = [handler]
    logger.propagate = False
    set_verbose(False)
    # Written once per page, not per line; the wire's JSON is UTF-8 whatever the locale says.
    if hasattr(sys.stdout, "reconfigure"):
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace", line_buffering=False)


def _give_up_closed_stdout() -> None:
    """Whoever read our output has gone (`| head`): Python's own last flush must not complain."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
