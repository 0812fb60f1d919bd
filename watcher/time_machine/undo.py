"""Undoes changes of a table: puts the touched items back as they were before."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.errors import DataLossError, UsageError, refuse_bad_limit
from watcher.records.record import Record
from watcher.records.wire import (
    FilterPattern,
    KeyValues,
    Kind,
    WireRecord,
)
from watcher.streams.start_times import Moment
from watcher.time_machine.item_keys import Identity, check_key_values, identity, images_of
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.table import TableHandle, open_table
from watcher.time_machine.undo_plan import (
    CHANGED,
    NOT_WRITTEN,
    ChangeFilter,
    RunHeader,
    UndoPlanner,
    UndoStep,
    caller_filter,
    is_same,
    note_reverted,
    read_plan,
    save_plan,
    total_units,
)
from watcher.time_machine.write_back import StepResult, WriteBack

logger = logging.getLogger("watcher")

WRITE_LIMIT = 100.0
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
        reverted: int = 0,
    ) -> None:
        self.header = header
        self.steps = [step for step in steps if not step.kept]
        """The items to put back, and those that are left alone as conflicts."""
        self.kept = [step for step in steps if step.kept]
        """The other items that the changes touched: nothing is to be done for them."""
        self.path = path
        """The plan's file."""
        self._table = table
        self._stream = stream
        self._is_saved = is_saved
        self._reverted = reverted

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
        self, *, write_limit: float = WRITE_LIMIT, force: bool = False
    ) -> Generator[StepResult, None, None]:
        """Puts the items back one after the other, as the iteration goes on.

        Each is written only if nobody has changed it since the plan was made; the others are
        conflicts, which `force` puts back as well. `write_limit` is in capacity
        units a second. After a kill, it can be applied again: what is put back already is left as
        it is. Raises UsageError (an unusable file, changes that left the stream), StreamError (no
        permission).
        """
        refuse_bad_limit("write_limit", write_limit)
        if not self.steps:
            return
        self.save()
        turn = self.header.turn
        # Each time that it was written, and taken back.
        most = 2 * turn if turn else 2 * self._reverted + 1
        for step, moves in self._moves():
            if moves is None or moves > most:
                step.conflict = step.conflict or CHANGED
        if turn:
            note_reverted(Path(self.header.reverts), turn)
        yield from WriteBack(self._table, write_limit).run(self.steps, force=force)

    def _moves(self) -> Iterator[tuple[UndoStep, int | None]]:
        """Yields how often each item was written by this plan or a revert since it was made.

        None for one that somebody else has changed. An item of no known number is left out.
        """
        steps = {identity(step.key): step for step in self.steps if step.seen}
        moves: dict[Identity, int | None] = dict.fromkeys(steps, 0)
        try:
            for record in self._changes_of(steps) if steps else ():
                item = identity(record.wire.dynamodb.Keys)
                step, before = steps[item], moves[item]
                if int(record.sequence_number) > int(step.seen):
                    is_own = _is_between(images_of(record, "undo changes"), step)
                    moves[item] = before + 1 if before is not None and is_own else None
        except (UsageError, DataLossError) as error:
            raise UsageError(
                f"what was changed since the plan {self.path} was made is not known ({error}): "
                "make a new one"
            ) from None
        return ((steps[item], found) for item, found in moves.items())

    def _changes_of(self, items: Mapping[Identity, UndoStep]) -> Iterator[Record]:
        """Yields the changes of these items since the plan was made."""

        def matching_indexes(records: Sequence[WireRecord]) -> list[int]:
            return [at for at, each in enumerate(records) if identity(each.dynamodb.Keys) in items]

        # Stamps may be whole minutes.
        start = self.header.made.replace(second=0, microsecond=0) - timedelta(minutes=1)
        start = max(start, self.header.start or start)
        sources = Sources([], self._stream(), strict=True)
        sources.open(start, matching_indexes)
        for record in sources.records():
            if identity(record.wire.dynamodb.Keys) in items:
                yield record
        sources.check_covers(start)


def _is_between(images: tuple[bytes | None, bytes | None], step: UndoStep) -> bool:
    """Returns True for a change as a plan makes it, or one that takes it back."""
    old, new = images
    return (is_same(old, step.now) and is_same(new, step.before)) or (
        is_same(old, step.before) and is_same(new, step.now)
    )


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
    sources.open(changes.start, tells_expiry=True)
    sources.check_view_type()
    made = sources.time
    path = to or _free_path(f"undo-{table_name(table.description.arn)}-{made:%Y%m%dT%H%M%SZ}")
    planner = UndoPlanner(changes.matcher(sources, made), spares_ttl=not changes.undoes_ttl)
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


def open_plan(path: Path, connection: AwsConfig, stream: StreamSource | None = None) -> Undo:
    """Opens a saved plan; `stream` is its table's, where that is open. Raises UsageError."""
    header, steps, reverted = read_plan(path, "apply")
    table, opened = _opened(header, connection, stream, "apply", path)
    return Undo(header, steps, path, table=table, stream=opened, is_saved=True, reverted=reverted)


def plan_revert(
    path: Path,
    connection: AwsConfig,
    to: Path | None = None,
    stream: StreamSource | None = None,
) -> Undo:
    """Plans to revert what the plan of this file has written. Raises UsageError."""
    header = read_plan(path, "revert").header
    return _revert(path, *_opened(header, connection, stream, "revert", path), to)


def _opened(
    header: RunHeader,
    connection: AwsConfig,
    stream: StreamSource | None,
    option: str,
    path: Path,
) -> tuple[TableHandle, Callable[[], StreamSource]]:
    """Opens a plan's table. Raises UsageError if it was deleted and created again."""
    table = stream.table if stream else open_table(header.table, connection)
    if table.description.identity != header.identity:
        text = f"table {header.table} was deleted and created again since"
        raise UsageError(text, option, str(path))
    if stream is not None:
        return table, lambda: stream
    return table, partial(StreamSource.connected, header.table, connection)


def _revert(
    path: Path, table: TableHandle, stream: Callable[[], StreamSource], to: Path | None
) -> Undo:
    header, planned, reverted = read_plan(path, "revert")
    if header.reverts:
        text = f"it takes back {header.reverts}, which can be applied again"
        raise UsageError(text, "revert", str(path))
    header = msgspec.structs.replace(header, reverts=str(path.absolute()), turn=reverted + 1)
    steps = [
        msgspec.structs.replace(step, before=step.now, now=step.before, conflict="")
        for step in planned
    ]
    made = Undo(
        header,
        steps,
        to or _free_path(path.stem + ".back", path),
        table=table,
        stream=stream,
    )
    written = 2 * reverted + 1
    for step, moves in made._moves():
        if moves is not None and moves < written:
            step.kept = NOT_WRITTEN
        elif moves != written:
            step.conflict = CHANGED
    made.kept = [step for step in steps if step.kept]
    made.steps = [step for step in steps if not step.kept]
    if not made.steps:
        raise UsageError("this plan wrote nothing", "revert", str(path))
    return made


def _free_path(stem: str, beside: Path = Path("plan")) -> Path:
    """Returns a path that no file has."""
    for number in count(1):
        path = beside.with_name(f"{stem}{f'-{number}' * (number > 1)}.jsonl")
        if not path.exists():
            return path
    raise AssertionError
