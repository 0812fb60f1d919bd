"""The calls that watcher makes; sent, signed and retried by botocore."""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError

from watcher.errors import (
    ShardNotFoundError,
    StreamError,
    StreamGoneError,
    TimestampRefusedError,
    TransientError,
    WatcherError,
)
from watcher.service import advice, login
from watcher.service.connection import Connection, region_of
from watcher.service.credentials import Credentials, Signing
from watcher.service.current_stream import current_stream
from watcher.service.errors_of import as_user_error, code_of, translated
from watcher.service.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    Shard,
    StreamName,
    TrimHorizon,
    without_circles,
)
from watcher.service.shortcut import RawPages, Shortcut
from watcher.service.side_by_side import side_by_side
from watcher.service.tally import Tally
from watcher.version import __version__

# Nothing in a DynamoDB Streams answer takes this long; a dead peer is found in seconds.
_CONNECT_SECONDS = 5
_READ_SECONDS = 10
# A clock may be off; a header that is further off is none.
_YEARS_OFF = 20
_PAUSES_IN_LISTING = (0.05, 0.1, 0.2)


class StreamsClient:
    """A client for DynamoDB Streams; one process's own (its sockets can't cross a fork).

    Every method raises StreamError for what only the user can mend (no permission, no
    credentials, not found), TransientError for what may work a moment later.
    """

    def __init__(
        self,
        connection: Connection,
        arn_region: str | None = None,
        attempts: int = 3,
        read_seconds: float | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.tally = Tally()
        """Where the calls are counted; the caller may set another."""
        self._tables: Any = None
        try:
            session = login.session(connection)
            region = region_of(connection, session, arn_region)
            self._credentials = credentials or login.own_credentials(connection, region)
            session.register_component("credential_provider", Signing(self._credentials))
            session.register_component("response_parser_factory", RawPages())
            self._session = session
            self._settings: dict[str, Any] = {
                "region_name": region,
                "endpoint_url": connection.endpoint_url,
                "config": Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=read_seconds or _READ_SECONDS,
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    tcp_keepalive=True,
                    user_agent_extra=f"watcher/{__version__}",
                ),
            }
            self._client: Any = session.create_client("dynamodbstreams", **self._settings)
            self._reads: Any = self._client
            self.region: str = self._client.meta.region_name
        except (boto.BotoCoreError, ValueError) as error:
            told = as_user_error(error)
            told.option = connection.to_blame(error)
            raise told from error

    def counting(self, tally: Tally) -> StreamsClient:
        """This client for one more use, also in another thread: its calls are counted there."""
        twin = copy.copy(self)
        twin.tally = tally
        return twin

    def renew(self) -> None:
        """The credentials were refused; somebody may have logged in again."""
        self._credentials.renew()

    def tend(self) -> None:
        """Renew the credentials ahead of their end, without keeping the caller."""
        self._credentials.tend()

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        """All streams of the region (or of one table), the disabled ones of 24 hours included."""
        return itertools.chain.from_iterable(self.stream_pages(table))

    def stream_pages(self, table: str | None = None) -> Iterator[list[StreamName]]:
        """The same page by page, of 100 each."""
        query: dict[str, Any] = {"TableName": table} if table else {}
        while True:
            answer = self._call(self._client.list_streams, "Streams", **query)
            with _as_the_services():
                names = [
                    StreamName(row["StreamArn"], row["TableName"], row["StreamLabel"])
                    for row in answer["Streams"]
                ]
            yield names
            if not (last := answer.get("LastEvaluatedStreamArn")):
                return
            query["ExclusiveStartStreamArn"] = last

    def latest_stream(self, table: str) -> str:
        """The ARN of the current stream of a table, which its name or its ARN names.

        Raises StreamError where it has none, or where this is not the account or region for it.
        """
        try:
            return current_stream(self, table)
        except WatcherError as error:
            error.add(self._on_endpoints(error))
            raise

    def _on_endpoints(self, error: WatcherError) -> str:
        """What to set where tables are asked for at another place than streams."""
        if self._tables is None:
            return ""
        places = self._tables.meta.endpoint_url, self._client.meta.endpoint_url
        is_unknown = code_of(error.__cause__) == "UnknownOperationException"
        return advice.on_endpoints(*places, is_unknown)

    def describe_table(self, table: str) -> dict[str, Any]:
        """A table by its name or its ARN. Raises ShardNotFoundError where there is none."""
        client = self._tables = self._session.create_client("dynamodb", **self._settings)
        found: dict[str, Any] = self._call(client.describe_table, "Table", TableName=table)["Table"]
        return found

    def tags(self, table_arn: str) -> dict[str, str]:
        """A table's tags."""
        client: Any = self._session.create_client("dynamodb", **self._settings)
        tags: dict[str, str] = {}
        query = {"ResourceArn": table_arn}
        while True:
            answer = self._call(client.list_tags_of_resource, "Tags", **query)
            tags |= {row["Key"]: row.get("Value", "") for row in answer["Tags"]}
            if not (more := answer.get("NextToken")):
                return tags
            query["NextToken"] = more

    def status(self, arn: str) -> str:
        """A stream's StreamStatus."""
        answer = self._call(
            self._client.describe_stream, "StreamDescription", StreamArn=arn, Limit=1
        )
        return str(answer["StreamDescription"].get("StreamStatus", ""))

    def listing(self, arn: str) -> Listing:
        """The stream and all its shards, page by page (100 shards each)."""
        shards: dict[str, Shard] = {}
        query = {"StreamArn": arn}
        pages = 0
        while True:
            try:
                answer = self._describe(query)
            except ShardNotFoundError:
                raise StreamGoneError(
                    f"no stream {arn}: it was deleted, or is of another region or account; "
                    "see: python -m watcher streams"
                ) from None
            stream = answer["StreamDescription"]
            pages += 1
            for row in stream.get("Shards", ()):
                shard = _shard(row)
                shards[shard.id] = shard
            if not (last := stream.get("LastEvaluatedShardId")):
                return Listing(
                    arn=stream.get("StreamArn", arn),
                    table=stream.get("TableName", ""),
                    status=stream.get("StreamStatus", ""),
                    view_type=stream.get("StreamViewType", ""),
                    shards=without_circles(shards.values()),
                    pages=pages,
                    time=_service_time(answer),
                    created=stream.get("CreationRequestDateTime"),
                )
            query["ExclusiveStartShardId"] = last

    def _describe(self, query: dict[str, Any]) -> Any:
        """One page of a listing, asked for again by itself: a large stream has dozens of them."""
        for pause in _PAUSES_IN_LISTING:
            try:
                return self._call(self._client.describe_stream, "StreamDescription", **query)
            except TransientError as error:
                if error.unreachable:
                    raise
                time.sleep(pause)
        return self._call(self._client.describe_stream, "StreamDescription", **query)

    def children(self, arn: str, shard_id: str) -> list[Shard]:
        """The children of a finished shard, by one call where the service knows the filter.

        DynamoDB Local ignores the filter and lists all: hence the check of the parent.
        """
        shards = self._call(
            self._client.describe_stream,
            "StreamDescription",
            StreamArn=arn,
            ShardFilter={"Type": "CHILD_SHARDS", "ShardId": shard_id},
        )["StreamDescription"].get("Shards", ())
        return [_shard(row) for row in shards if row.get("ParentShardId") == shard_id]

    def iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """An iterator at a position of a shard, and the service's own time of that moment.

        Raises TrimmedDataError, ShardNotFoundError, TimestampRefusedError.
        """
        query: dict[str, Any] = {"StreamArn": arn, "ShardId": shard_id}
        match position:
            case Latest():
                query["ShardIteratorType"] = "LATEST"
            case TrimHorizon():
                query["ShardIteratorType"] = "TRIM_HORIZON"
            case AtSequence(sequence_number):
                query["ShardIteratorType"] = "AT_SEQUENCE_NUMBER"
                query["SequenceNumber"] = sequence_number
            case AfterSequence(sequence_number):
                query["ShardIteratorType"] = "AFTER_SEQUENCE_NUMBER"
                query["SequenceNumber"] = sequence_number
            case AtTime(time):
                query["ShardIteratorType"] = "AT_TIMESTAMP"
                query["Timestamp"] = time
        try:
            answer = self._call(self._reads.get_shard_iterator, "ShardIterator", **query)
        except StreamError as error:
            if isinstance(position, AtTime) and code_of(error.__cause__) == "ValidationException":
                raise TimestampRefusedError(str(error)) from error
            raise
        return answer["ShardIterator"], _service_time(answer)

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """What `iterator` raises for each of these shards, at its trim horizon; asked at once."""
        return side_by_side(
            {name: partial(self.iterator, arn, name, TrimHorizon()) for name in shard_ids}
        )

    def records(self, iterator: str) -> bytes:
        """The body of one GetRecords answer, for `page.decode` and `page.records`.

        Raises ExpiredIteratorError, TrimmedDataError, ShardNotFoundError.
        """
        body: bytes = self._call(self._reads.get_records, "Body", ShardIterator=iterator)["Body"]
        self.tally.answer()
        return body

    def take_shortcut(self, arn: str) -> None:
        """Make the reading of this stream's shards cheap; each call is then tried once.

        To be called before a fork: what it learns and loads is shared by all children.
        """
        with contextlib.suppress(boto.BotoCoreError):  # the first call will say what is wrong
            self._reads = Shortcut(self._session, self._client, arn)

    def _call(self, operation: Callable[..., Any], member: str, **query: Any) -> Any:
        """Call an operation whose answer has this member.

        botocore takes a 200 answer whose body is cut off for an empty one: it would say that a
        shard has ended, or that a stream has none.
        """
        name = operation.__name__.title().replace("_", "")
        self.tally.call(name)
        try:
            answer = operation(**query)
            self.tally.call(name, _retries(answer))
            if member in answer:
                return answer
            raise TransientError(advice.page_in(answer) or f"an answer without {member}")
        except (boto.ClientError, boto.BotoCoreError, ResponseParserError) as error:
            meaning = translated(error)
            if isinstance(error, boto.ClientError):
                self.tally.call(name, _retries(error.response))
            if isinstance(meaning, TransientError) and meaning.throttled:
                self.tally.throttle()
            raise meaning from error


def _shard(row: dict[str, Any]) -> Shard:
    with _as_the_services():
        numbers = row.get("SequenceNumberRange", {})
        return Shard(
            id=row["ShardId"],
            parent=row.get("ParentShardId") or None,
            start=numbers.get("StartingSequenceNumber"),
            end=numbers.get("EndingSequenceNumber"),
        )


@contextlib.contextmanager
def _as_the_services() -> Iterator[None]:
    """Without one of its members, an answer is none of the service's, or not all of it."""
    try:
        yield
    except KeyError as error:
        raise TransientError(f"an answer without {error}") from error


def _retries(answer: Mapping[str, Any]) -> int:
    """How often botocore has repeated the call by itself."""
    return int(answer["ResponseMetadata"].get("RetryAttempts", 0))


def _service_time(answer: dict[str, Any]) -> datetime:
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
