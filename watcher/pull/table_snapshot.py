"""Reads a table's items as SNAPSHOT records, page by page, in turn with its changes.

The rule, for each item: a SNAPSHOT is never older than a change delivered before it. For that, no
change is delivered during the read of a page, and all of a page comes before the next change. A
page of a large table is one page of each of its segments, read side by side. A change delivered
earlier was made earlier, so that a consistent read sees it. Nothing has to be remembered. Changes
that a SNAPSHOT already shows may follow it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from watcher.aws.json_text import read
from watcher.aws.model import AfterSequence, ShardKey, TrimHorizon
from watcher.aws.tables import MOST_SEGMENTS
from watcher.clock import CLOCK, Clock
from watcher.errors import TransientError, UsageError
from watcher.pull.call_pool import CallPool
from watcher.records.diff import to_number
from watcher.records.page import decode
from watcher.records.wire import SNAPSHOT
from watcher.streams.checkpoint_format import TokenSegment, TokenSnapshot
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page

if TYPE_CHECKING:
    from watcher.aws.tables import Description, Key, ReadPace
    from watcher.records.filters import RecordFilter
    from watcher.records.redaction import Redaction

SHARD_ID = "snapshot"
"""A SNAPSHOT record's shard id."""

_item = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder(dict[str, str])


class Items(Protocol):
    """A table's items; see `aws.tables.TableItems`. Raises StreamError, TransientError."""

    @property
    def in_threads(self) -> bool:
        """True if pages may be read in several threads."""

    @property
    def time(self) -> datetime | None:
        """The time as of which all items are: later changes follow them.

        None if each page shows the table at the time of its request.
        """

    @property
    def present(self) -> Items:
        """The present items: these, or those of an export's table."""

    def describe(self) -> Description:
        """Returns the table's current description."""

    def page(
        self, after: Key | None, segment: int, segments: int, within: Key | None = None
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        """Returns a segment's items behind this key, by a consistent read, and the last one's key.

        `within` a whole key, or the partition's, it reads no other items. Each item is the wire's
        JSON; on the last page, the key is None. The number is that of the consumed read units.
        """


class TableSnapshot:
    """Reads a table's items page by page; resumes from its `stored` progress."""

    def __init__(
        self,
        arn: str,
        items: Items,
        stored: TokenSnapshot | None = None,
        clock: Clock = CLOCK,
        *,
        chosen: RecordFilter | None = None,
        redaction: Redaction | None = None,
        pace: ReadPace,
        calls: CallPool,
    ) -> None:
        """Leaves out the items that are not `chosen`.

        Refuses keys that the `redaction` hides, as a token would show them.
        """
        self.shard_key = ShardKey(arn, SHARD_ID)
        self.shard = TrackedShard(SHARD_ID, None, TrimHorizon())
        """The items as a shard; its position is behind the last delivered record."""
        self._table = items
        self._clock = clock
        self._chosen = chosen
        self._redaction = redaction
        self._pace = pace
        self._calls = calls
        self._described: Description | None = None
        self._names: list[str] = []
        self._segments = 1
        self._within: list[Key] = []  # each segment's key, where no scan is necessary
        # The progress before the current page, its items' segments and keys, and the progress
        # behind it.
        self._before = stored or TokenSnapshot()
        self._scanned = self._before.items
        self._keys: list[tuple[int, Key]] = []
        self._after = self._before

    @property
    def is_done(self) -> bool:
        """True once all items are read."""
        return self._after.done

    @property
    def items(self) -> int:
        """The number of items read."""
        return self._after.items

    @property
    def share(self) -> float:
        """The share of all items that was read, by the table's own approximate count."""
        if self._within and not self.is_done:
            segments = self._after.split(len(self._within))
            return sum(each.done for each in segments) / len(segments)
        count = self._described.items if self._described is not None else 0
        return 1.0 if self.is_done else min(self._scanned / count, 0.99) if count else 0.0

    def stop(self) -> None:
        """Ends it behind the items that were read."""
        self._after = TokenSnapshot(items=self.items, done=True)

    @property
    def due_at(self) -> float:
        """The time (monotonic) at which the next page is due."""
        return self._pace.due_at

    def read(self) -> Page:
        """Returns the next page, as records; it may be empty. Raises as `Items`, and UsageError."""
        self._described = self._described or self._table.describe()
        self._names = [*self._described.types]
        self._refuse_hidden_keys()
        self._within = [] if self._chosen is None else _whole_keys(self._chosen, self._described)
        count = len(self._within) or self._pace.segments(self._described.size)
        before, segments = self._after, self._after.split(count)
        self._segments, found = len(segments), self._pages(segments)
        self._before, self._keys = before, []
        records: list[Mapping[str, Any]] = []
        units = 0.0
        for number, (items, last, used) in found.items():
            self._scanned += len(items)
            for item in self._matching(items):
                records.append(self._record(item, before.items + len(records) + 1, number))
            segments[number] = TokenSegment(last, last is None)
            units += used
        self._pace.note(units)
        count = before.items + len(records)
        self._after = TokenSnapshot.of(segments, count)
        return Page(0, len(records), str(count), msgspec.json.encode({"Records": records}))

    def _pages(
        self, segments: list[TokenSegment]
    ) -> dict[int, tuple[list[msgspec.Raw], Key | None, float]]:
        """Returns a page of each unfinished segment that answers. Raises if none does."""
        left = [number for number, each in enumerate(segments) if not each.done][:MOST_SEGMENTS]
        asks = []
        for number in left:
            ask = partial(self._table.page, segments[number].after)
            if self._within:
                asks.append(partial(ask, 0, 1, self._within[number]))
            else:
                asks.append(partial(ask, number, len(segments)))
        answers = self._calls.start(asks)
        found, failed = {}, None
        for number, answer in zip(left, answers, strict=True):
            try:
                found[number] = answer.result()
            except TransientError as error:
                failed = error
        if failed is not None and not found:
            raise failed
        return found

    def _refuse_hidden_keys(self) -> None:
        hidden = [name for name in self._names if self._redaction and self._redaction.hides(name)]
        if hidden:
            raise UsageError(
                f"the position of a snapshot is an item's key, and {hidden[0]} is not to be seen: "
                "leave out the snapshot or the checkpoint, or redact no key",
                "redact",
            )

    def _matching(self, items: Sequence[msgspec.Raw]) -> Sequence[msgspec.Raw]:
        if self._chosen is None or not items:
            return items
        records = [snapshot_record(each, self._names, number=0, time=0.0) for each in items]
        wire = decode(msgspec.json.encode({"Records": records})).Records
        return [items[index] for index in self._chosen.matching_indexes(wire)]

    def _record(self, item: msgspec.Raw, number: int, segment: int) -> Mapping[str, Any]:
        record = snapshot_record(item, self._names, number=number, time=self._clock.time())
        keys = record["dynamodb"]["Keys"]
        key = {name: read(_value, bytes(raw)) for name, raw in keys.items()}
        self._keys.append((segment, key))
        return record

    def stored(self, first_pending: str | None = None) -> TokenSnapshot:
        """Returns the progress to store: behind delivered, and before unprocessed records."""
        position, before = self.shard.position, self._before
        number = int(position.sequence_number) if isinstance(position, AfterSequence) else 0
        if first_pending is not None:
            number = min(number, int(first_pending) - 1)
        count = max(0, number - before.items)
        if count >= len(self._keys):
            return self._after
        if not count:
            return before
        segments = before.split(self._segments)
        for segment, key in self._keys[:count]:
            segments[segment] = TokenSegment(key)
        return TokenSnapshot.of(segments, number)


def _whole_keys(chosen: RecordFilter, table: Description) -> list[Key]:
    """Returns the keys of all chosen items, or of their partitions; none without a partition's.

    The order is the same in each run. Raises UsageError for values that no key has.
    """
    if foreign := sorted({*chosen.keys} - {*table.types}):
        text = f"no such key attribute; the table has {', '.join(sorted(table.types))}"
        raise UsageError(text, "key", foreign[0])
    keys: list[Key] = [{}]
    for name, _, kind in sorted(table.key_types, key=lambda each: each[1]):  # HASH, RANGE
        if name not in chosen.keys:
            return [key for key in keys if key]
        values = {_comparable(text, kind): text for text in sorted(chosen.keys[name], reverse=True)}
        if None in values:
            text = f"{name} has the type {kind}"
            raise UsageError(text, "key", f"{name}={values[None]}")
        keys = [{**key, name: {kind: text}} for key in keys for text in values.values()]
    return keys


def _comparable(text: str, kind: str) -> object:
    """Returns an attribute's value, the same for 1 and 1.0; None where it is not of this type."""
    if kind == "N":
        return number if isinstance(number := to_number(text), Decimal) else None
    try:
        return (base64.b64decode(text, validate=True) if kind == "B" else text) or None
    except ValueError:
        return None


def snapshot_record(
    item: msgspec.Raw, keys: Sequence[str], *, number: int, time: float
) -> Mapping[str, Any]:
    """Returns an item as a SNAPSHOT record; `keys` are the names of its key's attributes."""
    image = read(_item, bytes(item))
    return {
        "eventName": SNAPSHOT,
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": int(time),
            "Keys": {name: image[name] for name in keys},
            "NewImage": item,
            "SequenceNumber": str(number),
            "StreamViewType": "NEW_IMAGE",
        },
    }
