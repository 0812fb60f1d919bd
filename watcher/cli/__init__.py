"""The command line: which command runs, and what becomes of its errors."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import signal
import sys
from types import ModuleType
from typing import Any

from watcher.cli import logs
from watcher.cli.terminal import Output
from watcher.errors import WatcherError

logger = logging.getLogger("watcher")

PROGRAM = "python -m watcher"
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
    "completion": "print what makes bash, zsh or fish complete commands and options",
    "help": "help on a command or a group of options",
}


_BUFFER_BYTES = 1024 * 1024


def main(argv: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, or that of the error (see errors.py)."""
    arguments = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        from watcher.cli import tab

        tab.answer()
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    # A watch ends by its own handler, once it has it; until then there is nothing to put in order.
    quietly = name in (None, "watch")
    before = signal.signal(signal.SIGINT, signal.SIG_DFL if quietly else signal.default_int_handler)
    try:
        _set_up_output()
        logs.set_up("text")
        set_verbose(False)
        logs.set_up(logs.chosen_format(name or "watch", arguments))
        status: int = command(name or "watch").main(arguments[1:] if name else arguments)
        return status if _flush_stdout() else 1
    except WatcherError as error:
        from watcher.cli import defaults

        logger.error(
            defaults.explained(str(error)),
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
        signal.signal(signal.SIGINT, before)


def command(name: str) -> ModuleType:
    """The module of a command: its `main`, and its `parser`."""
    return importlib.import_module(f"watcher.cli.{name.replace('-', '_')}")


def sentence(name: str) -> str:
    """What a command does, as its help begins."""
    text = COMMANDS[name]
    return f"{text[0].upper()}{text[1:]}."


def set_verbose(verbose: bool) -> None:
    """With `-v`: more status, and tracebacks."""
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def _set_up_output() -> None:
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
