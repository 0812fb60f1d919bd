"""The command line: one file for each command; options, errors and completion from Cyclopts."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence

import watcher
from watcher.cli import commands, logs, terminal
from watcher.cli.commands import Invocation
from watcher.errors import WatcherError

logger = logging.getLogger("watcher")


def main(argv: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, or that of the error (see errors.py)."""
    words: Sequence[str] = sys.argv[1:] if argv is None else argv
    if words and words[0] == "__complete":
        from watcher.cli import completion

        return completion.answer(*words[1:])
    name, words = commands.named(words)
    # A watch ends by its own handler, once it has it; until then there is nothing to put in order.
    quietly = signal.SIG_DFL if name == "watch" else signal.default_int_handler
    before = signal.signal(signal.SIGINT, quietly)
    try:
        terminal.set_up_streams()
        return _run(name, words)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        terminal.give_up_streams()
        signal.signal(signal.SIGINT, before)


def _run(name: str, words: Sequence[str]) -> int:
    invocation: Invocation | None = None
    logs.set_up("text")
    set_level()
    logs.set_up(commands.first(name, words, commands.LOG_FORMAT)[0])
    try:
        asked = _asked(name, words)
        if asked is None:
            invocation = Invocation(name, words)
            set_level(invocation.values["verbose"], invocation.values["quiet"])
            if topic := invocation.values["help"]:  # -hs may have been a handler's
                asked = _help(name, words, topic)
        status = 0
        if asked is not None:
            print(asked, end="")
        elif invocation is not None:
            status = invocation.run()
        return status if terminal.flush_stdout() else 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not terminal.is_of_stdout(error):
            raise
        terminal.say_unwritten(error)
        return 1
    except WatcherError as error:
        logger.error(
            invocation.told(error) if invocation else str(error),
            exc_info=logger.isEnabledFor(logging.DEBUG),
            extra={"exit_status": error.exit_status},
        )
        return error.exit_status


def _asked(name: str, words: Sequence[str]) -> str | None:
    """What `--help` or `--version` asks for, wherever it stands."""
    for place, word in enumerate(words):
        if word == "--":
            return None
        option, equals, topic = word.partition("=")
        if option in ("--version", "-V"):
            return f"watcher {watcher.__version__}\n"
        if option in ("--help", "-h"):
            if not equals:
                topic = "".join(words[place + 1 : place + 2])
            return _help(name, words, topic if topic[:1] != "-" else "")
        if word.startswith("-h") and word[2:] in (*commands.TOPICS, *commands.COMMANDS):
            return _help(name, words, word[2:])
    return None


def _help(name: str, words: Sequence[str], topic: str) -> str:
    from watcher.cli import help  # noqa: A004

    return help.page(name, words, topic)


def set_level(verbose: bool = False, quiet: bool = False) -> None:
    """What is said on stderr. With `-v`: more, and tracebacks; with `-q`: only what is wrong."""
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
