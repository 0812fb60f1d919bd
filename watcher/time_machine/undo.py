"""Undoes changes of a table: puts the touched items back as they were before."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.records.record import Record
from watcher.records.wire import (
    FilterPattern,
    KeyValues,
    Kind,
    WireFilter,
    WireRecord,
    is_by_ttl,
    is_replicated_expiry,
)
from watcher.streams.start_times import Moment
from watcher.time_machine.item_keys import Identity, check_key_values, identity
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.table import TableHandle, open_table
from watcher.time_machine.undo_log import (
    Line,
    LoggedWrites,
    Outcome,
    PlannedStep,
    RunHeader,
    StepResult,
    UndoLog,
    WriteBack,
    WriteEntry,
    entry_image,
    entry_item,
    logs_in,
    possible_writes,
    read_log,
    restored_items,
    save_plan,
    writes_under_way,
)
from watcher.time_machine.undo_plan import (
    DONE,
    UNKNOWN,
    ChangeFilter,
    UndoPlanner,
    UndoStep,
    caller_filter,
    total_units,
)

logger = logging.getLogger("watcher")

RATE = 100.0
"""Write capacity units a second by default."""


class Undo:
    """The plan of an undo; iterating gives its steps, and nothing is written before `apply`."""

    def __init__(
        self,
        header: RunHeader,
        steps: list[UndoStep],
        path: Path,
        *,
        table: TableHandle,
        stream: Callable[[], StreamSource],
        is_saved: bool = False,
    ) -> None:
        self.header = header
        self.steps = [step for step in steps if not step.kept]
        """The items to put back, and those that are left alone as conflicts."""
        self.kept = [step for step in steps if step.kept]
        """The other items that the changes touched: nothing is to be done for them."""
        self.path = path
        """The plan's file, where `apply` notes what it writes."""
        self._table = table
        self._stream = stream
        self._is_saved = is_saved

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

    def save(self) -> Path:
        """Writes the plan to its file, which `undo(plan=…)` opens. Raises UsageError."""
        if not self._is_saved:
            save_plan(self.path, self.header, self.steps)
            self._is_saved = True
        return self.path

    def revert(self) -> Undo:
        """Plans to take back what this plan has written. Raises UsageError."""
        return _revert(self.path, self._table, self._stream, None)

    def apply(
        self, *, rate: float = RATE, force: bool = False
    ) -> Generator[StepResult, None, None]:
        """Puts the items back one after the other, as the iteration goes on.

        Each is written only if it still is as the changes left it, compared whole; the others
        are conflicts, which `force` puts back as well. `rate` is in write capacity units a second.
        After a kill, the plan in the file goes on where it was. Raises UsageError (an unusable
        file), StreamError (no permission to write).
        """
        if not rate > 0:
            raise UsageError("give more than 0 write capacity units a second", "rate", f"{rate:g}")
        written = None
        if self.steps:
            written = UndoLog(self.save(), self._table.description, self._table.clock)
        return self._put_back(written, rate, force)

    def _put_back(
        self, written: UndoLog | None, rate: float, force: bool
    ) -> Generator[StepResult, None, None]:
        if written is None:
            return
        try:
            done = restored_items(written.earlier)
            done |= self._found_done(written, done)
            to_write = []
            for step in self.steps:
                if identity(step.key) in done:
                    step.kept = DONE
                    yield StepResult(step, Outcome.ALREADY)
                else:
                    to_write.append(step)
            yield from WriteBack(self._table, written, rate).run(to_write, force=force)
        finally:
            written.close()

    def _found_done(self, written: UndoLog, done: Container[Identity]) -> set[Identity]:
        """Asks the stream which of the writes that were under way at a kill were made.

        Whoever has changed such an item since has meant it.
        """
        by_item = {entry_item(each): each for each in writes_under_way(written.earlier)}
        entries = {item: each for item, each in by_item.items() if item not in done}
        if not entries:
            return set()
        logged = LoggedWrites([self.path], self.header.identity)
        try:
            for record in _changes_of(entries, self._stream(), self.header.start):
                item, change = identity(record.wire.dynamodb.Keys), record.wire.dynamodb
                old, new = bytes(change.OldImage) or None, bytes(change.NewImage) or None
                if item in entries and logged.claim(item, old, new, record.created_at):
                    written.log_result(entries.pop(item).number, True, None)
        except (StreamError, UsageError, DataLossError) as error:
            for step in self.steps:
                if identity(step.key) in entries:
                    step.conflict = f"{UNKNOWN}: {error}"
        return by_item.keys() - entries.keys()


def _changes_of(
    entries: Mapping[Identity, WriteEntry], stream: StreamSource, first: datetime | None
) -> Iterator[Record]:
    """Yields the changes of these items since their writes were logged."""
    start = min(each.at for each in entries.values() if each.at is not None)
    # Stamps may be whole minutes, and by another clock.
    start = start.replace(second=0, microsecond=0) - timedelta(minutes=1)
    start = max(start, first or start)

    def matching_indexes(records: Sequence[WireRecord]) -> list[int]:
        return [at for at, each in enumerate(records) if identity(each.dynamodb.Keys) in entries]

    sources = Sources([], stream, strict=True)
    sources.open(start, matching_indexes)
    yield from sources.records()
    sources.check_covers(start)


def undo(  # noqa: PLR0913 (its parameters are the options)
    *sources: str,
    start: Moment | None = None,
    until: Moment | None = None,
    key: KeyValues | None = None,
    filters: Iterable[FilterPattern] | None = None,
    only: Kind | Iterable[Kind] | None = None,
    grep: str | None = None,
    who: str | None = None,
    only_by: str | Iterable[str] | None = None,
    plan: str | os.PathLike[str] | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> Undo:
    """Plans to undo the changes of a table from `start` to `until` (None: now).

    Both seconds count. `key`, `filters`, `only` and `grep` choose among the changes, as for
    `watch`; removals by time-to-live are undone only with `only="ttl"`. `only_by` chooses what is
    certainly by a caller (`role/release-112`), as CloudTrail's logs tell it in the folder, or at
    the `s3://` URL, `who`. `sources` are a stream, and before it archives in
    DynamoDB's JSON for older changes. `plan` names the plan's new file; without sources, that of a
    plan to go on with, or to revert.

    Raises UsageError (a time in the future, or before what the sources hold), StreamError (a stream
    without both images), DataLossError (changes in between are gone).
    """
    connection = AwsConfig(region, profile, endpoint_url)
    plan_path = None if plan is None else Path(plan)
    if not sources:
        if plan_path is None:
            raise UsageError("name a stream, or a plan")
        return open_plan(plan_path, connection)
    by = caller_filter(only_by, who, AwsConfig(region, profile))
    changes = ChangeFilter(start, until, key=key, filters=filters, only=only, grep=grep, by=by)
    return plan_undo(Sources.named(sources, connection, strict=True), changes, plan_path)


def plan_undo(sources: Sources, changes: ChangeFilter, to: Path | None = None) -> Undo:
    """Plans to undo the matching changes of these sources."""
    if sources.stream is None:
        raise UsageError("name the stream of the table to restore")
    table = sources.stream.table
    if changes.key is not None:
        check_key_values(changes.key, table.description.types)
    sources.open(changes.start)
    sources.check_view_type()
    made = sources.time
    path = to or _free_path(f"undo-{table_name(table.description.arn)}-{made:%Y%m%dT%H%M%SZ}")
    logged = LoggedWrites(logs_in(path.parent), table.description.identity)
    is_ttl = _ttl_filter(table)

    def is_spared(record: Record) -> bool:
        return not changes.undoes_ttl and is_ttl(record.wire)

    matches = changes.matcher(sources, made, is_ttl)
    planner = UndoPlanner(matches, is_spared, logged.claim, changes.start)
    sources.reopen(logged.earliest_needed(changes.start))
    for record in sources.records():
        planner.on_record(record)
    sources.check_covers(changes.start)
    sources.check_not_ended()
    if not sources.exact:
        raise UsageError(
            "the archive holds plain JSON, which does not tell a set from a list nor binary from "
            "text: an item out of it can't be written back"
        )
    if changes.by is not None:
        changes.by.log()
    until = changes.until or made.replace(microsecond=0)
    about = table.description
    header = RunHeader(about.arn, about.identity, made, changes.start, until)
    stream = sources.stream
    return Undo(header, planner.steps(), path, table=table, stream=lambda: stream)


def _ttl_filter(table: TableHandle) -> WireFilter:
    """Returns the filter of removals by time-to-live, which a replica's stream does not name."""
    attribute = None
    if table.description.is_replicated:
        try:
            attribute = table.tables.ttl_attribute(table.name)
        except StreamError as error:
            logger.warning(
                "Items that expired in another region pass for ones that somebody removed: it "
                f"takes dynamodb:DescribeTimeToLive to tell them ({error})"
            )
    if attribute is None:
        return is_by_ttl
    name = attribute
    return lambda record: is_by_ttl(record) or is_replicated_expiry(record, name)


def open_plan(path: Path, connection: AwsConfig, stream: StreamSource | None = None) -> Undo:
    """Opens a saved plan; `stream` is its table's, where that is open. Raises UsageError."""
    saved = list(read_log(path, "apply"))
    steps = [each.step() for each in saved if isinstance(each, PlannedStep)]
    header = _header(saved, path, "apply")
    if not steps:
        raise UsageError("it holds no plan; undo STREAM --from … makes one", "apply", str(path))
    table = stream.table if stream else open_table(header.table, connection)
    _refuse_other_table(header, table, "apply", path)
    connected = partial(StreamSource.connected, header.table, connection)
    return Undo(
        header,
        steps,
        path,
        table=table,
        stream=(lambda: stream) if stream else connected,
        is_saved=True,
    )


def plan_revert(path: Path, connection: AwsConfig, to: Path | None = None) -> Undo:
    """Plans to revert what the plan of this file has written. Raises UsageError."""
    header = _header(read_log(path), path, "revert")
    table = open_table(header.table, connection)
    _refuse_other_table(header, table, "revert", path)
    stream = partial(StreamSource.connected, header.table, connection)
    return _revert(path, table, stream, to)


def _revert(
    path: Path, table: TableHandle, stream: Callable[[], StreamSource], to: Path | None
) -> Undo:
    steps: dict[Identity, UndoStep] = {}
    for each in possible_writes(read_log(path)):
        old, new = entry_image(each.old), entry_image(each.new)
        step = steps.setdefault(
            entry_item(each), UndoStep(bytes(each.key), old, new, new, changes=0)
        )
        step.after = step.now = new
        step.changes += 1
    if not steps:
        raise UsageError("this plan wrote nothing", "revert", str(path))
    made = datetime.fromtimestamp(table.clock.time(), UTC)
    header = RunHeader(table.description.arn, table.description.identity, made)
    back_path = to or _free_path(path.stem + ".back", path)
    return Undo(header, list(steps.values()), back_path, table=table, stream=stream)


def _header(lines: Iterable[Line], path: Path, option: str) -> RunHeader:
    for each in lines:
        if isinstance(each, RunHeader):
            return each
    raise UsageError("it is not an undo plan", option, str(path))


def _refuse_other_table(header: RunHeader, table: TableHandle, option: str, path: Path) -> None:
    if table.description.identity != header.identity:
        text = f"table {header.table} was deleted and created again since"
        raise UsageError(text, option, str(path))


def _free_path(stem: str, beside: Path = Path("plan")) -> Path:
    """Returns a path that no file has."""
    for number in count(1):
        path = beside.with_name(f"{stem}{f'-{number}' * (number > 1)}.jsonl")
        if not path.exists():
            return path
    raise AssertionError
