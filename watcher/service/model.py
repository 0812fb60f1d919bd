"""The words of DynamoDB Streams: streams, shards, and the positions an iterator begins at."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

_OPENED = re.compile(r"shardId-(\d{20})-")


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


class Shard(msgspec.Struct, frozen=True):
    """A shard as DescribeStream lists it; `end` is None while it is (or still looks) open."""

    id: str
    parent: str | None = None
    start: str | None = None
    end: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """What DescribeStream says of a whole stream, at the service's own `time`."""

    arn: str
    table: str
    status: str
    view_type: str
    shards: list[Shard]
    pages: int
    time: datetime


class StreamName(msgspec.Struct, frozen=True):
    """One row of ListStreams."""

    arn: str
    table: str
    label: str


def table_of(arn: str) -> str:
    """The table's ARN of a stream's ARN."""
    return arn.partition("/stream/")[0]


def opened_at(shard_id: str) -> datetime | None:
    """When a shard was opened: its id has the milliseconds, everywhere so far."""
    opened = _OPENED.match(shard_id)
    try:
        return None if opened is None else datetime.fromtimestamp(int(opened[1]) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
