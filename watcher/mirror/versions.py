"""The rows of changes, and their MERGE: each item's last state (SCD 1), or each version (SCD 2).

A MERGE that is done again, as after a kill, changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from watcher.aws.arns import table_of
from watcher.aws.model import WireItem
from watcher.errors import StreamError, UsageError
from watcher.mirror.columns import MirrorColumns, item_of, redacted_types
from watcher.records.diff import key_of
from watcher.records.record import Record
from watcher.records.redaction import Redaction

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
    keys: WireItem = {**key_of(wire.Keys)}
    text = msgspec.json.encode(keys, order="sorted").decode()
    number = record.sequence_number.zfill(len(COPIED))
    new, old = bytes(wire.NewImage), bytes(wire.OldImage)
    at = record.created_at
    return made_change(text, record.event_name, keys, new=new, old=old, number=number, at=at)


def made_change(
    key: str,
    kind: str,
    keys: WireItem,
    *,
    new: bytes,
    old: bytes,
    number: str,
    at: datetime | None,
) -> ItemChange:
    """Returns a change; an image may be empty. Raises StreamError."""
    if at is None or (kind != "REMOVE" and not new):
        raise StreamError(f"a {kind} has no new image or no time")
    images = (item_of(image) if image else None for image in (new, old))
    return ItemChange(key, at, number, kind, keys, *images)


def refuse_view(view_type: str, *, history: bool) -> None:
    """Raises StreamError for a stream that lacks the images that a mirror needs."""
    if ("NEW_AND_OLD_IMAGES" if history else "NEW") not in view_type:
        raise StreamError(
            f"the stream's view type is {view_type}: set NEW_AND_OLD_IMAGES to "
            + ("keep every version" if history else "copy a table")
        )


class MirrorForm(NamedTuple):
    """The form of a mirror's table, by either engine."""

    rows: Rows
    columns: MirrorColumns
    made_as: Mapping[str, str]
    """What another table of this name would differ in."""

    @classmethod
    def of(
        cls,
        stream: str,
        types: Mapping[str, str],
        *,
        history: bool = False,
        columns: pa.Schema | None = None,
        item: str | None = None,
        redaction: Redaction | None = None,
    ) -> MirrorForm:
        """Returns the form for a stream, by the command's options; `types` are those of the keys.

        Raises UsageError.
        """
        rows: Rows = EveryVersion() if history else LastVersion()
        made_as = {
            "stream": stream,
            "history": str(history).lower(),
            "item": item or "",
            "redaction": "" if redaction is None else redaction.fingerprint,
        }
        types = redacted_types(types, redaction)
        return cls(rows, MirrorColumns(types, columns or pa.schema([]), rows.own, item), made_as)


def refuse_other(table: str, made_as: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raises UsageError for a table that was made of another one, or in another way."""
    for name, text in wanted.items():
        if (was := made_as.get(name, "")) != text:
            if name == "stream" and table_of(was) == table_of(text):
                raise UsageError(
                    f"{table} follows {was}, which another stream has replaced: mirror that ARN "
                    "for the rest of its changes, then copy the table to another place",
                    "to",
                )
            was, text = was or "none", text or "none"
            raise UsageError(f"{table} has the {name} {was}, not {text}: give another", "to")


class Clause(NamedTuple):
    """A clause of a MERGE: of matched rows, but for `insert`."""

    action: Literal["delete", "update", "insert"]
    condition: str
    """In SQL, of a row of the `target` and one of the `source`."""
    columns: Sequence[str] = ()
    """Those that it sets as the source has them."""


class Rows(ABC):
    """How items and changes become rows, and how those are merged into the table."""

    own: ClassVar[Sequence[pa.Field]]
    """The columns beside those of attributes."""
    flags: ClassVar[Sequence[pa.Field]]
    """The columns that only rows to merge have."""
    last_only: ClassVar[bool]
    """True where only the last change of an item counts."""

    def items(self, columns: MirrorColumns, items: Sequence[WireItem]) -> pa.Table:
        """Returns the rows of items that are there when it begins."""
        nulls = {field.name: pa.nulls(len(items), field.type) for field in self.own}
        copied = {NUMBER: pa.array([COPIED] * len(items), pa.string())}
        return pa.table({**columns.rows(items), **nulls, **copied})

    @abstractmethod
    def changes(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> pa.Table:
        """Returns the rows to merge: of all changes of some items, each item's in their order."""

    @abstractmethod
    def on(self, keys: Iterable[str]) -> str:
        """Returns the condition for a row of the `target` and one of the `source`."""

    @abstractmethod
    def clauses(self, names: Sequence[str]) -> Sequence[Clause]:
        """Returns what happens to rows with these columns; of each row, the first that fits."""


class LastVersion(Rows):
    """A row for each item, as its last change has left it."""

    own = (pa.field(NUMBER, pa.string()), pa.field(AT, _TIME))
    flags = (pa.field(_GONE, pa.bool_()),)
    last_only = True

    def changes(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> pa.Table:
        """Returns a row for each item's last change."""
        last = {change.key: change for change in changes}.values()
        made = columns.rows([change.new or change.keys for change in last])
        made[NUMBER] = pa.array([change.number for change in last], pa.string())
        made[AT] = pa.array([change.at for change in last], _TIME)
        made[_GONE] = pa.array([change.new is None for change in last], pa.bool_())
        return pa.table(made)

    def on(self, keys: Iterable[str]) -> str:
        """Returns the condition: the same key."""
        return same_key(keys)

    def clauses(self, names: Sequence[str]) -> Sequence[Clause]:
        """Returns the clauses: a change counts where it is newer than the row's."""
        is_newer = f"source.`{NUMBER}` > target.`{NUMBER}`"
        return (
            Clause("delete", f"{is_newer} AND source.`{_GONE}`"),
            Clause("update", is_newer, names),
            Clause("insert", f"NOT source.`{_GONE}`", names),
        )


class EveryVersion(Rows):
    """A row for each version of an item, with the time that it was valid.

    The items that are there at the beginning have rows without a beginning, and the number 0. The
    old image of the first change to one of them counts more than the copy, which may have been
    later.
    """

    own = (pa.field(NUMBER, pa.string()), pa.field(FROM, _TIME), pa.field(TO, _TIME))
    flags = (
        pa.field(_CLOSES, pa.string()),
        pa.field(_INSERTS, pa.bool_()),
        pa.field(_KNOWN, pa.bool_()),
    )
    last_only = False

    def changes(self, columns: MirrorColumns, changes: Sequence[ItemChange]) -> pa.Table:
        """Returns a row for each version, and for each item one that ends the version before."""
        by_key: dict[str, list[ItemChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        rows = [row for each in by_key.values() for row in _versions(each)]
        made = columns.rows([row.item for row in rows])
        made[NUMBER] = pa.array([row.number for row in rows], pa.string())
        made[FROM] = pa.array([row.begins for row in rows], _TIME)
        made[TO] = pa.array([row.ends for row in rows], _TIME)
        made[_CLOSES] = pa.array([row.closes for row in rows], pa.string())
        made[_INSERTS] = pa.array([row.inserts for row in rows], pa.bool_())
        made[_KNOWN] = pa.array([row.is_known for row in rows], pa.bool_())
        return pa.table(made)

    def on(self, keys: Iterable[str]) -> str:
        """Returns the condition: the same version, or one that the first change ends or has ended.

        One that is ended already is matched so that nothing is inserted, when it is done again.
        """
        is_ended = f"target.`{TO}` IS NULL OR target.`{TO}` = source.`{TO}`"
        return (
            f"{same_key(keys)} AND (target.`{NUMBER}` = source.`{NUMBER}` OR ("
            f"source.`{_CLOSES}` > target.`{NUMBER}` AND ({is_ended})))"
        )

    def clauses(self, names: Sequence[str]) -> Sequence[Clause]:
        """Returns the clauses: what has ended stays as it is."""
        is_open = f"target.`{TO}` IS NULL"
        is_copied = f"{is_open} AND target.`{NUMBER}` = '{COPIED}'"
        whole = [name for name in names if name != FROM]  # a copy made again has a beginning
        return (
            # The item was not there before its first change: the copy has seen it later.
            Clause("delete", f"{is_copied} AND source.`{_INSERTS}`"),
            Clause("update", f"{is_copied} AND source.`{_KNOWN}`", whole),
            Clause("update", f"{is_open} AND source.`{TO}` IS NOT NULL", [TO]),
            Clause("insert", f"source.`{_CLOSES}` IS NULL OR source.`{_KNOWN}`", names),
        )


def same_key(keys: Iterable[str]) -> str:
    """Returns the condition for a row of the `target` and one of the `source` with one key."""
    return " AND ".join(f"target.`{name}` = source.`{name}`" for name in keys)


class _Version(NamedTuple):
    item: WireItem
    begins: datetime | None
    ends: datetime | None
    number: str
    closes: str | None = None
    """The number of the first change, which ends the row that is open now, if there is one."""
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
        closes=first.number,
        inserts=first.kind == "INSERT",
        is_known=first.old is not None,
    )
    ends = [*(change.at for change in changes[1:]), None]
    for change, end in zip(changes, ends, strict=True):
        if change.new is not None:
            yield _Version(change.new, change.at, end, change.number)
