"""`--print-summary --who`: the changes of a time that has passed, each with who made it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from watcher.aws.arns import account_of
from watcher.cli import options
from watcher.delivery.handler import Handler
from watcher.errors import UsageError
from watcher.formatting.differences import summary_line
from watcher.formatting.terminal import write_text
from watcher.formatting.text import counted
from watcher.options import WatchOptions
from watcher.records.record import Record
from watcher.time_machine.callers import Callers, ChangeKey
from watcher.time_machine.trail import Trail
from watcher.watching import watch

logger = logging.getLogger("watcher")

_REFUSED = ("checkpoint", "tail", "max_records", "max_seconds", "snapshot")


def refuse_unless_past(chosen: Sequence[str], values: Mapping[str, Any]) -> None:
    """Raises UsageError for a watch whose callers can't be known."""
    if [*chosen] != ["--print-summary"]:
        raise UsageError("of a watch's handlers it goes with --print-summary, alone", "who")
    if values["follow"] and values["until"] is None:
        text = "calls are known some minutes later: add --no-follow, or --until"
        raise UsageError(text, "who")
    for name in _REFUSED:
        if values[name]:
            raise UsageError(f"not with {options.flag(name)}: all is read, then printed", "who")


class PastSummary:
    """Reads all changes, and prints those that pass the filters, each with its caller."""

    def __init__(self, trail: Trail, values: Mapping[str, Any]) -> None:
        self._trail = trail
        self._callers = Callers()
        self._is_wanted = options.record_filter(values)
        self._redaction = options.redaction(values)
        self._lines: list[tuple[str, ChangeKey]] = []
        self._filtered = 0

    def add(self, record: Record) -> None:
        """Adds a change; filtered ones count too: a call made one change only."""
        key = self._callers.add_change(record)
        if self._is_wanted is None or self._is_wanted(record):
            shown = record if self._redaction is None else self._redaction(record)
            self._lines.append((summary_line(shown), key))
        else:
            self._filtered += 1

    def write(self) -> None:
        """Reads the trail and prints the changes with their callers."""
        reading = self._trail.read(self._callers)
        for line, key in self._lines:
            answer = self._callers.answer(key, reading.incomplete)
            write_text(f"{line}   {answer.text(account_of(key.table))}\n")
        filtered = f", {self._filtered} filtered out" * bool(self._filtered)
        logger.info(f"Done: {counted(len(self._lines), 'record')}{filtered}")


def run(streams: Sequence[str], trail: Trail, values: Mapping[str, Any]) -> int:
    """Watches to the end, then prints each change with its caller."""
    summary = PastSummary(trail, values)
    settings = {
        **options.values(WatchOptions, values),
        **dict.fromkeys((*options.FILTERS, *options.REDACT)),
    }
    watch(streams, [Handler("print-summary", summary.add)], **settings)
    summary.write()
    return 0
