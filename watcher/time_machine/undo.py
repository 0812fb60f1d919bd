"""Undoes changes of a table: puts the touched items back as they were before."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.errors import StreamError, UsageError
from watcher.records.filters import record_filter, words
from watcher.records.record import Record
from watcher.time_machine.item_keys import Identity, check_key_values
from watcher.time_machine.sources import Sources, TableHandle, open_table
from watcher.time_machine.times import past_time
from watcher.time_machine.undo_log import (
    LoggedWrites,
    RunHeader,
    UndoLog,
    entry_image,
    entry_item,
    logs_in,
    possible_writes,
    read_log,
)
from watcher.time_machine.undo_plan import UndoPlanner, UndoStep, total_units
from watcher.time_machine.write_back import StepResult, WriteBack

RATE = 100.0
"""Write capacity units a second by default."""


class Undo:
    """The plan of an undo; iterating gives its steps, and nothing is written before `apply`."""

    def __init__(
        self, steps: list[UndoStep], table: TableHandle, log: Path, own_changes: int
    ) -> None:
        self.steps = steps
        self.log = log
        """The default file for the log of `apply`."""
        self.own_changes = own_changes
        """How many chosen changes are left out because an earlier undo made them."""
        self._table = table

    def __iter__(self) -> Iterator[UndoStep]:
        return iter(self.steps)

    @property
    def conflicts(self) -> list[UndoStep]:
        """The steps that will be left alone, as far as the changes tell."""
        return [step for step in self.steps if step.conflict]

    @property
    def units(self) -> int:
        """The approximate cost in write capacity units."""
        return total_units(step for step in self.steps if not step.conflict)

    def apply(
        self,
        *,
        log: str | os.PathLike[str] | None = None,
        rate: float = RATE,
        force: bool = False,
    ) -> Generator[StepResult, None, None]:
        """Puts the items back one after the other, as the iteration goes on.

        Each is written only if it still is as the changes left it, compared whole; the others
        are conflicts, which `force` puts back as well. `rate` is in write capacity units a second.
        After a kill, the same undo goes on where it was. Raises UsageError (an unusable log),
        StreamError (no permission to write).
        """
        if not rate > 0:
            raise UsageError("give more than 0 write capacity units a second", "rate", f"{rate:g}")
        written = None
        if self.steps:
            written = UndoLog(Path(log or self.log), self._table.description, self._table.clock)
        return self._put_back(written, rate, force)

    def _put_back(
        self, written: UndoLog | None, rate: float, force: bool
    ) -> Generator[StepResult, None, None]:
        if written is None:
            return
        try:
            back = WriteBack(self._table, written, rate)
            yield from back.run(self.steps, force=force)
        finally:
            written.close()


def undo(
    *sources: str,
    start: str | datetime | None = None,
    until: str | datetime | None = None,
    key: Iterable[str] | Mapping[str, Any] | None = None,
    filters: Iterable[str | Mapping[str, Any]] | None = None,
    only: str | Iterable[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> Undo:
    """Plans to undo the changes of a table from `start` to `until` (None: now).

    Both seconds count. `key`, `filters` and `only` choose among the changes, as for `watch`;
    removals by time-to-live are undone only with `only="ttl"`. `sources` are a stream, and before
    it archives in DynamoDB's JSON for older changes. Without any, `log` names the log of an undo
    to revert.

    Raises UsageError (a time in the future, or before what the sources hold), StreamError (a stream
    without both images), DataLossError (changes in between are gone).
    """
    connection = AwsConfig(region, profile, endpoint_url)
    if not sources:
        if log is None:
            raise UsageError("name a stream, or the log of an undo that is to be taken back")
        return plan_revert(Path(log), connection)
    opened = Sources.named(sources, connection, strict=True)
    return plan_undo(opened, ChangeSelection(start, until, key, filters, only), log)


class ChangeSelection:
    """The choice of changes to undo. Raises UsageError."""

    def __init__(
        self,
        start: str | datetime | None,
        until: str | datetime | None = None,
        key: Iterable[str] | Mapping[str, Any] | None = None,
        filters: Iterable[str | Mapping[str, Any]] | None = None,
        only: str | Iterable[str] | None = None,
    ) -> None:
        if start is None:
            raise UsageError("give the time of the first change that is to be undone", "start")
        self.start = past_time(start, "start")
        self.until = None if until is None else past_time(until, "until")
        if self.until is not None and self.until < self.start:
            raise UsageError("it is before the beginning", "until", str(until))
        self.key = key
        self._test = record_filter(filters, key, only)
        self._ttl = "ttl" in words(only)

    def test(self, now: datetime) -> Callable[[Record], bool]:
        """Returns the test whether a change is chosen; `now` ends an open interval."""
        first = self.start.timestamp()
        end = (self.until or now).timestamp() + 1

        def chosen(record: Record) -> bool:
            created = record.wire.dynamodb.ApproximateCreationDateTime
            if created is None:
                raise StreamError("the changes have no times: they can't be chosen by them")
            if not first <= created < end or (record.expired_by_ttl and not self._ttl):
                return False
            return self._test is None or self._test(record)

        return chosen


def plan_undo(
    sources: Sources, choice: ChangeSelection, log: str | os.PathLike[str] | None = None
) -> Undo:
    """Plans to undo the chosen changes of these sources."""
    if sources.stream is None:
        raise UsageError("name the stream of the table that is to be put back")
    table = sources.stream.table
    if choice.key is not None:
        check_key_values(choice.key, table.description.types)
    sources.open(choice.start)
    sources.check_view_type()
    name = table_name(table.description.arn)
    path = Path(log) if log is not None else _default_log(name, choice, sources.time)
    logs = {*logs_in(path.parent), *([path] if path.exists() else ())}
    logged = LoggedWrites(sorted(logs), table.description.identity)
    planner = UndoPlanner(choice.test(sources.time), logged.claim)
    sources.reopen(logged.earliest_needed(choice.start))
    for record in sources.records():
        planner.on_record(record)
    sources.check_covers(choice.start)
    sources.check_not_ended()
    if not sources.exact:
        raise UsageError(
            "the archive holds plain JSON, which does not tell a set from a list nor binary from "
            "text: an item out of it can't be written back"
        )
    return Undo(planner.steps(), table, path, planner.own_changes)


def plan_revert(path: Path, connection: AwsConfig) -> Undo:
    """Plans to revert an undo's writes by its log. Raises UsageError."""
    logged = list(read_log(path))
    headers = [each for each in logged if isinstance(each, RunHeader)]
    if not headers:
        raise UsageError("it is no undo log", "log", str(path))
    table = open_table(headers[0].table, connection)
    if any(header.identity != table.description.identity for header in headers):
        text = f"table {headers[0].table} was deleted and made anew since"
        raise UsageError(text, "log", str(path))
    steps: dict[Identity, UndoStep] = {}
    for each in possible_writes(logged):
        old, new = entry_image(each.old), entry_image(each.new)
        step = steps.setdefault(
            entry_item(each), UndoStep(bytes(each.key), old, new, new, changes=0)
        )
        step.left = step.now = new
        step.changes += 1
    return Undo(list(steps.values()), table, path.with_suffix(f".back{path.suffix}"), 0)


def _default_log(name: str, choice: ChangeSelection, now: datetime) -> Path:
    """Returns the same path for the same interval, so that a killed undo goes on."""
    first, last = (
        f"{each.astimezone(UTC):%Y%m%dT%H%M%SZ}" for each in (choice.start, choice.until or now)
    )
    return Path(f"undo-{name}-{first}-{last}.jsonl")
