"""The only file that talks to botocore: the calls watcher makes, and what their errors mean."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import botocore.session
import msgspec
from botocore import exceptions as boto
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.httpsession import get_cert_path
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory
from botocore.utils import get_environ_proxies

from watcher.errors import (
    CredentialsError,
    ExpiredIteratorError,
    ServiceError,
    ShardNotFoundError,
    StreamError,
    StreamGoneError,
    TimestampRefusedError,
    TransientError,
    TrimmedDataError,
    WatcherError,
)
from watcher.http import PlainHTTP
from watcher.position import AfterSequence, AtSequence, AtTime, Latest, Position, TrimHorizon
from watcher.tally import Tally

_ARN = re.compile(
    r"arn:(?P<partition>[\w-]+):dynamodb:(?P<region>[\w-]*):(?P<account>\d*):table/"
    r"(?P<table>[\w.-]{1,255})(?:/stream/(?P<label>[\w:.-]+))?"
)
_OPENED = re.compile(r"shardId-(\d{20})-")
_TABLE = re.compile(r"[\w.-]{3,255}")

# Nothing in a DynamoDB Streams answer takes this long; a dead peer is found in seconds.
_CONNECT_SECONDS = 5
_READ_SECONDS = 10
_READ_SECONDS_LOOP = 3
_PAUSES_AT_START = (0.2, 0.4, 0.8, 1.6)
_PAUSES_IN_LISTING = (0.05, 0.1, 0.2)

_THROTTLED = {
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
}
_TRANSIENT = {
    "InternalFailure",
    "InternalServerError",
    "InternalServerErrorException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
}
_NO_PERMISSION = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_BAD_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}


# What the shortcut takes over from botocore's request; all else is made for each.
_KEPT_HEADERS = ("content-type", "user-agent", "x-amz-target")
_SCOPE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)

_Answer = TypeVar("_Answer")


class Connection(msgspec.Struct, frozen=True):
    """How to reach AWS, as the aws CLI's options of the same names; None leaves it to boto3."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None


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


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """botocore's descriptions of AWS, read once: nearly all that a client costs (45 ms)."""
    return create_loader(data_path)


class _RawPages(ResponseParserFactory):
    """Hands GetRecords' body through unparsed: botocore takes 230 ms for what takes us 2.

    Errors, and every other operation, are parsed as ever.
    """

    def create_parser(self, protocol_name: str) -> ResponseParser:
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parse_unless_page(response: Any, shape: Any) -> Any:
            if shape is None or shape.name != "GetRecordsOutput" or response["status_code"] != 200:
                return parse(response, shape)
            metadata = {"HTTPStatusCode": 200, "HTTPHeaders": response["headers"]}
            return {"Body": response["body"], "ResponseMetadata": metadata}

        parser.parse = parse_unless_page  # type: ignore[method-assign]
        return parser


class Streams:
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
    ) -> None:
        self.tally = Tally()
        """Where the calls are counted; the caller may set another."""
        try:
            session = botocore.session.Session(profile=connection.profile)
            session.register_component("response_parser_factory", _RawPages())
            loader = _loader(session.get_config_variable("data_path"))
            session.register_component("data_loader", loader)
            self._session = session
            self._settings: dict[str, Any] = {
                "region_name": _region(connection, session, arn_region),
                "endpoint_url": connection.endpoint_url,
                "config": Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=read_seconds or _READ_SECONDS,
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    tcp_keepalive=True,
                    user_agent_extra="watcher",
                ),
            }
            self._client: Any = session.create_client("dynamodbstreams", **self._settings)
            self._reads: Any = self._client
            self.region: str = self._client.meta.region_name
        except (boto.BotoCoreError, ValueError) as error:
            raise _as_user_error(error) from error

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        """All streams of the region (or of one table), the disabled ones of 24 hours included."""
        query: dict[str, Any] = {"TableName": table} if table else {}
        while True:
            answer = self._call(self._client.list_streams, "Streams", **query)
            for row in answer["Streams"]:
                yield StreamName(row["StreamArn"], row["TableName"], row["StreamLabel"])
            if not (last := answer.get("LastEvaluatedStreamArn")):
                return
            query["ExclusiveStartStreamArn"] = last

    def latest_stream(self, table: str) -> str:
        """The ARN of a table's current stream. Raises StreamError where it has none."""
        client: Any = self._session.create_client("dynamodb", **self._settings)
        try:
            answer = self._call(client.describe_table, "Table", TableName=table)
        except ShardNotFoundError:
            raise StreamError(
                f"no table {table!r} in {client.meta.region_name}: "
                "check the name, --region and --profile"
            ) from None
        arn: str | None = answer["Table"].get("LatestStreamArn")
        if arn is None:
            raise StreamError(
                f"table {table!r} has no stream; enable one: aws dynamodb update-table "
                f"--table-name {table} --stream-specification "
                "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
            )
        return arn

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
                shards[row["ShardId"]] = _shard(row)
            if not (last := stream.get("LastEvaluatedShardId")):
                return Listing(
                    arn=stream["StreamArn"],
                    table=stream.get("TableName", ""),
                    status=stream.get("StreamStatus", ""),
                    view_type=stream.get("StreamViewType", ""),
                    shards=list(shards.values()),
                    pages=pages,
                    time=_service_time(answer),
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
            if isinstance(position, AtTime) and _code(error.__cause__) == "ValidationException":
                raise TimestampRefusedError(str(error)) from error
            raise
        return answer["ShardIterator"], _service_time(answer)

    def records(self, iterator: str) -> bytes:
        """The body of one GetRecords answer, for `page.decode` and `page.records`.

        Raises ExpiredIteratorError, TrimmedDataError, ShardNotFoundError.
        """
        body: bytes = self._call(self._reads.get_records, "Body", ShardIterator=iterator)["Body"]
        return body

    def take_shortcut(self, arn: str) -> None:
        """Make the reading of this stream's shards cheap; each call is then tried once.

        To be called before a fork: what it learns and loads is shared by all children.
        """
        with contextlib.suppress(boto.BotoCoreError):  # the first call will say what is wrong
            self._reads = _Shortcut(self._session, self._client, arn)

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
            raise TransientError(f"an answer without {member}")
        except (boto.ClientError, boto.BotoCoreError, ResponseParserError) as error:
            translated = _translated(error)
            if isinstance(error, boto.ClientError):
                self.tally.call(name, _retries(error.response))
            if isinstance(translated, TransientError) and translated.throttled:
                self.tally.throttle()
            raise translated from error


class _Shortcut:
    """A client's `get_shard_iterator` and `get_records` without what botocore does around a call.

    botocore chooses the URL and the headers, as seen in a call that it never sends; it gives the
    credentials, signs, and reads the answers and errors. That leaves a sixth of the CPU time, and
    of 7 MB that each child's botocore takes by its first call, 4.
    """

    def __init__(self, session: Any, client: Any, arn: str) -> None:
        self._session = session
        self._client = client
        self._parser = _RawPages().create_parser("json")
        # As botocore.endpoint.EndpointCreator has it.
        chosen = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        self._ca_file: str = chosen or str(get_cert_path(True))
        self._connections: dict[str, PlainHTTP] = {}
        any_shard = {"StreamArn": arn, "ShardId": "shardId-" + "0" * 20}
        self._calls = {
            "GetShardIterator": self._seen(
                "GetShardIterator",
                client.get_shard_iterator,
                **any_shard,
                ShardIteratorType="LATEST",
            ),
            "GetRecords": self._seen(
                "GetRecords", client.get_records, ShardIterator=f"{arn}|1|any"
            ),
        }

    def get_shard_iterator(self, **query: Any) -> Any:
        """As the client's."""
        answer = self._answer("GetShardIterator", query)
        return self._client.get_shard_iterator(**query) if answer is None else answer

    def get_records(self, **query: Any) -> Any:
        """As the client's."""
        answer = self._answer("GetRecords", query)
        return self._client.get_records(**query) if answer is None else answer

    def _seen(self, operation: str, call: Callable[..., Any], **query: str) -> _Call | None:
        """A call as botocore would send it; None where it is not as we know it."""
        seen: list[Any] = []

        def stop(request: Any, **_: Any) -> None:
            seen.append(request)
            raise _NotSentError

        event = f"before-send.dynamodb-streams.{operation}"
        self._client.meta.events.register(event, stop)
        try:
            call(**query)
        except _NotSentError:
            pass
        finally:
            self._client.meta.events.unregister(event, stop)
        url = seen[0].url
        headers = {name.lower(): _text(value) for name, value in seen[0].headers.items()}
        scope = _SCOPE.match(headers.get("authorization", ""))
        is_json = headers.get("content-type", "").startswith("application/x-amz-json-1.")
        if scope is None or not is_json or urlsplit(url).scheme in get_environ_proxies(url):
            return None
        if url not in self._connections:
            config = self._client.meta.config
            timeouts = config.connect_timeout, config.read_timeout
            self._connections[url] = PlainHTTP(url, self._ca_file, *timeouts)
        http = self._connections[url]
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        shape = self._client.meta.service_model.operation_model(operation).output_shape
        return _Call(
            operation,
            url,
            kept | {"host": http.host},
            scope["service"],
            scope["region"],
            shape,
            http,
        )

    def _answer(self, operation: str, query: dict[str, Any]) -> Any:
        """An operation's answer; None where only the client can get it."""
        call = self._calls[operation]
        if call is None or not call.http.usable:
            return None
        body = json.dumps(query, default=_epoch_seconds).encode()
        request = AWSRequest("POST", call.url, call.headers, body)
        credentials = self._session.get_credentials()
        frozen = credentials and credentials.get_frozen_credentials()
        SigV4Auth(frozen, call.service, call.region).add_auth(request)
        try:
            answer = call.http.post(dict(request.headers.items()), body)
        except OSError as error:
            raise boto.HTTPClientError(error=error) from error
        if answer is None:
            return None
        response = {"status_code": answer.status, "headers": answer.headers, "body": answer.body}
        parsed = self._parser.parse(response, call.shape)
        if answer.status != 200:
            raise boto.ClientError(parsed, call.operation)
        return parsed


class _Call(NamedTuple):
    """An operation as botocore sends it."""

    operation: str
    url: str
    headers: dict[str, str]
    service: str
    region: str
    shape: Any
    http: PlainHTTP


class _NotSentError(Exception):
    """Ends a call of botocore that was made only to see what it would send."""


def for_worker(connection: Connection, arn: str) -> Streams:
    """A client for reading shards: their reader tries again by itself, and knows for how long."""
    streams = Streams(connection, arn.split(":")[3], attempts=1)
    streams.take_shortcut(arn)
    return streams


def for_loop(connection: Connection, arn: str, tally: Tally) -> Streams:
    """A client for a loop with more to do: one attempt, and no long waiting for it."""
    region = arn.split(":")[3]
    streams = Streams(connection, region, attempts=1, read_seconds=_READ_SECONDS_LOOP)
    streams.tally = tally
    return streams


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


def patiently(call: Callable[[], _Answer]) -> _Answer:
    """A call at the beginning, where there is no loop yet that comes back to it.

    A service that answers at all is asked a few times more. Raises StreamError in the end.
    """
    for pause in (*_PAUSES_AT_START, None):
        try:
            return call()
        except TransientError as error:
            if error.unreachable or pause is None:
                raise StreamError(f"can't reach the stream: {error}") from error
            time.sleep(pause)
    raise AssertionError


def connect(text: str, connection: Connection) -> tuple[Streams, str]:
    """A client for the stream that `text` names (stream ARN, table ARN, table name), and its ARN.

    Raises StreamError where there is no such stream, or no way to it.
    """
    arn = _ARN.fullmatch(text)
    if arn is None and (not _TABLE.fullmatch(text) or text.startswith("arn:")):
        raise StreamError(
            f"{text!r} is neither a stream ARN, nor a table ARN, nor a table name; "
            "see: python -m watcher streams"
        )
    streams = Streams(connection, arn["region"] if arn else None)
    if arn and arn["label"]:
        return streams, text
    table = arn["table"] if arn else text
    try:
        return streams, patiently(lambda: streams.latest_stream(table))
    except ServiceError as error:
        raise StreamError(str(error)) from error


def _region(connection: Connection, session: Any, arn_region: str | None) -> str | None:
    """An explicit region wins; the ARN's is next, unless it is an emulator's behind an endpoint."""
    if connection.region:
        return connection.region
    configured: str | None = session.get_config_variable("region")
    if connection.endpoint_url:
        return configured or arn_region or "us-east-1"
    return arn_region or configured


def _shard(row: dict[str, Any]) -> Shard:
    numbers = row.get("SequenceNumberRange", {})
    return Shard(
        id=row["ShardId"],
        parent=row.get("ParentShardId") or None,
        start=numbers.get("StartingSequenceNumber"),
        end=numbers.get("EndingSequenceNumber"),
    )


def _retries(answer: Mapping[str, Any]) -> int:
    """How often botocore has repeated the call by itself."""
    return int(answer["ResponseMetadata"].get("RetryAttempts", 0))


def _service_time(answer: dict[str, Any]) -> datetime:
    """The service's clock, not ours: ours may be wrong by minutes."""
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, ValueError):
        return datetime.now(UTC).replace(microsecond=0)


# A network's, a proxy's, or a credential service's passing trouble.
_PASSING = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.CredentialRetrievalError,
    ResponseParserError,
)
_NO_CREDENTIALS = (boto.NoCredentialsError, boto.PartialCredentialsError)
_OLD_CREDENTIALS = (
    boto.RefreshWithMFAUnsupportedError,
    boto.SSOError,
    boto.TokenRetrievalError,
)
# … and that of them where it is no use for a beginner to wait.
_UNREACHABLE = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.ReadTimeoutError,
    boto.SSLError,
)


def _translated(error: Exception) -> WatcherError:
    """What an error of botocore means to the reader."""
    if isinstance(error, _PASSING):
        return TransientError(_one_line(error), unreachable=isinstance(error, _UNREACHABLE))
    if not isinstance(error, boto.ClientError):
        return _as_user_error(error)
    code = _code(error)
    text = _one_line(error)
    if code in _THROTTLED:
        return TransientError(text, throttled=True)
    if code in _TRANSIENT or error.response["ResponseMetadata"].get("HTTPStatusCode", 0) >= 500:
        return TransientError(text)
    if code == "ExpiredIteratorException":
        return ExpiredIteratorError(text)
    if code == "TrimmedDataAccessException":
        return TrimmedDataError(text)
    if code == "ResourceNotFoundException":
        return ShardNotFoundError(text)
    return _as_user_error(error)


def _as_user_error(error: Exception) -> StreamError:
    """One line that says what to do, for what only the user can mend."""
    text = _one_line(error)
    if isinstance(error, _NO_CREDENTIALS):
        return CredentialsError(
            "no AWS credentials: run `aws configure`, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or choose a --profile"
        )
    if isinstance(error, boto.NoRegionError):
        return StreamError("no AWS region: give --region, or set AWS_DEFAULT_REGION")
    if isinstance(error, boto.ClientError):
        code = _code(error)
        if code in _NO_PERMISSION:
            return StreamError(
                f"no permission ({text}); the role needs dynamodb:DescribeTable on the table, and "
                "DescribeStream, GetShardIterator, GetRecords and ListStreams on its stream"
            )
        if code in _BAD_CREDENTIALS:
            return CredentialsError(
                f"AWS refused the credentials ({text}); renew them, or --profile"
            )
    if isinstance(error, _OLD_CREDENTIALS):
        return CredentialsError(text)
    return StreamError(text)


def _epoch_seconds(time: datetime) -> int:
    return int(time.timestamp())


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _code(error: BaseException | None) -> str:
    if not isinstance(error, boto.ClientError):
        return ""
    # "com.amazonaws.dynamodb#X" is botocore's work to shorten; an emulator's own "X:" is not.
    return str(error.response.get("Error", {}).get("Code", ""))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
