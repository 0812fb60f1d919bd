"""A table's items as they are now, as SNAPSHOT records, page by page, in between its changes.

The rule, for each item: what a SNAPSHOT shows is never older than a change handed over before it.
For that, no change is handed over while a page is asked for, and all of a page comes before the
next change. A change that was handed over before had been made before, so that a consistent read
sees it. Nothing has to be remembered. After a SNAPSHOT changes may come that it shows already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from watcher.aws.json_text import read
from watcher.aws.model import AfterSequence, ShardKey, TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.records.wire import SNAPSHOT
from watcher.streams.checkpoint_format import TokenSnapshot
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page

if TYPE_CHECKING:
    from watcher.aws.tables import Key
    from watcher.records.redaction import Redaction

SHARD_ID = "snapshot"
"""Stands in a SNAPSHOT record in place of a shard's id."""

_item = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder(dict[str, str])


class Items(Protocol):
    """A table's items; see `aws.tables.TableItems`. Both raise StreamError, TransientError."""

    def key_names(self) -> list[str]:
        """The names of the key's attributes."""

    def page(self, after: Key | None) -> tuple[list[msgspec.Raw], Key | None]:
        """The items behind this key, by a consistent read, and the key of the last one.

        Each item is the wire's JSON; where there are no more, the key is None.
        """


class TableSnapshot:
    """Reads a table's items page by page; goes on where it `stored` its progress."""

    def __init__(
        self,
        arn: str,
        items: Items,
        stored: TokenSnapshot | None = None,
        clock: Clock = CLOCK,
        *,
        redaction: Redaction | None = None,
    ) -> None:
        """The `redaction` is of those who are to see no key in a token."""
        self.shard_key = ShardKey(arn, SHARD_ID)
        self.shard = TrackedShard(SHARD_ID, None, TrimHorizon())
        """Whose position is behind the last record that was handed over."""
        self._table = items
        self._clock = clock
        self._redaction = redaction
        self._names: list[str] = []
        # Of the page at hand: what came before it, its items' keys, and what comes after it.
        self._before = stored or TokenSnapshot()
        self._keys: list[Key] = []
        self._after = self._before

    @property
    def is_done(self) -> bool:
        """True if all items were read."""
        return self._after.done

    @property
    def items(self) -> int:
        """The number of items read."""
        return self._after.items

    def read(self) -> Page:
        """The next page, as records; it may hold none. Raises as `Items`, and UsageError."""
        self._names = self._names or self._table.key_names()
        self._refuse_hidden_keys()
        items, last = self._table.page(self._after.after)
        self._before = before = self._after
        self._keys = []
        records = [self._record(item, before.items + place) for place, item in enumerate(items, 1)]
        count = before.items + len(items)
        self._after = TokenSnapshot(after=last, items=count, done=last is None)
        return Page(0, len(records), str(count), msgspec.json.encode({"Records": records}))

    def _refuse_hidden_keys(self) -> None:
        hidden = [name for name in self._names if self._redaction and self._redaction.hides(name)]
        if hidden:
            raise UsageError(
                f"the position of a snapshot is an item's key, and {hidden[0]} is not to be seen: "
                "leave out the snapshot or the checkpoint, or redact no key",
                "redact",
            )

    def _record(self, item: msgspec.Raw, number: int) -> Mapping[str, Any]:
        image = read(_item, bytes(item))
        keys = {name: image[name] for name in self._names}
        self._keys.append({name: read(_value, bytes(raw)) for name, raw in keys.items()})
        return {
            "eventName": SNAPSHOT,
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "ApproximateCreationDateTime": int(self._clock.time()),
                "Keys": keys,
                "NewImage": item,
                "SequenceNumber": str(number),
                "StreamViewType": "NEW_IMAGE",
            },
        }

    def stored(self, unsettled: str | None = None) -> TokenSnapshot:
        """Where to go on: behind what was handed over, and before what is not settled yet."""
        position, before = self.shard.position, self._before
        number = int(position.sequence_number) if isinstance(position, AfterSequence) else 0
        if unsettled is not None:
            number = min(number, int(unsettled) - 1)
        count = max(0, number - before.items)
        if count >= len(self._keys):
            return self._after
        if not count:
            return before
        return TokenSnapshot(after=self._keys[count - 1], items=number)
