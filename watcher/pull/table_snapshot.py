"""Reads a table's items as SNAPSHOT records, page by page, in turn with its changes.

The rule, for each item: a SNAPSHOT is never older than a change delivered before it. For that, no
change is delivered during the read of a page, and all of a page comes before the next change. A
page of a large table is one page of each of its segments, read side by side. A change delivered
earlier was made earlier, so that a consistent read sees it. Nothing has to be remembered. Changes
that a SNAPSHOT already shows may follow it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.json_text import read
from watcher.aws.model import AfterSequence, ShardKey, TrimHorizon
from watcher.aws.tables import MOST_SEGMENTS, Description, Key, ReadPace
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import (
    ServiceError,
    StreamError,
    TransientError,
    UnexpectedAnswerError,
    UsageError,
)
from watcher.records.wire import SNAPSHOT
from watcher.retry import Backoff, worth_logging
from watcher.streams.checkpoint_format import TokenSegment, TokenSnapshot
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page

if TYPE_CHECKING:
    from watcher.records.redaction import Redaction

logger = logging.getLogger("watcher")

ItemsPage: TypeAlias = tuple[list[msgspec.Raw], Key | None, float]
"""The wire's JSON of items, the last one's key (None on the last page), and the read units."""
SHARD_ID = "snapshot"
"""A SNAPSHOT record's shard id."""
_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0)
"""The delays between attempts at a page; changes are delivered meanwhile."""
# The errors of a deleted table.
_FOR_GOOD = (StreamError, UnexpectedAnswerError)

_item = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder(dict[str, str])


class Items(Protocol):
    """A table's items; see `aws.tables.TableItems`. Raises StreamError, TransientError."""

    @property
    def in_threads(self) -> bool:
        """True if pages may be read in several threads."""

    def describe(self) -> Description:
        """Returns the table's current description."""

    def page(self, after: Key | None, segment: int, segments: int) -> ItemsPage:
        """Returns a segment's items behind this key, by a consistent read, and the last one's key.

        Each item is the wire's JSON; on the last page, the key is None. The number is that of the
        consumed read units.
        """


def read_pages(
    segments: Sequence[TokenSegment],
    page: Callable[[Key | None, int, int], ItemsPage],
    calls: CallPool,
) -> dict[int, ItemsPage]:
    """Returns a `page` of each unfinished segment that answers. Raises if none does."""
    left = [number for number, each in enumerate(segments) if not each.done][:MOST_SEGMENTS]
    asks = [partial(page, segments[number].after, number, len(segments)) for number in left]
    found, failed = {}, None
    for number, answer in zip(left, calls.start(asks), strict=True):
        try:
            found[number] = answer.result()
        except TransientError as error:
            failed = error
    if failed is not None and not found:
        raise failed
    return found


class TableSnapshot:
    """Reads a table's items page by page; resumes from its `stored` progress."""

    def __init__(
        self,
        arn: str,
        items: Items,
        stored: TokenSnapshot | None = None,
        clock: Clock = CLOCK,
        *,
        redaction: Redaction | None = None,
        pace: ReadPace,
        calls: CallPool,
    ) -> None:
        """Refuses keys that the `redaction` hides, as a token would show them."""
        self.shard_key = ShardKey(arn, SHARD_ID)
        self.shard = TrackedShard(SHARD_ID, None, TrimHorizon())
        """The items as a shard; its position is behind the last delivered record."""
        self._table = items
        self._clock = clock
        self._redaction = redaction
        self._pace = pace
        self._calls = calls
        self._described: Description | None = None
        self._names: list[str] = []
        self._segments = 1
        self._has_read = False
        self._failures = 0
        self._retry_at = -math.inf
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
        count = self._described.items if self._described is not None else 0
        return 1.0 if self.is_done else min(self._scanned / count, 0.99) if count else 0.0

    @property
    def due_at(self) -> float:
        """The time (monotonic) at which the next page is due."""
        return max(self._pace.due_at, self._retry_at)

    def read(self, *, has_ended: bool) -> Page | None:
        """Returns the next page, as records; it may be empty.

        Returns None where the service refuses it: it is due again later, or, if the stream
        `has_ended` and the table is gone, done. Raises StreamError if the first read is refused,
        UsageError.
        """
        try:
            page = self._next_page()
        except (ServiceError, StreamError) as error:
            if isinstance(error, StreamError) and not self._has_read:
                raise
            self._on_refusal(error, is_final=has_ended and type(error) in _FOR_GOOD)
            return None
        self._has_read, self._failures = True, 0
        return page

    def _on_refusal(self, error: ServiceError | StreamError, *, is_final: bool) -> None:
        about = {"stream": self.shard_key.stream}
        items = f"Can't read the items of {table_name(self.shard_key.stream)}"
        if is_final:
            self._after = TokenSnapshot(items=self.items, done=True)
            logger.error(f"{items}, whose stream has ended: {error}", extra=about)
            return
        self._failures += 1
        self._retry_at = self._clock.monotonic() + _BACKOFF.after(self._failures)
        if worth_logging(self._failures):
            logger.warning(f"{items}, trying again: {error}", extra=about)

    def _next_page(self) -> Page:
        self._described = self._described or self._table.describe()
        self._names = [*self._described.types]
        self._refuse_hidden_keys()
        count = self._pace.segments(self._described.size)
        before, segments = self._after, self._after.split(count)
        self._segments, found = len(segments), read_pages(segments, self._table.page, self._calls)
        self._before, self._keys = before, []
        records: list[Mapping[str, Any]] = []
        units = 0.0
        for number, (items, last, used) in found.items():
            self._scanned += len(items)
            for item in items:
                records.append(self._record(item, before.items + len(records) + 1, number))
            segments[number] = TokenSegment(last, last is None)
            units += used
        self._pace.note(units)
        count = before.items + len(records)
        self._after = TokenSnapshot.of(segments, count)
        return Page(0, len(records), str(count), msgspec.json.encode({"Records": records}))

    def _refuse_hidden_keys(self) -> None:
        hidden = [name for name in self._names if self._redaction and self._redaction.hides(name)]
        if hidden:
            raise UsageError(
                f"the position of a snapshot is an item's key, and {hidden[0]} is not to be seen: "
                "leave out the snapshot or the checkpoint, or redact no key",
                "redact",
            )

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
