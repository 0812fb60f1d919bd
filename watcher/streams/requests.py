"""The calls that the core asks its executor to make.

`ShardReader.attempt()` is a generator: it yields a `ReadRequest`, and is sent the service's answer
or has the service's error thrown into it. `Coordinator.next_request()` returns a `StreamRequest`,
whose result goes to `answered()` or `failed()`. An executor decides where, when and how the calls
are made; `watcher.executor` makes them one after the other and waits for each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from watcher.aws.model import Position


class GetIterator(msgspec.Struct, frozen=True):
    """Requests a shard iterator; the answer is the iterator and the service's time."""

    arn: str
    shard_id: str
    position: Position


class GetRecords(msgspec.Struct, frozen=True):
    """Requests a page, of at most `limit` records; the answer is its body."""

    iterator: str
    limit: int | None = None


class Prefetch(msgspec.Struct, frozen=True):
    """Sends GetRecords ahead; the answer is a function that waits for the body, or None.

    None means that this executor can't prefetch. The function raises as `GetRecords` does.
    """

    iterator: str


class Collect(msgspec.Struct, frozen=True):
    """Requests the body of a prefetched page."""

    prefetched: Callable[[], bytes]


class RenewCredentials(msgspec.Struct, frozen=True):
    """Reports that the service refused the credentials: newer ones may exist."""


ReadRequest = GetIterator | GetRecords | Prefetch | Collect | RenewCredentials

_Result = TypeVar("_Result")

# The type of the sent answer depends on the request, which a generator's type can't express.
ReadSteps = Generator[ReadRequest, Any, _Result]
"""The steps of a read: a generator that yields requests, is sent answers, and returns a result."""


class DescribeShards(msgspec.Struct, frozen=True):
    """Requests the whole listing of the stream; the answer is a `Listing`."""


class ListChildren(msgspec.Struct, frozen=True):
    """Requests the children of a finished shard; the answer is a list of shards."""

    shard_id: str


class ProbeShards(msgspec.Struct, frozen=True):
    """Asks which of these shards exist; the answer is each one's error, or None, by its id."""

    shard_ids: tuple[str, ...]


StreamRequest = DescribeShards | ListChildren | ProbeShards
