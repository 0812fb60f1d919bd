"""The rows of changes: each item's last state (SCD 1), or one for each version (SCD 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from watcher.aws.model import WireItem
from watcher.errors import StreamError
from watcher.mirror.columns import MirrorColumns, item_of
from watcher.mirror.table import Applied, Merge
from watcher.records.diff import key_of
from watcher.records.record import Record

FROM: Final = "_valid_from"
TO: Final = "_valid_to"
NUMBER: Final = "_sequence_number"
_TIME: Final = pa.timestamp("us", tz="UTC")
# Of the rows to merge, not of the table.
_GONE: Final = "__watcher_gone"
_CLOSES: Final = "__watcher_closes"
_INSERTS: Final = "__watcher_inserts"
_KNOWN: Final = "__watcher_known"


class ItemChange(NamedTuple):
    """A record, its images as items."""

    key: str
    at: datetime
    number: str
    kind: str
    keys: WireItem
    new: WireItem | None
    old: WireItem | None


def change_of(record: Record) -> ItemChange:
    """Returns a record as a change. Raises StreamError for one without what a mirror needs."""
    wire = record.wire.dynamodb
    new, old = (bytes(image) for image in (wire.NewImage, wire.OldImage))
    if record.created_at is None or (record.event_name != "REMOVE" and not new):
        raise StreamError(f"a {record.event_name} has no new image or no time")
    keys: WireItem = {**key_of(wire.Keys)}
    return ItemChange(
        msgspec.json.encode(keys, order="sorted").decode(),
        record.created_at,
        record.sequence_number,
        record.event_name,
        keys,
        item_of(new) if new else None,
        item_of(old) if old else None,
    )


class LastVersion:
    """A row for each item, as its last change has left it."""

    own: tuple[pa.Field, ...] = ()

    def items(self, columns: MirrorColumns, items: Sequence[WireItem]) -> pa.Table:
        """Returns the rows of items that are there when it begins."""
        return pa.table(columns.rows(items))

    def attributes(self, changes: Iterable[ItemChange]) -> Iterator[WireItem]:
        """Returns the items whose attributes need columns."""
        return (change.new for change in changes if change.new is not None)

    def merge(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> Merge:
        """Returns how these changes, in their order, are merged into the table."""
        last = {change.key: change for change in changes}.values()
        made = columns.rows([change.new or change.keys for change in last])
        made[_GONE] = pa.array([change.new is None for change in last])

        def apply(before: pa.Table, changed: pa.Table) -> Applied:
            indexes, _ = _matches(before, changed, columns.keys)
            there = changed.filter(pc.invert(changed[_GONE])).select(before.column_names)
            return Applied(pa.concat_tables([_without(before, indexes), there]))

        return Merge(pa.table(made), columns.keys, apply)


class EveryVersion:
    """A row for each version of an item, with the time that it was valid.

    The items that are there at the beginning have rows without a beginning, and without a number.
    The old image of the first change to one of them counts more than the copy, which may have been
    later.
    """

    own: tuple[pa.Field, ...] = (
        pa.field(FROM, _TIME),
        pa.field(TO, _TIME),
        pa.field(NUMBER, pa.string()),
    )

    def items(self, columns: MirrorColumns, items: Sequence[WireItem]) -> pa.Table:
        """Returns the rows of items that are there when it begins."""
        none = {field.name: pa.nulls(len(items), field.type) for field in self.own}
        return pa.table({**columns.rows(items), **none})

    def attributes(self, changes: Iterable[ItemChange]) -> Iterator[WireItem]:
        """Returns the items whose attributes need columns."""
        for change in changes:
            yield from (item for item in (change.old, change.new) if item is not None)

    def merge(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> Merge:
        """Returns how these changes, in their order, are merged into the table."""
        by_key: dict[str, list[ItemChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        rows = [row for each in by_key.values() for row in _versions(each)]
        made = columns.rows([row.item for row in rows])
        made[FROM] = pa.array([row.begins for row in rows], _TIME)
        made[TO] = pa.array([row.ends for row in rows], _TIME)
        made[NUMBER] = pa.array([row.number for row in rows], pa.string())
        made[_CLOSES] = pa.array([row.closes for row in rows])
        made[_INSERTS] = pa.array([row.inserts for row in rows])
        made[_KNOWN] = pa.array([row.is_known for row in rows])
        return Merge(
            pa.table(made),
            columns.keys,
            lambda before, changed: _applied(before, changed, columns.keys),
            has_ended=lambda rows: pc.is_valid(rows[TO]),
        )


def _applied(before: pa.Table, changed: pa.Table, keys: Sequence[str]) -> Applied:
    """Returns the valid rows of a part, and those that end."""
    names = before.column_names
    closing = changed.filter(changed[_CLOSES])
    new = changed.filter(pc.invert(changed[_CLOSES])).select(names)
    indexes, by = _matches(before, closing, keys)
    found, ends = before.take(indexes), closing.take(by)
    is_copied = pc.is_null(found[NUMBER])
    # The item was not there before its first change: the copy has seen it later.
    is_too_early = pc.and_(is_copied, ends[_INSERTS])
    is_known = pc.and_(is_copied, ends[_KNOWN])
    is_as_found = pc.invert(pc.or_(is_too_early, is_known))
    ended = found.set_column(names.index(TO), before.schema.field(TO), ends[TO])
    unseen = pa.array(sorted({*range(closing.num_rows)} - {*by.to_pylist()}), pa.int64())
    never_seen = closing.take(unseen)
    rows = [
        ended.filter(is_as_found),
        ends.filter(pc.and_(is_known, pc.invert(is_too_early))).select(names),
        never_seen.filter(never_seen[_KNOWN]).select(names),
        new.filter(pc.is_valid(new[TO])),
    ]
    valid = pa.concat_tables([_without(before, indexes), new.filter(pc.is_null(new[TO]))])
    return Applied(valid, pa.concat_tables(rows))


def _matches(rows: pa.Table, others: pa.Table, keys: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Returns the places of equal keys, in `rows` and in `others`."""
    by_key = {key: index for index, key in enumerate(_keys(others, keys))}
    possible = pc.is_in(rows[keys[0]], value_set=others[keys[0]].combine_chunks())
    indexes = pc.indices_nonzero(possible)
    found = [
        (index, by_key[key])
        for index, key in zip(indexes.to_pylist(), _keys(rows.take(indexes), keys), strict=True)
        if key in by_key
    ]
    ours, theirs = (pa.array([pair[side] for pair in found], pa.int64()) for side in (0, 1))
    return ours, theirs


def _keys(rows: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in keys), strict=True))


def _without(rows: pa.Table, indexes: pa.Array) -> pa.Table:
    every = pa.array(range(rows.num_rows), pa.int64())
    return rows.filter(pc.invert(pc.is_in(every, value_set=indexes)))


class _Version(NamedTuple):
    item: WireItem
    begins: datetime | None
    ends: datetime | None
    number: str | None
    closes: bool = False
    """True where it ends the row that is open now, if there is one."""
    inserts: bool = False
    """True where there was no item before."""
    is_known: bool = False
    """True where the item is that of before."""


def _versions(changes: Sequence[ItemChange]) -> Iterable[_Version]:
    """Yields the rows of one item's changes, and first what they tell of the one before."""
    first = changes[0]
    yield _Version(
        first.old or first.keys,
        None,
        first.at,
        None,
        closes=True,
        inserts=first.kind == "INSERT",
        is_known=first.old is not None,
    )
    ends = [*(change.at for change in changes[1:]), None]
    for change, end in zip(changes, ends, strict=True):
        if change.new is not None:
            yield _Version(change.new, change.at, end, change.number)
