"""The calls of DynamoDB Streams; sent, signed and retried by botocore."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError

from watcher.aws import deadline
from watcher.aws.arns import table_name, table_of
from watcher.aws.boto_clients import BotoClients
from watcher.aws.config import AwsConfig, Client, Operation, ParsedAnswer, Query
from watcher.aws.counters import Counters
from watcher.aws.credentials import Credentials
from watcher.aws.deadline import log_if_slow, with_deadline
from watcher.aws.discovery import current_stream
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.aws.fast_http import FastClient
from watcher.aws.listings import (
    ListingProgress,
    members_required,
    no_such_stream,
    read_listing,
    service_time,
    to_shard,
)
from watcher.aws.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    Shard,
    StreamName,
    TrimHorizon,
)
from watcher.aws.retry import retry_at_start
from watcher.clock import CLOCK, Clock, no_later
from watcher.errors import (
    ShardNotFoundError,
    StreamError,
    TimestampRefusedError,
    TransientError,
    UnexpectedAnswerError,
    WatcherError,
)
from watcher.retry import retry

# AWS allows 10 DescribeStream calls a second to all programs of an account in a region. A program
# leaves most of them to others, but for its first listing, for which someone waits.
_CALLS = 4
_CALLS_AT_START = 9
_START_CALLS = 150
# A little more than a second, as calls arrive with varying delays.
_SECONDS = 1.05


class CallRateLimiter:
    """Lets a program's first calls begin at nearly AWS's rate, later ones at less than half of it.

    None of the first is that fast once AWS has throttled one: others call, too. Thread-safe.
    """

    def __init__(self, clock: Clock = CLOCK, *, at_start: int = _START_CALLS) -> None:
        self._clock = clock
        self._at_start = at_start
        self._begun = deque[float]([-math.inf] * _CALLS_AT_START, _CALLS_AT_START)
        self._lock = threading.Lock()

    def turn(self) -> float:
        """Reserves the next call; returns the seconds until it may begin."""
        with self._lock:
            calls = _CALLS_AT_START if self._at_start > 0 else _CALLS
            self._at_start -= 1
            now = self._clock.monotonic()
            moment = max(now, self._begun[-1], self._begun[-calls] + _SECONDS)
            self._begun.append(moment)
        return moment - now

    def on_throttled(self) -> None:
        """Leaves more calls to others from now on."""
        self._at_start = 0


@functools.cache
def call_limiter_for(endpoint: str) -> CallRateLimiter:
    """Returns the program's only DescribeStream limiter for an endpoint."""
    return CallRateLimiter()


# The largest number of simultaneous calls, hanging ones included; beyond it, urllib3 logs that it
# drops connections.
_CONNECTIONS = 128
_SETTINGS = Config(
    tcp_keepalive=True,
    # Validation refuses the short sequence numbers of emulators.
    parameter_validation=False,
    max_pool_connections=_CONNECTIONS,
)
WHOLE_CALL_READS = 3
"""The limit of a whole call, in read timeouts: bytes may come slowly, one by one."""


class StreamsClient:
    """A client for DynamoDB Streams, for one process (its sockets can't cross a fork).

    Every method raises StreamError for errors that only the user can fix (no permission, no
    credentials, not found), TransientError for those that may pass.
    """

    def __init__(
        self,
        connection: AwsConfig,
        arn_region: str | None = None,
        attempts: int = 3,
        credentials: Credentials | None = None,
        *,
        read_seconds: float | None = None,
    ) -> None:
        self._attempts = attempts
        self._read_seconds = read_seconds or deadline.READ_SECONDS
        self.counters = Counters()
        """The counters of its calls; the caller may set others."""
        self._tables: Client = None
        self._clients = BotoClients(
            connection,
            arn_region,
            read_seconds=self._read_seconds,
            credentials=credentials,
            settings=_SETTINGS,
        )
        self._credentials = self._clients.credentials
        self.api: Client = self._clients.new("dynamodbstreams")
        """Botocore's client."""
        self.fast = FastClient(
            self._clients.session,
            self.api,
            bounded=self._bounded,
            whole_call_reads=WHOLE_CALL_READS,
        )
        self._opened: list[Client | FastClient] = [self.api, self.fast]
        self._limiter = call_limiter_for(self.api.meta.endpoint_url)
        self.region: str = self.api.meta.region_name

    def _bounded(self, operation: Operation) -> Operation:
        """Returns the operation with a time limit for each call."""
        seconds = WHOLE_CALL_READS * self._read_seconds
        return with_deadline(operation, seconds=seconds, before=self._credentials.keys)

    def counting(self, counters: Counters) -> StreamsClient:
        """Returns this client with other counters, for use in another thread."""
        twin = copy.copy(self)
        twin.counters = counters
        return twin

    def renew_credentials(self) -> None:
        """Renews refused credentials: the user may have logged in again."""
        self._credentials.renew()

    def renew_expiring(self) -> None:
        """Renews credentials that expire soon, in the background."""
        self._credentials.renew_expiring()

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        """Yields all streams of the region (or of one table), also those disabled within a day."""
        return itertools.chain.from_iterable(self.stream_pages(table))

    def stream_pages(self, table: str | None = None) -> Iterator[list[StreamName]]:
        """Yields all streams of the region (or of one table), in pages of 100."""
        query: dict[str, Any] = {"TableName": table} if table else {}
        pages, found = ListingProgress("streams"), 0
        while True:
            began = time.monotonic()
            call = partial(self._call, self._bounded(self.api.list_streams), "Streams", **query)
            answer = retry_at_start(call)
            with members_required():
                names = [
                    StreamName(row["StreamArn"], row["TableName"], row["StreamLabel"])
                    for row in answer["Streams"]
                ]
            seconds = time.monotonic() - began
            yield names
            found += len(names)
            last = answer.get("LastEvaluatedStreamArn")
            if pages.add_page(last, found, seconds):
                return
            query["ExclusiveStartStreamArn"] = last

    def latest_stream(self, table: str) -> str:
        """Returns the ARN of a table's current stream; `table` is a name or an ARN.

        Raises StreamError where it has none, or where the service answers for another account or
        region.
        """
        return current_stream(self, table)

    def describe_table(self, table: str) -> ParsedAnswer:
        """Returns a table's description, by name or ARN. Raises ShardNotFoundError."""
        operation = self._bounded(self._for_tables().describe_table)
        found: dict[str, Any] = self._call(operation, "Table", TableName=table)["Table"]
        return found

    def _for_tables(self) -> Client:
        if self._tables is None:
            self._tables = self._clients.new("dynamodb")
            self._opened.append(self._tables)
        return self._tables

    def tags(self, table: str) -> dict[str, str]:
        """Returns a table's tags, by its ARN or its name; empty where the table is deleted.

        A deleted table's stream is listed for another day, and must not hide the others.
        """
        operation = self._bounded(self._for_tables().list_tags_of_resource)
        tags: dict[str, str] = {}
        is_arn = table.startswith("arn:")
        with contextlib.suppress(ShardNotFoundError):
            query = {"ResourceArn": table if is_arn else self.describe_table(table)["TableArn"]}
            while True:
                answer = self._call(operation, "Tags", **query)
                tags |= {row["Key"]: row.get("Value", "") for row in answer["Tags"]}
                if not (more := answer.get("NextToken")):
                    break
                query["NextToken"] = more
        return tags

    def table(self, arn: str) -> str:
        """Returns the name for a stream's table in calls: its ARN, or its name.

        Raises StreamError.
        """
        if (table := table_of(arn)) != arn:
            return table
        try:
            answer = self._describe({"StreamArn": arn, "Limit": 1})
        except ShardNotFoundError:
            raise no_such_stream(arn) from None
        return str(answer["StreamDescription"].get("TableName") or arn)

    def list_shards(self, arn: str) -> Listing:
        """Returns the stream and all its shards, read page by page (100 shards each)."""
        return read_listing(arn, self._describe)

    def _describe(self, query: Query) -> ParsedAnswer:
        """Calls DescribeStream within its rate limit, and retries calls without an answer."""
        call = partial(self._call, self.fast.describe_stream, "StreamDescription", **query)
        turn = self._limiter.turn
        time.sleep(turn())
        try:
            return retry(
                call,
                pauses=(turn() for _ in range(self._attempts - 1)),
                may_pass=lambda error: isinstance(error, TransientError) and error.unreachable,
                sleep=time.sleep,
            )
        except TransientError as error:
            if error.throttled:
                self._limiter.on_throttled()
            raise

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """Returns a finished shard's children, with one call where the service has the filter.

        DynamoDB Local ignores the filter and lists all: hence the check of the parent.
        """
        query = {
            "StreamArn": arn,
            "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": shard_id},
        }
        shards = self._describe(query)["StreamDescription"].get("Shards", ())
        return [to_shard(row) for row in shards if row.get("ParentShardId") == shard_id]

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """Returns an iterator at a position of a shard, and a time no later than that moment.

        It is the service's time, or ours (see `no_later`).

        Raises TrimmedDataError, ShardNotFoundError, TimestampRefusedError.
        """
        query = {"StreamArn": arn, "ShardId": shard_id, **iterator_at(position)}
        try:
            answer = self._call(self.fast.get_shard_iterator, "ShardIterator", **query)
        except StreamError as error:
            code = error_code(error.__cause__)
            if isinstance(position, AtTime) and code == "ValidationException":
                raise TimestampRefusedError(str(error)) from error
            raise
        return answer["ShardIterator"], no_later(service_time(answer), time.time())

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        """Returns the body of one GetRecords answer, for `page.decode` and `page.records`.

        With `limit` it holds at most that many records.

        Raises ExpiredIteratorError, TrimmedDataError, ShardNotFoundError.
        """
        query: dict[str, Any] = {"ShardIterator": iterator}
        if limit is not None:
            query["Limit"] = limit
        return self._records(**query)

    def prefetch_records(self, iterator: str) -> Callable[[], bytes] | None:
        """Sends a GetRecords call; returns a function that waits for its answer.

        The function raises as `get_records`. None where calls can't be sent ahead.
        """
        pending = self.fast.ask(ShardIterator=iterator)
        if pending is None:
            return None
        return partial(self._records, pending=pending, ShardIterator=iterator)

    def _records(self, **query: object) -> bytes:
        body: bytes = self._call(self.fast.get_records, "Body", **query)["Body"]
        self.counters.answer()
        return body

    def prepare(self, arn: str) -> None:
        """Learns how to call for this stream's shards.

        Call it before a fork: all children share the loaded data.
        """
        with contextlib.suppress(boto.BotoCoreError):  # the first call raises it again
            self.fast.prepare(arn)

    def close(self) -> None:
        """Closes its connections; a later call opens new ones."""
        for each in self._opened:
            each.close()

    def _call(self, operation: Operation, member: str, **query: object) -> ParsedAnswer:
        """Calls an operation; returns its answer. Raises UnexpectedAnswerError without `member`.

        Such an answer would otherwise mean the end of a shard, or a stream without shards.
        """
        name = operation.__name__.title().replace("_", "")
        self.counters.call(name)
        try:
            answer = self._answer(operation, name, query)
            if member in answer:
                return answer
            raise UnexpectedAnswerError(f"{name}: an answer without {member}")
        except (boto.ClientError, boto.BotoCoreError, ResponseParserError) as error:
            raise self._counted(to_watcher_error(error)) from error

    def _answer(self, operation: Operation, name: str, query: Query) -> ParsedAnswer:
        """Returns an operation's answer; with several attempts, a user may wait for it."""
        if self._attempts == 1:
            return operation(**query)
        self._credentials.keys()  # first: the user may be asked for an MFA code
        with log_if_slow(partial(_unanswered, name, query)):
            return operation(**query)

    def _counted(self, meaning: WatcherError) -> WatcherError:
        """Counts a throttled call, and returns its error.

        A separate function: an error that is held by the raising frame keeps its socket open.
        """
        if isinstance(meaning, TransientError) and meaning.throttled:
            self.counters.throttle()
        return meaning


def _unanswered(name: str, query: Query, seconds: float) -> str:
    about = query.get("StreamArn") or query.get("TableName")
    action = f"{name} of {table_name(about)}" if about else name
    return f"{action}: no answer for {seconds:g} s; still waiting"


def iterator_at(position: Position) -> ParsedAnswer:
    """Returns GetShardIterator's parameters for a position."""
    match position:
        case Latest():
            return {"ShardIteratorType": "LATEST"}
        case TrimHorizon():
            return {"ShardIteratorType": "TRIM_HORIZON"}
        case AtSequence(number):
            return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": number}
        case AfterSequence(number):
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        case AtTime(moment):
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
