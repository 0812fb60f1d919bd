"""The rows of changes: each item's last state (SCD 1), or one for each version (SCD 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

import msgspec
import pyarrow as pa

from watcher.aws.model import WireItem
from watcher.errors import StreamError
from watcher.mirror.columns import MirrorColumns, item_of
from watcher.mirror.table import Merge
from watcher.records.diff import key_of
from watcher.records.record import Record

FROM: Final = "_valid_from"
TO: Final = "_valid_to"
NUMBER: Final = "_sequence_number"
AT: Final = "_at"
OWN: Final = (NUMBER, AT, FROM, TO)
"""The columns that are no attributes."""
COPIED: Final = "0" * 40
"""The sequence number of a copied item."""
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
    """The sequence number, in 40 digits: sorted as text it has the numbers' order."""
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
        record.sequence_number.zfill(len(COPIED)),
        record.event_name,
        keys,
        item_of(new) if new else None,
        item_of(old) if old else None,
    )


class Rows(ABC):
    """How items and changes become rows."""

    own: ClassVar[tuple[pa.Field, ...]]
    """The columns beside those of attributes."""

    def items(self, columns: MirrorColumns, items: Sequence[WireItem]) -> pa.Table:
        """Returns the rows of items that are there when it begins."""
        nulls = {field.name: pa.nulls(len(items), field.type) for field in self.own}
        copied = {NUMBER: pa.array([COPIED] * len(items), pa.string())}
        return pa.table({**columns.rows(items), **nulls, **copied})

    @abstractmethod
    def attributes(self, changes: Iterable[ItemChange]) -> Iterator[WireItem]:
        """Yields the items whose attributes need columns."""

    @abstractmethod
    def merge(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> Merge:
        """Returns how these changes, in their order, are merged into the table."""


class LastVersion(Rows):
    """A row for each item, as its last change has left it."""

    own = (pa.field(NUMBER, pa.string()), pa.field(AT, _TIME))

    def attributes(self, changes: Iterable[ItemChange]) -> Iterator[WireItem]:
        """Yields the new images."""
        return (change.new for change in changes if change.new is not None)

    def merge(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> Merge:
        """Returns the merge of each item's last change."""
        last = {change.key: change for change in changes}.values()
        made = columns.rows([change.new or change.keys for change in last])
        made[NUMBER] = pa.array([change.number for change in last], pa.string())
        made[AT] = pa.array([change.at for change in last], _TIME)
        every = _assignments(made)
        made[_GONE] = pa.array([change.new is None for change in last])
        return Merge(
            pa.table(made),
            _same_key(columns),
            lambda merger: (
                merger.when_matched_delete(f"source.{_GONE}")
                .when_matched_update(every)
                .when_not_matched_insert(every, f"NOT source.{_GONE}")
            ),
        )


class EveryVersion(Rows):
    """A row for each version of an item, with the time that it was valid.

    The items that are there at the beginning have rows without a beginning, and the number 0. The
    old image of the first change to one of them counts more than the copy, which may have been
    later.
    """

    own = (pa.field(NUMBER, pa.string()), pa.field(FROM, _TIME), pa.field(TO, _TIME))

    def attributes(self, changes: Iterable[ItemChange]) -> Iterator[WireItem]:
        """Yields all images."""
        for change in changes:
            yield from (item for item in (change.old, change.new) if item is not None)

    def merge(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> Merge:
        """Returns the merge of all changes, and for each item of the row that they end."""
        by_key: dict[str, list[ItemChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        rows = [row for each in by_key.values() for row in _versions(each)]
        made = columns.rows([row.item for row in rows])
        made[NUMBER] = pa.array([row.number for row in rows], pa.string())
        made[FROM] = pa.array([row.begins for row in rows], _TIME)
        made[TO] = pa.array([row.ends for row in rows], _TIME)
        every = _assignments(made)
        made[_CLOSES] = pa.array([row.closes for row in rows])
        made[_INSERTS] = pa.array([row.inserts for row in rows])
        made[_KNOWN] = pa.array([row.is_known for row in rows])
        is_copied = f"target.{NUMBER} = '{COPIED}'"
        return Merge(
            pa.table(made),
            f"{_same_key(columns)} AND source.{_CLOSES} AND target.{TO} IS NULL",
            lambda merger: (
                # The item was not there before its first change: the copy has seen it later.
                merger.when_matched_delete(f"source.{_INSERTS} AND {is_copied}")
                .when_matched_update(every, f"source.{_KNOWN} AND {is_copied}")
                .when_matched_update({f"`{TO}`": f"source.`{TO}`"})
                .when_not_matched_insert(every, f"NOT source.{_CLOSES} OR source.{_KNOWN}")
            ),
        )


def _assignments(names: Iterable[str]) -> dict[str, str]:
    return {f"`{name}`": f"source.`{name}`" for name in names}


def _same_key(columns: MirrorColumns) -> str:
    return " AND ".join(f"target.`{name}` = source.`{name}`" for name in columns.keys)


class _Version(NamedTuple):
    item: WireItem
    begins: datetime | None
    ends: datetime | None
    number: str
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
        COPIED,
        closes=True,
        inserts=first.kind == "INSERT",
        is_known=first.old is not None,
    )
    ends = [*(change.at for change in changes[1:]), None]
    for change, end in zip(changes, ends, strict=True):
        if change.new is not None:
            yield _Version(change.new, change.at, end, change.number)
