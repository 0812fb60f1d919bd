"""`--live` and `--live-web`: a view to sit in front of, on this terminal or in a browser."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watcher import safe_path
from watcher.cli import options
from watcher.cli.options import option
from watcher.declared import Parameter
from watcher.errors import UsageError
from watcher.version import install

if TYPE_CHECKING:
    from watcher.aws.model import Listing
    from watcher.delivery.handler import Handler
    from watcher.live.app import RunWatch
    from watcher.live.changes import ChangeLine
    from watcher.observability.watch_stats import Display, Totals
    from watcher.records.record import Record

logger = logging.getLogger("watcher")

_LIVE = option(
    "live",
    bool,
    False,
    Parameter(
        negative=(),
        group="output",
        help="a view to sit in front of: follow and pause, search, differences, an item's "
        "history, shards; ? shows its keys",
    ),
)
_LIVE_WEB = option(
    "live_web",
    str,
    None,
    Parameter(
        metavar="[HOST:]PORT",
        group="output",
        help="the same view in a browser; default host 127.0.0.1",
    ),
)
OPTIONS = (_LIVE, _LIVE_WEB)
ON_A_TERMINAL = _LIVE


def is_asked(values: Mapping[str, Any]) -> bool:
    """True if a command line asks for the view."""
    return bool(values["live"] or values["live_web"])


def is_viewer() -> bool:
    """True in the process that shows one browser the watch of another process."""
    return "TEXTUAL_WATCHER_DESCRIPTOR" in os.environ


def view(
    streams: Sequence[str],
    chosen: Sequence[str],
    watch: Callable[[Handler, Display], Totals],
    values: Mapping[str, Any],
) -> Totals | None:
    """Shows a watch until it ends; returns None if a browser showed it. Raises WatcherError.

    `chosen` are the flags of the handlers beside the view; `watch` takes the view's handler and its
    display; `values` has the AWS options.
    """
    _refuse_missing("textual")
    for flag in chosen:
        if flag.startswith("--print-"):
            raise UsageError(f"the view shows the changes itself: leave out {flag}", "live")
    if values.get("live_web"):
        _refuse_missing("textual_serve")
        from watcher.live.watch_process import WatchProcess
        from watcher.live.web import serve

        title = ", ".join(streams) or "all streams"
        return serve(
            WatchProcess(watch), viewer_words(sys.argv[1:]), values["live_web"], title=title
        )
    if not (sys.stdout.isatty() or "TEXTUAL_DRIVER" in os.environ):
        raise UsageError("it is for a terminal: standard output is none", "live")
    if is_viewer():
        from watcher.live.watch_process import DESCRIPTOR, run_shared

        shared = functools.partial(run_shared, int(os.environ[DESCRIPTOR]))
        return _shown(shared, streams, values)
    from watcher.live.watch_process import WatchProcess

    apart = WatchProcess(watch)
    try:
        return _shown(apart.run, streams, values)
    finally:
        apart.close()


def _shown(watch: RunWatch, streams: Sequence[str], values: Mapping[str, Any]) -> Totals | None:
    """Runs the view until the watch ends; returns its totals."""
    from watcher.live.app import LiveView, NotesHandler

    made = LiveView(watch, _history(values), _listings(streams, values))
    notes = NotesHandler(made)
    before = logger.handlers[:]
    logger.handlers[:] = [notes]
    try:
        made.stop_on_signals()
        totals = made.run()
    finally:
        made.join()
        logger.handlers[:] = before
        for record in notes.kept:
            logger.handle(record)
    if made.error is not None:
        raise made.error
    return totals


def _refuse_missing(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"this needs Textual: {install('live')}", "live")


def _history(values: Mapping[str, Any]) -> Callable[[ChangeLine], Iterable[Record]]:
    def history(entry: ChangeLine) -> Iterable[Record]:
        from watcher.time_machine.history import history as item_history

        hidden = options.redaction(values)
        named = [] if hidden is None else [*filter(hidden.hides, entry.record.key)]
        if named:
            raise UsageError(f"{named[0]} is redacted: an item's history is found by its whole key")
        aws = {name: values[name] for name in options.AWS}
        redact: dict[str, Any] = {name: values.get(name) for name in options.REDACT}
        return item_history(entry.shard_key.stream, key=entry.record.key, **redact, **aws)

    return history


def _listings(
    streams: Sequence[str], values: Mapping[str, Any]
) -> Callable[[set[str]], list[Listing]]:
    def listings(seen: set[str]) -> list[Listing]:
        from watcher.aws.connect import connect

        named = [each for each in streams if not set("*?[") & {*each}]
        found = [connect(each, options.connection(values)) for each in seen or named]
        return [client.list_shards(arn) for client, arn in found]

    return listings


def viewer_words(words: Sequence[str]) -> list[str]:
    """Returns the command that shows one browser the watch of this command line."""
    # The last one empties what a variable or a file of defaults may say.
    own = [*_without_web(words), "--live", "--live-web="]
    return [*safe_path.interpreter(), "-m", "watcher", *own]


def _without_web(words: Sequence[str]) -> list[str]:
    """Returns the words without `--live` and `--live-web`."""
    left, kept = iter(words), []
    for word in left:
        if word == "--live-web":
            next(left, None)
        elif not word.startswith("--live-web=") and word != "--live":
            kept.append(word)
    return kept
