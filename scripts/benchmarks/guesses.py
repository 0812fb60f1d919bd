"""How often a first guess is right: command lines of other tools' habits, and what becomes of each.

`guesses.tsv` has one a line: the words behind `watcher`, what a person wants with them, the line
of ours that does it (`=`: this one), and a part of the refusal that names what to type; a refusal
may also name an option of that line.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.simulator import Simulator
from watcher import watching
from watcher.aws.connect import Clients
from watcher.aws.discovery import WantedStreams
from watcher.aws.error_hints import unreachable_hint
from watcher.cli import main
from watcher.cli.command_line import CommandLine, named
from watcher.cli.invocation import Invocation
from watcher.errors import StreamError
from watcher.observability.watch_stats import Totals
from watcher.options import WatchOptions

FILE = Path(__file__).with_suffix(".tsv")
_PROFILE = "[profile prod]\naws_access_key_id = test\naws_secret_access_key = test\n"


class Guess(NamedTuple):
    """A line that somebody may type."""

    words: str
    wants: str
    right: str
    """The line of ours that does what is wanted; empty where there is none."""
    says: str
    """A part of the refusal that names what to type."""


class Result(NamedTuple):
    """What became of a guess: works, redirected, dead end or misled; and what it said."""

    guess: Guess
    outcome: str
    told: str


def read() -> list[Guess]:
    """Returns the guesses of the file."""
    lines = FILE.read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Guess(*row, *[""] * (4 - len(row))) for row in rows]


def judged(guesses: Sequence[Guess]) -> Iterator[Result]:
    """Tries the guesses in this process, on a table `orders` of a simulated service."""
    with (
        Simulator(table="orders") as simulator,
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.object(watching, "watch", _planned),
    ):
        simulator.bulk(5)
        Path("aws").write_text(_PROFILE)
        own = {"WATCHER_CONFIG": os.devnull, "WATCHER_NO_FOLLOW": "1", "AWS_CONFIG_FILE": "aws"}
        with mock.patch.dict(os.environ, {**simulator.environment, **own}):
            for guess in guesses:
                yield _judged(guess)


def _judged(guess: Guess) -> Result:
    words = shlex.split(guess.words)
    status, told = _tried(words)
    if status != 0:
        asked = [each for each in shlex.split(guess.right) if each[:2] == "--"]
        named = [each for each in asked if each not in words and re.search(rf"{each}\b", told)]
        says = bool(guess.says) and guess.says in told
        return Result(guess, "redirected" if says or named else "dead end", told)
    right = shlex.split(guess.right)
    works = right == ["="] or (bool(right) and _meaning(words) == _meaning(right))
    return Result(guess, "works" if works else "misled", told)


def _tried(words: Sequence[str]) -> tuple[int, str]:
    """Returns the exit status of a line and what it printed on stderr; a watch is not begun."""
    out, err = io.StringIO(), io.StringIO()
    logger = logging.getLogger("watcher")
    before = logger.handlers[:], logger.level
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(list(words))
    finally:
        logger.handlers[:] = before[0]
        logger.setLevel(before[1])
    return status, err.getvalue()


def _meaning(words: Sequence[str]) -> tuple[object, ...]:
    """Returns what a line asks for, however it does."""
    name, rest = named(words)
    line = CommandLine(name, rest)
    if {"--help", "--version", "-h", "-V"} & set(rest):
        return name, *rest
    invocation = Invocation(line)
    return name, invocation.operands, invocation.values


def _planned(streams: Sequence[str], handlers: Sequence[Any], **values: Any) -> Totals:
    """Takes the place of `watch()`: the options and the tables' names are checked, no more."""
    values.pop("display", None)
    settings = WatchOptions(**values)
    wanted = settings.streams(streams)
    host = f'"https://dynamodb.{settings.region}.amazonaws.com"'
    if settings.region and (hint := unreachable_hint(host)):
        raise StreamError(f"can't reach {host}{hint}")
    if settings.endpoint_url is None:
        for arn in _found(wanted, Clients(settings.connection)):
            for each in handlers:
                each.begin(arn)
    return Totals()


def _found(wanted: WantedStreams, clients: Clients) -> list[str]:
    """Returns the streams' ARNs. Raises StreamError if all tables are missing, as a watch does."""
    missing: list[StreamError] = []
    found = []
    for name in wanted.names:
        try:
            found.append(clients.resolved(name))
        except StreamError as error:
            missing.append(error)
    if missing and len(missing) == len(wanted.names):
        raise missing[0]
    if not wanted.names:
        clients.all_of(wanted)
    return found


def guesses(_replay: Replay) -> Iterator[Row]:
    """Prints those that neither work nor name what to type."""
    results = list(judged(read()))
    outcomes = Counter(each.outcome for each in results)
    for each in results:
        if each.outcome in ("dead end", "misled"):
            print(f"{each.outcome}: {each.guess.words} ({each.guess.wants})", file=sys.stderr)
            print(f"  {''.join(each.told.splitlines()[-1:])}", file=sys.stderr)
    good = 100 * (outcomes["works"] + outcomes["redirected"]) / len(results)
    note = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    yield Row("guesses that work or are redirected", "of 100", [good], at_least=95, note=note)
    yield Row("guesses that do something else", "", [outcomes["misled"]], at_most=0)
