"""An optimization: reads shards without botocore's overhead (a sixth of the CPU time).

Correctness never depends on it: botocore makes every call whose form is not known here.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore import xform_name
from botocore.awsrequest import AWSPreparedRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.httpsession import get_cert_path
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory
from botocore.utils import get_environ_proxies

from watcher.aws import error_hints
from watcher.aws.config import Client, Operation, ParsedAnswer, Query
from watcher.aws.credentials import Session, ca_file
from watcher.aws.http import HTTPConnections, OverdueAnswerError, PendingResponse, Timeouts
from watcher.aws.signing import Signer
from watcher.errors import CredentialsError, TransientError, UnexpectedAnswerError

# The headers copied from botocore's request; the others are made for each call.
_KEPT_HEADERS = ("content-type", "user-agent", "x-amz-target")
_SCOPE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)

_ANY_SHARD = {"ShardId": "shardId-" + "0" * 20, "ShardIteratorType": "LATEST"}
_PAGES = ("GetRecordsOutput", "ScanOutput", "QueryOutput")
_SUCCESS = 200  # DynamoDB's only success status
_FIRST_ERROR = 300  # as in botocore
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_SHOWN_BYTES = 100
_READ_BYTES = 5000
_PENDING_MAX = 4
"""The number of answers that may wait to be taken, with up to a megabyte each."""

_OutputShape: TypeAlias = Any
"""botocore's Shape, or None for an operation without one, which its stubs omit."""


class RawPages(ResponseParserFactory):
    """Leaves bodies of GetRecords, Scan, Query unparsed: botocore takes 230 ms for what takes us 2.

    botocore parses errors, and all other operations.
    """

    def create_parser(self, protocol_name: str) -> ResponseParser:
        """Returns botocore's parser, changed for these two operations."""
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parse_unless_page(response: ParsedAnswer, shape: _OutputShape) -> ParsedAnswer:
            status = response["status_code"]
            metadata = {"HTTPStatusCode": status, "HTTPHeaders": response["headers"]}
            is_answer = protocol_name == "json" and shape is not None and status < _FIRST_ERROR
            if is_answer:
                _refuse_other_bodies(response["body"], shape.name, metadata)
            if is_answer and shape.name in _PAGES:
                return {"Body": response["body"], "ResponseMetadata": metadata}
            try:
                parsed: ParsedAnswer = parse(response, shape)
                error = parsed.get("Error", {})
                if status >= _FIRST_ERROR and not error.get("Message"):
                    error["Message"] = error_hints.not_json_hint(response["body"], metadata)
                # botocore takes a truncated answer for an empty one.
                if is_answer and parsed.keys() <= {"ResponseMetadata"}:
                    json.loads(response["body"])
                return parsed
            except _UNREADABLE as error:
                # Not UTF-8, not an object, or one with unknown members.
                if status < _FIRST_ERROR:
                    raise ResponseParserError(f"an answer that can't be read: {error}") from error
                text = repr(response["body"][:_SHOWN_BYTES])
                return {
                    "Error": {"Code": str(status), "Message": text},
                    "ResponseMetadata": metadata,
                }

        parser.parse = parse_unless_page  # type: ignore[method-assign]
        return parser


def _refuse_other_bodies(body: bytes, shape: str, metadata: ParsedAnswer) -> None:
    """Raises UnexpectedAnswerError for a body that is no JSON object of the service.

    A truncated answer is a passing error. botocore takes a 204 (a proxy's) for an answer without
    members: for BatchWriteItem that means that all is written, for GetItem that there is no such
    item.
    """
    is_whole = metadata["HTTPStatusCode"] == _SUCCESS  # not 206, a partial one
    if not is_whole or not body[:_SHOWN_BYTES].lstrip().startswith(b"{"):
        operation = shape.removesuffix("Output")
        raise UnexpectedAnswerError(
            f"{operation}: {error_hints.not_json_hint(body[:_READ_BYTES], metadata)}"
        )


class FastClient:
    """Makes some of a client's calls without botocore's overhead.

    botocore chooses the URL and the headers, as seen in a call that is never sent, whose signature
    ours has to equal; it provides the credentials, and parses the answers and errors. That takes an
    eighth of the CPU time, and saves 3 of the 7 MB that a child's first botocore call takes; and it
    limits the time of each whole call. The client makes other calls, `bounded` (see
    `with_deadline`). Thread-safe.
    """

    def __init__(
        self,
        session: Session,
        client: Client,
        *,
        bounded: Callable[[Operation], Operation],
        whole_call_reads: int,
    ) -> None:
        self._session = session
        self._client = client
        self._bounded = bounded
        self._whole_call_reads = whole_call_reads
        self._parser = RawPages().create_parser("json")
        self.ca_file: str = ca_file(session) or str(get_cert_path(True))
        self._http: HTTPConnections | None = None
        self._calls: dict[str, RequestTemplate | None] = {}
        self._learning = threading.Lock()
        self._pending: weakref.WeakSet[PendingResponse] = weakref.WeakSet()

    def prepare(self, arn: str) -> None:
        """Learns botocore's requests for a stream's shards, before the first read."""
        self._known_call("GetShardIterator", {**_ANY_SHARD, "StreamArn": arn})
        self._known_call("GetRecords", {"ShardIterator": f"{arn}|1|any"})

    def close(self) -> None:
        """Closes its connections; the next call opens new ones."""
        if self._http is not None:
            self._http.close()
        for pending in list(self._pending):
            pending.close()

    def describe_stream(self, **query: object) -> ParsedAnswer:
        """Calls DescribeStream as the client does."""
        return self._call("DescribeStream", query)

    def get_shard_iterator(self, **query: object) -> ParsedAnswer:
        """Calls GetShardIterator as the client does."""
        return self._call("GetShardIterator", query)

    def get_records(self, pending: PendingResponse | None = None, **query: object) -> ParsedAnswer:
        """Calls GetRecords as the client does; with `pending`, takes the answer to that call."""
        return self._call("GetRecords", query, pending)

    def _call(
        self, operation: str, query: Query, pending: PendingResponse | None = None
    ) -> ParsedAnswer:
        answer = self._answer(operation, query, pending)
        if answer is None:
            return self._bounded(getattr(self._client, xform_name(operation)))(**query)
        return answer

    def ask(self, **query: object) -> PendingResponse | None:
        """Sends GetRecords ahead; None where only `get_records` works, or too many are pending.

        Answers wait in the system's memory, with up to a megabyte each.
        """
        try:
            call = self._known_call("GetRecords", query)
            if call is None or not call.http.usable or len(self._pending) >= _PENDING_MAX:
                return None
            pending = call.http.post(*self._signed(call, query))
        except (OSError, boto.BotoCoreError, CredentialsError):  # the read will raise it again
            return None
        self._pending.add(pending)
        return pending

    def call_of(self, operation: str) -> RequestTemplate | None:
        """Returns an operation's request form; None if botocore makes it, or before a call."""
        return self._calls.get(operation)

    def _known_call(self, operation: str, query: Query) -> RequestTemplate | None:
        """Returns an operation's request form; None where botocore has to make the call."""
        if operation not in self._calls:
            with self._learning:  # a call that is only watched must not be another thread's
                if operation not in self._calls:
                    self._calls[operation] = self._learned(operation, query)
        return self._calls[operation]

    def _learned(self, operation: str, query: Query) -> RequestTemplate | None:
        """Returns botocore's request form for a call; None if it is not the known one."""
        request = self._unsent_request(operation, query)
        url = request.url
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        scope = _SCOPE.match(headers.get("authorization", ""))
        is_json = headers.get("content-type", "").startswith("application/x-amz-json-1.")
        body = request.body
        if not isinstance(body, bytes) or scope is None or not is_json:
            return None
        if urlsplit(url).scheme in get_environ_proxies(url):
            return None
        http = self._connections_to(url)
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        kept["host"] = http.host
        signer = Signer(url, kept, service=scope["service"], region=scope["region"])
        signed = signer.headers(body, self._frozen_keys(), headers["x-amz-date"])
        if signed["Authorization"] != headers["authorization"]:
            return None
        shape = self._client.meta.service_model.operation_model(operation).output_shape
        return RequestTemplate(operation, url, kept, signer, shape, http)

    def _unsent_request(self, operation: str, query: Query) -> AWSPreparedRequest:
        """Returns botocore's request for a call, without sending it."""
        seen: list[AWSPreparedRequest] = []

        def stop(request: AWSPreparedRequest, **_: object) -> None:
            seen.append(request)
            raise _NotSentError

        event = f"before-send.dynamodb-streams.{operation}"
        self._client.meta.events.register(event, stop)
        try:
            getattr(self._client, xform_name(operation))(**query)
        except _NotSentError:
            pass
        finally:
            self._client.meta.events.unregister(event, stop)
        return seen[0]

    def _connections_to(self, url: str) -> HTTPConnections:
        if self._http is None:
            config = self._client.meta.config
            seconds = config.connect_timeout, config.read_timeout
            timeouts = Timeouts(*seconds, self._whole_call_reads * config.read_timeout)
            self._http = HTTPConnections(url, ca_file=self.ca_file, timeouts=timeouts)
        return self._http

    def _answer(
        self, operation: str, query: Query, pending: PendingResponse | None = None
    ) -> ParsedAnswer | None:
        """Returns an operation's answer; None where only the client can get it."""
        call = self._known_call(operation, query)
        if call is None or not call.http.usable:
            return None
        try:
            if pending is None:
                answer = call.http.call(*self._signed(call, query))
            else:
                answer = pending.wait()
        except UnexpectedAnswerError as error:
            raise UnexpectedAnswerError(f"{operation}: {error}") from None
        except OverdueAnswerError as error:
            raise TransientError(f"{operation}: {error}", overdue=True) from error
        except OSError as error:
            if pending is not None and not isinstance(error, TimeoutError):
                # The server may have closed a waiting connection.
                return self._answer(operation, query)
            raise _as_botocore(error, call.url) from error
        if answer is None:
            return None
        response = {"status_code": answer.status, "headers": answer.headers, "body": answer.body}
        if answer.status >= _FIRST_ERROR:
            raise boto.ClientError(self._parser.parse(response, call.shape), call.operation)
        parsed: ParsedAnswer = self._parser.parse(response, call.shape)
        return parsed

    def _signed(self, call: RequestTemplate, query: Query) -> tuple[dict[str, str], bytes]:
        """Returns the headers and the body of a call."""
        body = _in_json(query).encode()
        return call.headers | call.signer.headers(body, self._frozen_keys()), body

    def _frozen_keys(self) -> ReadOnlyCredentials | None:
        credentials = self._session.get_credentials()
        return credentials.get_frozen_credentials() if credentials else None


class RequestTemplate(NamedTuple):
    """An operation's request, as botocore sends it."""

    operation: str
    url: str
    headers: dict[str, str]
    signer: Signer
    shape: _OutputShape
    http: HTTPConnections


class _NotSentError(Exception):
    """Stops a botocore call whose request is only examined."""


def _as_botocore(error: OSError, url: str) -> boto.BotoCoreError:
    """Returns the error that botocore would have raised."""
    match error:
        case ssl.SSLError():
            return boto.SSLError(endpoint_url=url, error=error)
        case TimeoutError():
            return boto.ReadTimeoutError(endpoint_url=url, error=error)
        case ConnectionRefusedError() | socket.gaierror():
            return boto.EndpointConnectionError(endpoint_url=url, error=error)
        case ConnectionError():
            return boto.ConnectionClosedError(endpoint_url=url, error=error)
    return boto.HTTPClientError(error=error)


def _epoch_seconds(time: datetime) -> int:
    return int(time.timestamp())


# Made once, which is a third of a call. As botocore's, in ASCII: an id may hold half a surrogate.
_in_json = json.JSONEncoder(default=_epoch_seconds).encode


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
