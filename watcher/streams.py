"""The only file that talks to botocore: the calls watcher makes, and what their errors mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import botocore.session
import msgspec
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory

from watcher.errors import (
    ExpiredIteratorError,
    ServiceError,
    ShardNotFoundError,
    StreamError,
    TimestampRefusedError,
    TransientError,
    TrimmedDataError,
    WatcherError,
)
from watcher.position import AfterSequence, AtSequence, AtTime, Latest, Position, TrimHorizon

_ARN = re.compile(
    r"arn:(?P<partition>[\w-]+):dynamodb:(?P<region>[\w-]*):(?P<account>\d*):table/"
    r"(?P<table>[\w.-]{1,255})(?:/stream/(?P<label>[\w:.-]+))?"
)
_TABLE = re.compile(r"[\w.-]{3,255}")

# Nothing in a DynamoDB Streams answer takes this long; a dead peer is found in seconds.
_CONNECT_SECONDS = 5
_READ_SECONDS = 20

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

    def __init__(self, connection: Connection, arn_region: str | None = None) -> None:
        try:
            session = botocore.session.Session(profile=connection.profile)
            session.register_component("response_parser_factory", _RawPages())
            self._session = session
            self._settings: dict[str, Any] = {
                "region_name": _region(connection, session, arn_region),
                "endpoint_url": connection.endpoint_url,
                "config": Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=_READ_SECONDS,
                    retries={"mode": "standard", "total_max_attempts": 3},
                    tcp_keepalive=True,
                    user_agent_extra="watcher",
                ),
            }
            self._client: Any = session.create_client("dynamodbstreams", **self._settings)
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
                answer = self._call(self._client.describe_stream, "StreamDescription", **query)
            except ShardNotFoundError:
                raise StreamError(
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
            answer = self._call(self._client.get_shard_iterator, "ShardIterator", **query)
        except StreamError as error:
            if isinstance(position, AtTime) and _code(error.__cause__) == "ValidationException":
                raise TimestampRefusedError(str(error)) from error
            raise
        return answer["ShardIterator"], _service_time(answer)

    def records(self, iterator: str) -> bytes:
        """The body of one GetRecords answer, for `page.decode` and `page.records`.

        Raises ExpiredIteratorError, TrimmedDataError, ShardNotFoundError.
        """
        body: bytes = self._call(self._client.get_records, "Body", ShardIterator=iterator)["Body"]
        return body

    def _call(self, operation: Callable[..., Any], member: str, **query: Any) -> Any:
        """Call an operation whose answer has this member.

        botocore takes a 200 answer whose body is cut off for an empty one: it would say that a
        shard has ended, or that a stream has none.
        """
        try:
            answer = operation(**query)
            if member in answer:
                return answer
            raise TransientError(f"an answer without {member}")
        except (boto.ClientError, boto.BotoCoreError, ResponseParserError) as error:
            raise _translated(error) from error


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
    try:
        return streams, streams.latest_stream(arn["table"] if arn else text)
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


def _translated(error: Exception) -> WatcherError:
    """What an error of botocore means to the reader."""
    if isinstance(error, _PASSING):
        return TransientError(_one_line(error))
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
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return StreamError(
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
            return StreamError(f"AWS refused the credentials ({text}); renew them, or --profile")
    return StreamError(text)


def _code(error: BaseException | None) -> str:
    if not isinstance(error, boto.ClientError):
        return ""
    # "com.amazonaws.dynamodb#X" is botocore's work to shorten; an emulator's own "X:" is not.
    return str(error.response.get("Error", {}).get("Code", ""))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
