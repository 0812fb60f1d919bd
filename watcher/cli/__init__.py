"""The command line: which command runs, and what becomes of its errors."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
from typing import Any

from watcher.cli import logs
from watcher.cli.terminal import Output
from watcher.errors import WatcherError

logger = logging.getLogger("watcher")

COMMANDS = {
    "watch": "watch a table's changes (the default)",
    "streams": "list the streams of a region or a table",
    "shards": "show a stream's shards as a tree",
    "report": "put a stream's or an archive's changes on a page to look at, with pictures",
    "replay": "hand the records of a dead-letter file to handlers again",
    "new-handler": "write a handler module to begin with, and its test",
    "demo": "watch a small shop on an embedded DynamoDB; no AWS account needed",
    "query": "ask the changes of the last 24 hours by SQL, on Spark",
    "archive": "append every change to files, each exactly once, on Spark",
    "replicate": "keep another table equal to this one, on Spark",
    "metrics": "count changes by kind and window of time, on Spark",
}


_BUFFER_BYTES = 1024 * 1024


def main(argv: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, or that of the error (see errors.py)."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    _set_up_output()
    logs.set_up(logs.chosen_format(arguments))
    set_verbose(False)
    command = importlib.import_module(f"watcher.cli.{(name or 'watch').replace('-', '_')}")
    try:
        status: int = command.main(arguments[1:] if name else arguments)
        return status if _flush_stdout() else 1
    except WatcherError as error:
        logger.error(
            str(error),
            exc_info=logger.isEnabledFor(logging.DEBUG),
            extra={"exit_status": error.exit_status},
        )
        return error.exit_status
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        _give_up_stdout()


def set_verbose(verbose: bool) -> None:
    """With `-v`: more status, and tracebacks."""
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def _set_up_output() -> None:
    if sys.stdout is None:  # started with `>&-`
        sys.stdout = open(os.devnull, "w")
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
    if isinstance(err, io.TextIOWrapper) and err is sys.__stderr__ and err.isatty():
        raw = Output(err.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), err.encoding, err.errors, line_buffering=True
        )


def _larger(out: io.TextIOWrapper) -> io.TextIOWrapper:
    """Standard output with a buffer for a page, unless Python was told to have none."""
    raw: io.FileIO | None = getattr(out.buffer, "raw", None)
    file = Output(out.fileno(), "w", closefd=False) if out.isatty() else raw
    if file is None:
        return out
    buffer: Any = file if raw is None else io.BufferedWriter(file, _BUFFER_BYTES)
    return io.TextIOWrapper(buffer, out.encoding)


def _flush_stdout() -> bool:
    """Bring out the last of our output; False where it can't be written (disk full)."""
    if sys.stdout.closed:  # by a handler
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        logger.error(f"can't write standard output: {error.strerror}")
        return False
    return True


def _give_up_stdout() -> None:
    """Whoever read our output has gone (`| head`): Python's own last flush must not complain."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError:  # closed by a handler
        pass
