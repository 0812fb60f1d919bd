"""`python -m watcher`: runs one command line, from its words to an exit status."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence

from watcher import version
from watcher.cli import command_line, logs, output
from watcher.cli.command_line import LOG_FORMAT, CommandLine
from watcher.cli.invocation import Invocation
from watcher.errors import ResourceError, StreamError, WatcherError
from watcher.shutdown import ending_process

logger = logging.getLogger("watcher")


def run(words: Sequence[str]) -> int:
    """Runs a command; returns the exit status: 0, or that of the error (see errors.py)."""
    if "_ARGCOMPLETE" in os.environ:
        from watcher.cli import completion

        completion.answer()
    line = command_line.command_line(words)
    # A watch ends by its own handler, once it has it; until then there is nothing to put in order.
    quietly = signal.SIG_DFL if line.name == "watch" else signal.default_int_handler
    before = signal.signal(signal.SIGINT, quietly)
    try:
        output.set_up_streams()
        with ending_process():
            return _run(line)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception:
        sys.excepthook(*sys.exc_info())
        return StreamError.exit_status  # 1 would say that a handler failed, or that copies differ
    finally:
        output.close_streams()
        signal.signal(signal.SIGINT, before)


def _run(line: CommandLine) -> int:
    invocation = None
    logs.set_up("text")
    set_level()
    logs.set_up(line.peek(LOG_FORMAT).last or "text")
    try:
        invocation = Invocation(line)
        if invocation.asked:
            topic = invocation.asked.get("help")
            print(version.LINE + "\n" if topic is None else _help(line, str(topic)), end="")
            return 0 if output.flush_stdout() else ResourceError.exit_status
        set_level(invocation.values["verbose"], invocation.values["quiet"])
        status = invocation.run()
        return status if output.flush_stdout() else ResourceError.exit_status
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        if output.is_of_stdout(error):
            output.log_unwritten(error)
            return ResourceError.exit_status
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _log_full_disk(error)
    except WatcherError as error:
        logger.error(
            invocation.explain(error) if invocation else str(error),
            exc_info=logger.isEnabledFor(logging.DEBUG),
            extra={"exit_status": error.exit_status},
        )
        return error.exit_status


def _log_full_disk(error: OSError) -> int:
    # A temporary file has no name; the error of a checkpoint or a dead letter is another one.
    full = error.filename or "the folder of temporary files"
    text = f"{error.strerror}: {full} is full; free some space, or set TMPDIR to another folder"
    logger.error(text, extra={"exit_status": ResourceError.exit_status})
    return ResourceError.exit_status


def _help(line: CommandLine, topic: str) -> str:
    from watcher.cli import help  # noqa: A004

    return help.page(line, topic)


def set_level(verbose: bool = False, quiet: bool = False) -> None:
    """Sets what is logged: with `-v` more, and tracebacks; with `-q` only what is wrong."""
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
