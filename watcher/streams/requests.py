"""The calls that the core asks its executor to make.

`ShardReader.attempt()` is a generator: it yields a `ReadRequest`, and is sent the service's answer
or has the service's error thrown into it. `Coordinator.due()` hands out a `StreamRequest`, and
`answered()` or `failed()` take what came of it. An executor decides where, when and how the calls
are made; `watcher.pull.executor` makes them one after the other and waits for each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from watcher.aws.model import Position


class GetIterator(msgspec.Struct, frozen=True):
    """Asks for a shard iterator; the answer is the iterator and the service's own time."""

    arn: str
    shard_id: str
    position: Position


class GetRecords(msgspec.Struct, frozen=True):
    """Asks for a page, of `limit` records at most; the answer is its body."""

    iterator: str
    limit: int | None = None


class Prefetch(msgspec.Struct, frozen=True):
    """Sends a GetRecords ahead of its turn; the answer is a call that waits for the body, or None.

    None means that this executor can't send ahead. The call raises as `GetRecords` does.
    """

    iterator: str


class Collect(msgspec.Struct, frozen=True):
    """Asks for the body of a page that was prefetched."""

    prefetched: Callable[[], bytes]


class RenewCredentials(msgspec.Struct, frozen=True):
    """Says that the service refused the credentials: someone may have logged in again."""


ReadRequest = GetIterator | GetRecords | Prefetch | Collect | RenewCredentials

_Result = TypeVar("_Result")

# What is sent in depends on the request, which no type of a generator can say.
ReadSteps = Generator[ReadRequest, Any, _Result]
"""Steps of a read: yields requests, is sent their answers, returns a result."""


class DescribeShards(msgspec.Struct, frozen=True):
    """Asks for the whole listing of the stream; the answer is a `Listing`."""


class ListChildren(msgspec.Struct, frozen=True):
    """Asks for the children of a finished shard; the answer is a list of shards."""

    shard_id: str


class ProbeShards(msgspec.Struct, frozen=True):
    """Asks which of these shards exist; the answer is each one's error, or None, by its id."""

    shard_ids: tuple[str, ...]


StreamRequest = DescribeShards | ListChildren | ProbeShards
