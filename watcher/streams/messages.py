"""The messages of a shard's reader, which workers send to the manager."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum

import msgspec

from watcher.aws.model import AtTime, Latest, Position, ShardKey, TrimHorizon
from watcher.records import page as pages
from watcher.records.page import RecordPage, raw_records_at
from watcher.records.redaction import Redaction
from watcher.records.wire import WireRecord
from watcher.retry import worth_logging


class IteratorGranted(msgspec.Struct, frozen=True, tag=True):
    """The shard has an iterator; records written after `time` (the service's) will be read."""

    time: datetime


class Page(msgspec.Struct, frozen=True, tag=True):
    """The records `start:stop` of this message's body."""

    start: int
    stop: int
    last_sequence_number: str
    """The number of the last record read, which may be left out of the page."""
    body: bytes = b""
    last_created: float | None = None
    """The creation time of that record (epoch seconds), where known."""
    kinds: dict[str, int] | None = None
    """The number of records of each kind of change; None: not counted."""
    left_out: int = 0
    """The number of records that a filter left out."""
    names: list[str] = []
    """Attributes of the records where all are left out, and a condition may name none of these."""

    @property
    def count(self) -> int:
        """The number of records in the page."""
        return self.stop - self.start

    @property
    def read(self) -> int:
        """The number of records read for the page, including those left out."""
        return self.count + self.left_out

    def records(self) -> list[WireRecord]:
        """Returns its records; their images are not decoded."""
        return pages.decode(self.body).Records[self.start : self.stop]

    def opened(self, shard_key: ShardKey, redaction: Redaction | None = None) -> RecordPage:
        """Returns its records as handlers see them, each decoded only as far as somebody looks."""
        return RecordPage(self.body, shard_key, range(self.start, self.stop), redaction)

    def split(self, count: int) -> tuple[Page, Page]:
        """Returns its first `count` records (at least 1), and the rest; both share the body."""
        cut = self.start + count
        number = self.records()[count - 1].dynamodb.SequenceNumber
        head = Page(self.start, cut, number, self.body)
        return head, Page(cut, self.stop, self.last_sequence_number, self.body)

    def upto(self, number: str) -> Page | None:
        """Returns the page up to this number; None where all its records are later."""
        end = int(number)
        if int(self.last_sequence_number) <= end:
            return self
        count = sum(int(each.dynamodb.SequenceNumber) <= end for each in self.records())
        return self.split(count)[0] if count else None


class DecodedPage(Page, frozen=True):
    """A page that stays in this process, with its decoded records: to decode it takes longest."""

    decoded: list[WireRecord] = []
    """All records of the body."""

    @classmethod
    def part(cls, body: bytes, records: list[WireRecord], first: int, last: int) -> Page:
        """Returns a page of the records `first` to `last`, without the last."""
        number = records[last - 1].dynamodb.SequenceNumber
        return cls(first, last, number, body, decoded=records)

    def records(self) -> list[WireRecord]:
        """See `Page`."""
        return self.decoded[self.start : self.stop]

    def opened(self, shard_key: ShardKey, redaction: Redaction | None = None) -> RecordPage:
        """See `Page`."""
        places = range(self.start, self.stop)
        return RecordPage(self.body, shard_key, places, redaction, self.decoded)


class Loss(msgspec.Struct, frozen=True, tag=True):
    """Records were gone before they could be read: from `since` to the next record."""

    shard_id: str
    since: str
    reason: str


def position_text(position: Position) -> str:
    """Returns a position in words."""
    match position:
        case TrimHorizon() | Latest():
            return "its trim horizon"
        case AtTime(time):
            return time.astimezone(UTC).isoformat()
    return f"sequence number {position.sequence_number}"


class ErrorKind(Enum):
    """The kind of a service's error."""

    PASSING = "passing"
    OVERDUE = "overdue"
    """An answer that arrives bit by bit, without an end."""
    UNEXPECTED = "unexpected"
    """An answer that is no answer about the stream (`UnexpectedAnswerError`)."""
    DENIED = "denied"
    CREDENTIALS = "credentials"


class ReadFailed(msgspec.Struct, frozen=True, tag=True):
    """The service keeps refusing; the reader keeps trying."""

    text: str
    failures: int
    kind: ErrorKind = ErrorKind.PASSING

    @property
    def is_worth_logging(self) -> bool:
        """True if it should be logged; an error that took half a minute, from the first time on."""
        if self.kind is ErrorKind.OVERDUE:
            return worth_logging(self.failures, from_failure=1)
        return worth_logging(self.failures)

    @property
    def line(self) -> str:
        """The text to log."""
        several = f"{self.failures} failures in a row: " if self.failures > 1 else ""
        return several + self.text


class Notice(msgspec.Struct, frozen=True, tag=True):
    """An oddity of the shard that is logged once."""

    text: str


class ReaderEnded(msgspec.Struct, frozen=True, tag=True):
    """The reader's end: the shard is `closed`, or everything requested is read.

    `reason` explains the end of a shard that is not closed; with `proven` it was open after the
    start, whatever a listing shows. `gone` is the loss of a shard that the service no longer knows.
    `past_end`: its last records are later than the requested end; closed or not, it is read.
    `anew` is the loss of a stream that has started from scratch: a new reader has to do so, too.
    """

    closed: bool
    gone: Loss | None = None
    proven: bool = False
    reason: str = ""
    past_end: bool = False
    anew: Loss | None = None


class ReaderCrashed(msgspec.Struct, frozen=True, tag=True):
    """The reader can't go on: if `fatal`, only the user can help; else a restart may."""

    text: str
    fatal: bool


Message = IteratorGranted | Page | Loss | ReadFailed | Notice | ReaderEnded | ReaderCrashed

WireFilter = Callable[[WireRecord], bool]
PageFilter = Callable[[Sequence[WireRecord]], list[int]]
"""Returns the indexes of the records that pass the filter."""

Names = Callable[[Sequence[WireRecord]], list[str]]
"""Returns the names of the records' attributes; none once they are of no interest."""

MakePage = Callable[..., Page]
"""The signature of `make_page`: (body, records, first, last) to a page."""


def make_page(
    body: bytes,
    records: Sequence[WireRecord],
    first: int,
    last: int,
    *,
    page_filter: PageFilter | None = None,
    names: Names | None = None,
) -> Page:
    """Returns the page of the records `first` to `last`, without the last.

    A shortcut: where the filter rejects most records, the others get a smaller body, and delivery
    filters only those. Where the filter raises, all records go on: delivery raises the error again,
    where the user sees it.
    """
    change = records[last - 1].dynamodb
    number, created = change.SequenceNumber, change.ApproximateCreationDateTime
    if page_filter is not None:
        with contextlib.suppress(Exception):
            kept = [first + place for place in page_filter(records[first:last])]
            if len(kept) <= (last - first) / 2:
                left_out = last - first - len(kept)
                kinds = _kinds([records[place] for place in kept])
                smaller = _of(body, records, kept)
                others = [] if names is None or kept else names(records[first:last])
                return Page(0, len(kept), number, smaller, created, kinds, left_out, others)
    return Page(first, last, number, body, created, _kinds(records[first:last]))


def _kinds(records: Sequence[WireRecord]) -> dict[str, int]:
    return dict(Counter([each.eventName or "" for each in records]))


def _of(body: bytes, records: Sequence[WireRecord], places: Sequence[int]) -> bytes:
    """Returns a body with some of a page's records."""
    return b'{"Records":[%b]}' % b",".join(raw_records_at(body, records, places))
