"""The terms of DynamoDB and its streams: items, shards, and positions of iterators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.counters import Counters

_OPENED = re.compile(r"shardId-(\d{20})-")

WireValue: TypeAlias = Mapping[str, Any]
"""A value as it is on the wire: `{"S": "ada"}`, `{"L": [{"N": "1"}]}`."""

WireItem: TypeAlias = Mapping[str, WireValue]
"""An item, or a key, as it is on the wire: its attributes' names and values."""


def typed(value: WireValue) -> tuple[str, Any]:
    """Returns a value's type and content; null where DynamoDB Local 3 leaves out the type."""
    return next(iter(value.items()), ("NULL", True))


CLOCKS_APART = timedelta(seconds=2)
"""The largest difference between the clocks of the service's front end and its stamps.

It rather yields some records from before a shard's LATEST than loses one after it.
"""


class Latest(msgspec.Struct, frozen=True, tag="latest"):
    """After the newest record at the time of the first read."""


class TrimHorizon(msgspec.Struct, frozen=True, tag="trim_horizon"):
    """At the oldest record in retention (24 hours)."""


class AtSequence(msgspec.Struct, frozen=True, tag="at_sequence"):
    """At the record with this sequence number."""

    sequence_number: str


class AfterSequence(msgspec.Struct, frozen=True, tag="after_sequence"):
    """Right after the record with this sequence number."""

    sequence_number: str


class AtTime(msgspec.Struct, frozen=True, tag="at_time"):
    """At the first record created at or after `time` (aware, whole seconds)."""

    time: datetime


Position = Latest | TrimHorizon | AtSequence | AfterSequence | AtTime


def moved_behind(position: Position, number: str) -> Position:
    """Returns the position behind this number; a later position stays.

    An emulator may deliver a record pages after later ones.
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
    """Returns the shards without cycles: of a cycle's shards, the lowest id loses its parent."""
    listed = {shard.id: shard for shard in shards}
    cut: set[str] = set()
    visited: set[str] = set()
    for shard_id in listed:
        path: dict[str, None] = {}
        at: str | None = shard_id
        while at in listed and at not in visited and at not in path:
            path[at] = None
            at = listed[at].parent
        if at in path:
            names = list(path)
            cut.add(min(names[names.index(at) :]))
        visited.update(path)
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
    """The time at which the stream was enabled, where the service reports it."""
    key_names: tuple[str, ...] = ()
    """The attributes of the table's key, the partition key first, where the service names them."""

    def closed(self) -> set[str]:
        """Returns the shards that get no more records: ended ones, and all with a child."""
        parents = {shard.parent for shard in self.shards}
        return {shard.id for shard in self.shards if shard.end is not None or shard.id in parents}

    def began_anew(self, since: datetime | None) -> bool:
        """True where the stream was created after this time: numbers of before mean nothing in it.

        So it is with an emulator that restarts, and keeps the stream's ARN but not its records.
        """
        return bool(since and self.created and self.created > since + CLOCKS_APART)

    def is_open(self, shard_id: str) -> bool:
        """True where it shows this shard as one that gets more records."""
        return any(shard.id == shard_id for shard in self.shards) and shard_id not in self.closed()


class StreamName(msgspec.Struct, frozen=True):
    """One row of ListStreams."""

    arn: str
    table: str
    label: str


def opened_at(shard_id: str) -> datetime | None:
    """Returns a shard's creation time, which its id contains in milliseconds; None if not."""
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
        """Returns the stream and all its shards."""

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """Returns the children of a finished shard."""

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """Returns an iterator at a position of a shard, and the service's time."""

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        """Returns the body of one GetRecords answer, with at most `limit` records."""

    def prefetch_records(self, iterator: str) -> Callable[[], bytes] | None:
        """Sends a GetRecords call; returns a function that waits for its answer.

        The function raises as `get_records`. None where calls can't be sent ahead.
        """

    def latest_stream(self, table: str) -> str:
        """Returns the ARN of a table's current stream, given the table's name or ARN."""

    def renew_credentials(self) -> None:
        """Takes newer credentials, if there are any: the service refused these."""

    def renew_expiring(self) -> None:
        """Renews credentials that expire soon, in the background."""


class ShardKey(NamedTuple):
    """Identifies a shard in a watch of several streams, where its id alone is not unique.

    Unknown parts are "".
    """

    stream: str
    """The stream's ARN."""
    shard_id: str

    @property
    def table(self) -> str:
        """The table's name; the stream's id where its ARN has no table in it."""
        return table_name(self.stream)
