"""StreamsClient's methods over the simulator's model, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from tests.simulator.service import Reply, Service
from watcher.aws.client import WHOLE_CALL_READS, CallRateLimiter, iterator_at
from watcher.aws.counters import Counters
from watcher.aws.discovery import current_stream
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.aws.listings import read_listing, to_shard
from watcher.aws.model import AtTime, Listing, Position, Shard, StreamName
from watcher.errors import StreamError, TimestampRefusedError, TransientError, UnexpectedAnswerError

_STREAMS = "DynamoDBStreams_20120810."
_TABLES = "DynamoDB_20120810."
_URL = "https://streams.dynamodb.us-east-1.amazonaws.com"


class Credentials:
    """What lies in ~/.aws/credentials: the key that new clients take."""

    def __init__(self) -> None:
        self.key = "key-0"


class SimulatedClient:
    """A client of one process; `wait` lets the process's own time pass."""

    def __init__(
        self,
        service: Service,
        credentials: Credentials,
        wait: Callable[[float], None],
        read_seconds: float,
        limiter: CallRateLimiter,
        granted: Callable[[str, Position], None],
        listed: Callable[[], None],
        silent: Callable[[float], None],
    ) -> None:
        self.counters = Counters()
        self.region = "us-east-1"
        self._service = service
        self._credentials = credentials
        self._key = credentials.key
        self._wait = wait
        self._read_seconds = read_seconds
        self._limiter = limiter
        self._granted = granted
        self._listed = listed
        self._silent = silent
        self._answered_at = 0.0

    def renew_credentials(self) -> None:
        self._key = self._credentials.key

    def renew_expiring(self) -> None:
        """Nothing ends by itself here."""

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        query = {"TableName": table} if table else {}
        for row in self._call(_STREAMS, "ListStreams", query)["Streams"]:
            yield StreamName(row["StreamArn"], row["TableName"], row["StreamLabel"])

    def latest_stream(self, table: str) -> str:
        return current_stream(self, table)

    def describe_table(self, table: str) -> dict[str, Any]:
        answer: dict[str, dict[str, Any]]
        answer = self._call(_TABLES, "DescribeTable", {"TableName": table})
        return answer["Table"]

    def list_shards(self, arn: str) -> Listing:
        listing = read_listing(arn, self._describe, self._wait)
        self._listed()
        return listing

    def _describe(self, query: Mapping[str, Any]) -> Any:
        self._wait(self._limiter.turn())
        answer = self._call(_STREAMS, "DescribeStream", {**query})
        stream = answer["StreamDescription"]
        created = stream["CreationRequestDateTime"]
        stream["CreationRequestDateTime"] = datetime.fromtimestamp(created, UTC)
        date = format_datetime(self._time(), usegmt=True)
        return {**answer, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        query = {"StreamArn": arn, "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": shard_id}}
        rows = self._describe(query)["StreamDescription"]["Shards"]
        return [to_shard(row) for row in rows if row.get("ParentShardId") == shard_id]

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        query: dict[str, Any] = {"StreamArn": arn, "ShardId": shard_id, **iterator_at(position)}
        if isinstance(position, AtTime):
            query["Timestamp"] = position.time.timestamp()
        try:
            answer = self._call(_STREAMS, "GetShardIterator", query)
        except StreamError as error:
            code = error_code(error.__cause__)
            if isinstance(position, AtTime) and code == "ValidationException":
                raise TimestampRefusedError(str(error)) from error
            raise
        self._granted(shard_id, position)
        return answer["ShardIterator"], self._time()

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        query: dict[str, Any] = {"ShardIterator": iterator}
        if limit is not None:
            query["Limit"] = limit
        body = self._body(_STREAMS, "GetRecords", query)
        self.counters.answer()
        return body

    def prefetch_records(self, iterator: str) -> Callable[[], bytes]:
        """The service answers now; who takes the answer may come much later."""
        now = self._service.world.now
        reply, asked_at = self._asked(_STREAMS, "GetRecords", {"ShardIterator": iterator}), now()

        def taken() -> bytes:
            if reply.trouble in ("reset", "reset-midway"):
                return self.get_records(iterator)
            body = self._taken(reply, "GetRecords", now() - asked_at)
            self.counters.answer()
            return body

        return taken

    def _time(self) -> datetime:
        """The Date header, in whole seconds: of the answering, not of the answer's arrival."""
        return datetime.fromtimestamp(self._service.date(self._answered_at), UTC)

    def _call(self, target: str, operation: str, query: dict[str, Any]) -> Any:
        return msgspec.json.decode(self._body(target, operation, query))

    def _body(self, target: str, operation: str, query: dict[str, Any]) -> bytes:
        return self._taken(self._asked(target, operation, query), operation)

    def _asked(self, target: str, operation: str, query: dict[str, Any]) -> Reply:
        self.counters.call(operation)
        self._wait(0.0)  # as long as a program lives
        self._answered_at = self._service.world.now()
        return self._service.ask(target + operation, query, self._key)

    def _taken(self, reply: Reply, operation: str, since: float = 0.0) -> bytes:
        """The body of an answer that was asked for so many seconds ago."""
        silent = {"hang": self._read_seconds, "drip": WHOLE_CALL_READS * self._read_seconds}
        if reply.trouble in silent:
            self._silent(silent[reply.trouble])
        self._wait(max(0.0, silent.get(reply.trouble, reply.delay) - since))
        if reply.trouble == "invalid-json" and operation == "GetRecords":
            return reply.body[: reply.cut]
        if reply.status < 300 and reply.trouble in ("", "empty"):
            if reply.body.startswith(b"{"):
                return reply.body
            raise UnexpectedAnswerError(f"{operation}: HTTP {reply.status} with {reply.body!r}")
        cause = _as_botocore(reply, operation)
        meaning = to_watcher_error(cause)
        if isinstance(meaning, TransientError) and meaning.throttled:
            self.counters.throttle()
        raise meaning from cause


def _as_botocore(reply: Reply, operation: str) -> Exception:
    match reply.trouble:
        case "hang" | "drip":
            return boto.ReadTimeoutError(endpoint_url=_URL)
        case "reset" | "reset-midway":
            return boto.ConnectionClosedError(endpoint_url=_URL)
        case "truncate":
            return boto.IncompleteReadError(actual_bytes=reply.cut, expected_bytes=len(reply.body))
        case "invalid-json":
            return ResponseParserError("Unable to parse response")
    if reply.body[:1] in (b"<", b""):
        error = {"Code": str(reply.status), "Message": repr(reply.body)}
    else:
        wire: Mapping[str, str] = msgspec.json.decode(reply.body)
        error = {"Code": wire["__type"].rpartition("#")[2], "Message": wire["message"]}
    response: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": reply.status}}
    return boto.ClientError(response, operation)
