"""Reads a stream's listing, page by page, from DescribeStream."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial

from watcher.aws.config import ParsedAnswer, Query
from watcher.aws.key_schema import remember_key_schema
from watcher.aws.model import Listing, Shard, without_circles
from watcher.errors import ShardNotFoundError, StreamGoneError, TransientError
from watcher.retry import Backoff, retry

logger = logging.getLogger("watcher")

# The delays between the attempts at one page: a large stream has dozens, and need not start over.
_PAGE_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=1.6)
_PAGE_ATTEMPTS = 5
MOST_PAGES = 1000
"""The largest number of pages of a listing: 100,000 shards."""
MOST_SECONDS = 300.0
"""The longest time of a listing: 1,000 pages take 250 s at four calls a second."""
# The time between two pages from which the listing is read again: the machine slept.
_TORN_SECONDS = 3600.0
# A listing that takes longer is logged, once per stream.
_LOG_FROM_SECONDS = 10.0
# Clocks may differ; a `Date` header that is further off is ignored.
_YEARS_OFF = 20


Describe = Callable[[Query], ParsedAnswer]
"""A call of DescribeStream with these parameters. Raises as `StreamsClient`."""


def read_listing(
    arn: str, describe: Describe, sleep: Callable[[float], None] = time.sleep
) -> Listing:
    """Returns the stream and all its shards, read page by page (100 shards each).

    A listing whose pages are far apart in time is read again, once (a `Date` may be wrong):
    otherwise its first shards would lack their descendants, as if no reader had seen them. Raises
    StreamGoneError, TransientError, StreamError.
    """
    listing, began = _read_listing(arn, describe, sleep)
    if (listing.time - began).total_seconds() > _TORN_SECONDS:
        listing, _ = _read_listing(arn, describe, sleep)
    return listing


def _read_listing(
    arn: str, describe: Describe, sleep: Callable[[float], None]
) -> tuple[Listing, datetime]:
    """Returns the listing and its first page's time."""
    shards: dict[str, Shard] = {}
    query = {"StreamArn": arn}
    pages = ListingProgress("shards", arn)
    first: datetime | None = None
    while True:
        began = time.monotonic()
        try:
            answer = _page(describe, query, sleep)
        except ShardNotFoundError:
            raise no_such_stream(arn) from None
        stream = answer["StreamDescription"]
        page_time = service_time(answer)
        first = first or page_time
        remember_key_schema(stream.get("KeySchema") or ())
        for row in stream.get("Shards", ()):
            shard = to_shard(row)
            shards[shard.id] = shard
        last = stream.get("LastEvaluatedShardId")
        if pages.add_page(last, len(shards), time.monotonic() - began):
            listing = Listing(
                arn=stream.get("StreamArn", arn),
                table=stream.get("TableName", ""),
                status=stream.get("StreamStatus", ""),
                view_type=stream.get("StreamViewType", ""),
                shards=without_circles(shards.values()),
                pages=pages.count,
                time=page_time,
                created=stream.get("CreationRequestDateTime"),
                key_names=_key_names(stream.get("KeySchema") or ()),
            )
            return listing, first
        query["ExclusiveStartShardId"] = last


def _key_names(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    named = [each for each in schema if "AttributeName" in each]
    in_order = sorted(named, key=lambda each: each.get("KeyType") != "HASH")
    return tuple(each["AttributeName"] for each in in_order)


def no_such_stream(arn: str) -> StreamGoneError:
    """Returns the error for a stream that DescribeStream does not know."""
    return StreamGoneError(
        f"no stream {arn}: it was deleted, or belongs to another region or account; "
        "see: python -m watcher streams"
    )


def _page(describe: Describe, query: Query, sleep: Callable[[float], None]) -> ParsedAnswer:
    """Returns one page, retried by itself: a large stream has dozens."""
    return retry(
        partial(describe, query),
        pauses=_PAGE_BACKOFF.pauses(_PAGE_ATTEMPTS),
        may_pass=lambda error: isinstance(error, TransientError) and not error.unreachable,
        sleep=sleep,
    )


def to_shard(row: ParsedAnswer) -> Shard:
    """Returns the shard in a row of DescribeStream."""
    with members_required():
        numbers = row.get("SequenceNumberRange", {})
        return Shard(
            id=row["ShardId"],
            parent=row.get("ParentShardId") or None,
            start=numbers.get("StartingSequenceNumber"),
            end=numbers.get("EndingSequenceNumber") or None,
        )


@contextlib.contextmanager
def members_required() -> Iterator[None]:
    """Raises TransientError where an answer lacks a member: it is truncated, or another's."""
    try:
        yield
    except KeyError as error:
        raise TransientError(f"an answer without {error}") from error


def service_time(answer: ParsedAnswer) -> datetime:
    """Returns the service's time in an answer; ours may be wrong by minutes.

    Without a plausible one it returns our own.
    """
    ours = datetime.now(UTC).replace(microsecond=0)
    try:
        time = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, ValueError, OverflowError, IndexError, TypeError):
        return ours
    if time.tzinfo is None:  # without a zone: HTTP's is always GMT
        time = time.replace(tzinfo=UTC)
    return time if abs(time.year - ours.year) <= _YEARS_OFF else ours


class ListingProgress:
    """Counts the pages of one listing, and gives up one without an end.

    `what` is listed, of the stream `arn` ("": of a region).
    """

    def __init__(self, what: str, arn: str = "") -> None:
        self.count = 0
        self._what = what
        self._arn = arn
        self._keys: set[str] = set()
        self._seconds = 0.0

    def add_page(self, key: str | None, found: int, seconds: float) -> bool:
        """Counts a page that took `seconds`; returns True if none follows behind `key`.

        `found` is the total so far. Raises TransientError for a listing without an end.
        """
        self.count += 1
        self._seconds += seconds
        if not key or key in self._keys:
            if key:
                text = "comes back to a page that it has shown: taken for its end"
                _warn_once(f"The listing of {self._what} {text}", self._arn)
            return True
        self._keys.add(key)
        if self.count >= MOST_PAGES or self._seconds >= MOST_SECONDS:
            text = f"a listing of {self._what} that does not end, after {self._progress(found)}"
            raise TransientError(text, overdue=True)
        if self._seconds >= _LOG_FROM_SECONDS:
            text = f"The listing of {self._what} takes long: 100 a page, a few pages a second"
            _warn_once(text, self._arn)
        return False

    def _progress(self, found: int) -> str:
        return f"{self.count:,} pages in {self._seconds:.0f} s ({found:,} {self._what})"


@functools.cache
def _warn_once(text: str, arn: str) -> None:
    logger.warning(text, extra={"stream": arn} if arn else {})
