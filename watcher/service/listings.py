"""A stream's listing, put together from DescribeStream's pages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from watcher.errors import ShardNotFoundError, StreamGoneError, TransientError
from watcher.service.key_order import heard
from watcher.service.model import Listing, Shard, without_circles
from watcher.service.names import table_name
from watcher.service.pages import Pages
from watcher.service.said import said

# A clock may be off; a header that is further off is none.
_YEARS_OFF = 20
_PAUSES = (0.05, 0.1, 0.2)
# No listing takes so long: between two of its pages the machine has slept.
_TORN = timedelta(hours=1)

Describe = Callable[[dict[str, Any]], Any]
"""A call of DescribeStream with these parameters. Raises what `StreamsClient` does."""


def listed(
    arn: str,
    describe: Describe,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Listing:
    """The stream and all its shards, page by page (100 shards each).

    One whose pages are of two times is made anew, once (a `Date` may be wrong): its first shards
    would stand there without what descends from them, as if nobody had read them. Raises
    StreamGoneError, TransientError, StreamError.
    """
    made, began = _listed(arn, describe, sleep, monotonic)
    if made.time - began > _TORN:
        made, _ = _listed(arn, describe, sleep, monotonic)
    return made


def _listed(
    arn: str,
    describe: Describe,
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> tuple[Listing, datetime]:
    """It, and the time of its first page."""
    shards: dict[str, Shard] = {}
    query = {"StreamArn": arn}
    pages = Pages("shards", arn)
    first: datetime | None = None
    while True:
        began = monotonic()
        try:
            answer = _page(describe, query, sleep)
        except ShardNotFoundError:
            raise no_stream(arn) from None
        stream = answer["StreamDescription"]
        told = service_time(answer)
        first = first or told
        heard(stream.get("KeySchema") or ())
        for row in stream.get("Shards", ()):
            shard = shard_of(row)
            shards[shard.id] = shard
        last = stream.get("LastEvaluatedShardId")
        if pages.is_last(last, len(shards), monotonic() - began):
            listing = Listing(
                arn=stream.get("StreamArn", arn),
                table=stream.get("TableName", ""),
                status=stream.get("StreamStatus", ""),
                view_type=stream.get("StreamViewType", ""),
                shards=without_circles(shards.values()),
                pages=pages.count,
                time=told,
                created=stream.get("CreationRequestDateTime"),
            )
            return listing, first
        query["ExclusiveStartShardId"] = last


def insisted(arn: str, call: Callable[[], Any], attempts: int, turn: Callable[[], float]) -> Any:
    """The answer to a call about a stream, each attempt when its turn has come.

    Another is made where nobody answers. Raises what the last one does. Where there may be several,
    somebody waits for them who may wonder what goes on: what has no answer yet is said.
    """
    with said(partial(_unanswered, arn)) if attempts > 1 else contextlib.nullcontext():
        for attempt in range(1, attempts + 1):
            time.sleep(turn())
            try:
                return call()
            except TransientError as error:
                if not error.unreachable or attempt == attempts:
                    raise
    raise AssertionError


def _unanswered(arn: str, seconds: float) -> str:
    return f"DescribeStream of {table_name(arn)}: no answer yet, for {seconds:g} s; it is asked on"


def no_stream(arn: str) -> StreamGoneError:
    """What is wrong where DescribeStream knows no such stream."""
    return StreamGoneError(
        f"no stream {arn}: it was deleted, or is of another region or account; "
        "see: python -m watcher streams"
    )


def _page(describe: Describe, query: dict[str, Any], sleep: Callable[[float], None]) -> Any:
    """One page, asked for again by itself: a large stream has dozens of them."""
    for pause in _PAUSES:
        try:
            return describe(query)
        except TransientError as error:
            if error.unreachable:
                raise
            sleep(pause)
    return describe(query)


def shard_of(row: dict[str, Any]) -> Shard:
    """A shard as DescribeStream has it."""
    with as_the_services():
        numbers = row.get("SequenceNumberRange", {})
        return Shard(
            id=row["ShardId"],
            parent=row.get("ParentShardId") or None,
            start=numbers.get("StartingSequenceNumber"),
            end=numbers.get("EndingSequenceNumber"),
        )


@contextlib.contextmanager
def as_the_services() -> Iterator[None]:
    """Without one of its members, an answer is none of the service's, or not all of it."""
    try:
        yield
    except KeyError as error:
        raise TransientError(f"an answer without {error}") from error


def service_time(answer: dict[str, Any]) -> datetime:
    """The service's clock, not ours: ours may be wrong by minutes.

    Where it tells none, or one that is no time of DynamoDB's, ours has to do.
    """
    ours = datetime.now(UTC).replace(microsecond=0)
    try:
        time = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, ValueError, OverflowError, IndexError, TypeError):
        return ours
    if time.tzinfo is None:  # it says no zone: in HTTP there is one only
        time = time.replace(tzinfo=UTC)
    return time if abs(time.year - ours.year) <= _YEARS_OFF else ours
