"""What waits of one shard, where several shards' records are handed over at once."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable

from watcher.printing.escaping import printable_key
from watcher.reading.lineage import Tracked
from watcher.reading.messages import Message, Page
from watcher.reading.parts import Wanted
from watcher.record.origin import Origin
from watcher.record.page import RecordPage
from watcher.record.record import Record

logger = logging.getLogger("watcher")

# So long an observer may be at work on one record before that is said.
_LONG_SECONDS = 10.0


class PageLeft:
    """A page that is being handed over."""

    def __init__(self, page: Page, records: RecordPage, wanted: Wanted | None) -> None:
        self.page = page
        self.wires = records.wires
        self.records = enumerate(records.picked(wanted))
        self.passed_over = 0
        """How many that a worker has left out of it are counted."""

    def left_out_before(self, index: int) -> int:
        """How many of those are to be counted now."""
        found = self.page.left_out[index] if self.page.left_out else 0
        new, self.passed_over = found - self.passed_over, found
        return new


class Lane:
    """What waits of one shard, and how far it has come."""

    def __init__(self, origin: Origin, shard: Tracked) -> None:
        self.origin = origin
        self.shard = shard
        self.jobs: deque[Page | Callable[[], object]] = deque()
        self.is_taken = False
        """Whether somebody works for it, or will do so soon."""
        self.page: PageLeft | None = None
        """What is left of the page that is being handed over."""
        self.bytes = 0
        self.left = 0
        """How many records are not handed over."""
        self.last: tuple[str, float | None] | None = None
        """Number and time of the last that was since somebody looked; and of which kinds."""
        self.kinds: Counter[str] = Counter()
        self.filtered = 0
        self.in_hand: tuple[Record, float] | None = None
        """The record that is being handed over, and since when."""
        self.since = math.inf
        """When (monotonic) the step was begun that is at work for it."""
        self.said: Record | None = None
        """The record of which it was said that it takes long."""
        self.later: list[Message | None] = []
        """What its worker has said, and the manager is to hear once all is handed over."""

    @property
    def named(self) -> str:
        """What it is called in a line for people."""
        record = self.in_hand and self.in_hand[0]
        if record is None:
            return self.origin.shard_id
        key = printable_key(record["dynamodb"]["Keys"])
        return f"record {record.sequence_number} ({key}) of {self.origin.shard_id}"

    def say_if_it_stands(self, now: float) -> None:
        """Once for each record that an observer takes long for."""
        record, since = self.in_hand or (None, math.inf)
        if now - since >= _LONG_SECONDS and record is not self.said:
            self.said = record
            logger.warning(
                f"An observer has been at work for {now - since:.0f} s on {self.named}: its "
                "shard stands, the others go on",
                extra={"stream": self.origin.stream, "shard": self.origin.shard_id},
            )
