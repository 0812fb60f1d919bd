"""Undoes changes of a table: puts the touched items back as they were before."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.errors import DataLossError, UsageError, refuse_unless_positive
from watcher.records.record import Record
from watcher.records.wire import (
    FilterPattern,
    KeyValues,
    Kind,
    WireRecord,
)
from watcher.streams.start_times import Moment
from watcher.time_machine.as_of import INEXACT_ARCHIVE
from watcher.time_machine.item_keys import Identity, check_key_values, identity
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.table import TableHandle, open_table
from watcher.time_machine.undo_plan import (
    CHANGED,
    NOT_WRITTEN,
    ChangeFilter,
    Image,
    RunHeader,
    UndoPlanner,
    UndoStep,
    images,
    is_same,
    note_reverted,
    read_plan,
    save_plan,
)
from watcher.time_machine.write_back import StepResult, WriteBack

WRITE_LIMIT = 100.0
"""Write capacity units a second by default."""


class Undo:
    """The plan of an undo; iterating gives its steps, and nothing is written before `apply`."""

    def __init__(
        self,
        header: RunHeader,
        steps: Iterable[UndoStep],
        path: Path,
        *,
        table: TableHandle,
        stream: Callable[[], StreamSource],
        is_saved: bool = False,
    ) -> None:
        self.header = header
        self.steps: list[UndoStep] = []
        """The items to put back, and those that are left alone as conflicts."""
        self.kept: list[UndoStep] = []
        """The other items that the changes touched: nothing is to be done for them."""
        for step in steps:
            (self.kept if step.kept else self.steps).append(step)
        self.path = path
        """The plan's file."""
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
        return sum(step.units for step in self.steps if not step.conflict)

    def save(self) -> Path:
        """Writes the plan to its file, which `undo(plan=…)` opens. Raises UsageError."""
        if not self._is_saved:
            save_plan(self.path, self.header, self.steps)
            self._is_saved = True
        return self.path

    def revert(self, to: Path | None = None) -> Undo:
        """Plans to take back what this plan has written. Raises UsageError."""
        if self.header.reverts:
            text = f"{self.path} takes back {self.header.reverts}, which can be applied again"
            raise UsageError(text)
        turn = self._turn() + 1
        reverts = str(self.path.absolute())
        header = msgspec.structs.replace(self.header, reverts=reverts, turn=turn)
        steps = [
            msgspec.structs.replace(step, before=step.now, now=step.before, conflict="", kept="")
            for step in self.steps
        ]
        path = to or _free_path(self.path.stem + ".back", self.path)
        made = Undo(header, steps, path, table=self._table, stream=self._stream)
        written = 2 * turn - 1  # it was written, and taken back, each time before
        for step, moves in made._moves():
            if moves is None or moves > written:
                step.conflict = CHANGED
            elif moves < written:
                step.kept = NOT_WRITTEN
        made = Undo(header, steps, path, table=self._table, stream=self._stream)
        if not made.steps:
            raise UsageError(f"the plan {self.path} wrote nothing")
        return made

    def apply(self, *, write_limit: float = WRITE_LIMIT) -> Generator[StepResult, None, None]:
        """Puts the items back one after the other, as the iteration goes on.

        Each is written only if nobody has changed it since the plan was made; the others are
        conflicts. `write_limit` is in capacity units a second. After a kill, it can be applied
        again: what is put back already is left as it is. Raises UsageError (an unusable file,
        changes that left the stream), StreamError (no permission).
        """
        refuse_unless_positive("write_limit", write_limit, "capacity units a second")
        if not self.steps:
            return
        self.save()
        turn = self._turn()
        most = 2 * turn + (not self.header.reverts)
        if self.header.reverts:
            note_reverted(Path(self.header.reverts), turn)
        for step, moves in self._moves():
            if moves is None or moves > most:
                step.conflict = step.conflict or CHANGED
        yield from WriteBack(self._table, write_limit).run(self.steps)

    def _turn(self) -> int:
        """Returns how often what the plan wrote was taken back, as its file has it."""
        return read_plan(self.path)[0].turn if self._is_saved else self.header.turn

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
                    is_own = _is_between(*images(record), step)
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


def _is_between(old: Image, new: Image, step: UndoStep) -> bool:
    """Returns True for a change as a plan makes it, or one that takes it back."""
    return (is_same(old, step.now) and is_same(new, step.before)) or (
        is_same(old, step.before) and is_same(new, step.now)
    )


def undo(
    *sources: str,
    start: Moment | None = None,
    until: Moment | None = None,
    key: KeyValues | None = None,
    filters: Iterable[FilterPattern] | None = None,
    only: Kind | Iterable[Kind] | None = None,
    grep: str | None = None,
    plan: str | os.PathLike[str] | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> Undo:
    """Plans to undo the changes of a table from `start` to `until` (None: now).

    Both seconds count. `key`, `filters`, `only` and `grep` choose among the changes, as for
    `watch`; removals by time-to-live are undone only with `only="ttl"`. `sources` are a stream, and
    before it archives in DynamoDB's JSON for older changes. `plan` names the plan's new file;
    without sources, that of a plan to go on with, or to revert.

    Raises UsageError (a time in the future, or before what the sources hold), StreamError (a stream
    without both images), DataLossError (changes in between are gone).
    """
    connection = AwsConfig(region, profile, endpoint_url)
    plan_path = None if plan is None else Path(plan)
    if not sources:
        if plan_path is None:
            raise UsageError("name a stream, or a plan")
        return open_plan(plan_path, connection)
    changes = ChangeFilter(start, until, key=key, filters=filters, only=only, grep=grep)
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
    planner = UndoPlanner(partial(changes.matches, now=made), spares_ttl=not changes.undoes_ttl)
    for record in sources.records():
        planner.on_record(record)
    sources.check_covers(changes.start)
    sources.check_not_ended()
    if not sources.exact:
        raise UsageError(INEXACT_ARCHIVE)
    until = changes.until or made.replace(microsecond=0)
    about = table.description
    header = RunHeader(about.arn, about.identity, made, changes.start, until)
    stream = sources.stream
    return Undo(header, planner.steps(), path, table=table, stream=lambda: stream)


def open_plan(path: Path, connection: AwsConfig, stream: StreamSource | None = None) -> Undo:
    """Opens a saved plan; `stream` is its table's, where that is open.

    Raises UsageError for another file, and where the table was deleted and created again.
    """
    header, steps = read_plan(path)
    table = stream.table if stream else open_table(header.table, connection)
    if table.description.identity != header.identity:
        raise UsageError(f"{path}: table {header.table} was deleted and created again since")

    def opened() -> StreamSource:
        return stream or StreamSource.connected(header.table, connection)

    return Undo(header, steps, path, table=table, stream=opened, is_saved=True)


def _free_path(stem: str, beside: Path = Path("plan")) -> Path:
    """Returns a path that no file has."""
    for number in count(1):
        path = beside.with_name(f"{stem}{f'-{number}' * (number > 1)}.jsonl")
        if not path.exists():
            return path
    raise AssertionError
