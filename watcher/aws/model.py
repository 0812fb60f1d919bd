"""The words of DynamoDB Streams: streams, shards, and the positions an iterator begins at."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.counters import Counters
from watcher.errors import WatcherError

_OPENED = re.compile(r"shardId-(\d{20})-")

CLOCKS_APART = timedelta(seconds=2)
"""How far the clock of the service's front may be from the one that stamps the records.

Rather some records from before a shard's LATEST than one missing after it.
"""


class Latest(msgspec.Struct, frozen=True, tag="latest"):
    """After the newest record there is at the moment of the first read."""


class TrimHorizon(msgspec.Struct, frozen=True, tag="trim_horizon"):
    """At the oldest record in retention (24 hours)."""


class AtSequence(msgspec.Struct, frozen=True, tag="at_sequence"):
    """At the record with this sequence number."""

    sequence_number: str


class AfterSequence(msgspec.Struct, frozen=True, tag="after_sequence"):
    """Right after the record with this sequence number."""

    sequence_number: str


class AtTime(msgspec.Struct, frozen=True, tag="at_time"):
    """At the first record whose creation is not before `time` (aware, whole seconds)."""

    time: datetime


Position = Latest | TrimHorizon | AtSequence | AfterSequence | AtTime


def moved_behind(position: Position, number: str) -> Position:
    """Returns the position behind the record of this number, or one that is further on already.

    An emulator may answer a record pages after later ones.
    """
    is_late = isinstance(position, AfterSequence) and int(number) <= int(position.sequence_number)
    return position if is_late else AfterSequence(number)


class Shard(msgspec.Struct, frozen=True):
    """A shard as DescribeStream lists it; `end` is None while it is (or still looks) open."""

    id: str
    parent: str | None = None
    start: str | None = None
    end: str | None = None


def without_circles(shards: Iterable[Shard]) -> list[Shard]:
    """The shards as they are listed, but none below itself: the first by its id has no parent."""
    listed = {shard.id: shard for shard in shards}
    cut: set[str] = set()
    looked_at: set[str] = set()
    for shard_id in listed:
        line: dict[str, None] = {}
        at: str | None = shard_id
        while at in listed and at not in looked_at and at not in line:
            line[at] = None
            at = listed[at].parent
        if at in line:
            names = list(line)
            cut.add(min(names[names.index(at) :]))
        looked_at.update(line)
    return [
        msgspec.structs.replace(shard, parent=None) if shard.id in cut else shard
        for shard in listed.values()
    ]


class Listing(msgspec.Struct, frozen=True):
    """A whole stream as DescribeStream shows it, at the service's own `time`."""

    arn: str
    table: str
    status: str
    view_type: str
    shards: list[Shard]
    pages: int
    time: datetime
    created: datetime | None = None
    """When the stream was enabled, where the service says so."""

    def closed(self) -> set[str]:
        """The shards that get no more records: one with a child has ended, however it looks."""
        parents = {shard.parent for shard in self.shards}
        return {shard.id for shard in self.shards if shard.end is not None or shard.id in parents}

    def is_open(self, shard_id: str) -> bool:
        """True where it shows this shard as one that gets more records."""
        return any(shard.id == shard_id for shard in self.shards) and shard_id not in self.closed()


class StreamName(msgspec.Struct, frozen=True):
    """One row of ListStreams."""

    arn: str
    table: str
    label: str


def opened_at(shard_id: str) -> datetime | None:
    """When a shard was opened: its id has the milliseconds, everywhere so far."""
    opened = _OPENED.match(shard_id)
    try:
        return None if opened is None else datetime.fromtimestamp(int(opened[1]) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


class Service(Protocol):
    """The calls that reading a stream needs; see `watcher.aws.client.StreamsClient`."""

    @property
    def counters(self) -> Counters:
        """The counters of its calls."""

    def list_shards(self, arn: str) -> Listing:
        """The stream and all its shards."""

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """The children of a finished shard."""

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """An iterator at a position of a shard, and the service's own time."""

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """Returns what `get_iterator` raises for each shard, at the trim horizon, all at once."""

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        """The body of one GetRecords answer, with so many records at most."""

    def prefetch_records(self, iterator: str) -> Callable[[], bytes] | None:
        """Sends a GetRecords request; the result waits for its answer, and raises as `get_records`.

        Returns None where requests can't be sent ahead.
        """

    def latest_stream(self, table: str) -> str:
        """The ARN of the current stream of a table, which its name or its ARN names."""

    def renew_credentials(self) -> None:
        """Takes new credentials, if there are any: the service has refused these."""

    def renew_expiring(self) -> None:
        """Renews credentials that end soon, in the background: for a loop that must not wait."""


class ForwardingService:
    """A `Service` that asks another one; its subclasses answer some of the questions themselves."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def counters(self) -> Counters:
        """See `Service`."""
        return self._service.counters

    def list_shards(self, arn: str) -> Listing:
        """See `Service`."""
        return self._service.list_shards(arn)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        return self._service.list_children(arn, shard_id)

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """See `Service`."""
        return self._service.get_iterator(arn, shard_id, position)

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """See `Service`."""
        return self._service.probe(arn, shard_ids)

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        """See `Service`."""
        return self._service.get_records(iterator, limit)

    def prefetch_records(self, iterator: str) -> Callable[[], bytes] | None:
        """See `Service`."""
        return self._service.prefetch_records(iterator)

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        return self._service.latest_stream(table)

    def renew_credentials(self) -> None:
        """See `Service`."""
        self._service.renew_credentials()

    def renew_expiring(self) -> None:
        """See `Service`."""
        self._service.renew_expiring()


class CachedListing(ForwardingService):
    """A service whose first listing of a stream is known already; later ones are asked for."""

    def __init__(self, service: Service, listing: Listing) -> None:
        super().__init__(service)
        self._known: Listing | None = listing

    def list_shards(self, arn: str) -> Listing:
        """See `Service`."""
        known, self._known = self._known, None
        return super().list_shards(arn) if known is None else known


class ShardKey(NamedTuple):
    """A shard of a stream; unique in a watch of several streams, where a shard's id alone is not.

    What is not known is "".
    """

    stream: str
    """The stream's ARN."""
    shard_id: str

    @property
    def table(self) -> str:
        """The table's name; the stream's id where its ARN has no table in it."""
        return table_name(self.stream)
