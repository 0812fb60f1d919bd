"""A speed seam: shard reads without what botocore does around a call (a sixth of the CPU time).

Nothing here is needed for what is right, only for what is fast: where a call is not as we know it,
botocore makes it.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Mapping
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
from watcher.aws.config import Client, Operation, ParsedAnswer
from watcher.aws.credentials import Session, ca_file
from watcher.aws.http import HTTPConnections, OverdueAnswerError, PendingResponse, Timeouts
from watcher.aws.signing import Signer
from watcher.errors import TransientError, UnexpectedAnswerError

logger = logging.getLogger("watcher")

# What the shortcut takes over from botocore's request; all else is made for each.
_KEPT_HEADERS = ("content-type", "user-agent", "x-amz-target")
_SCOPE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)

_ANY_SHARD = {"ShardId": "shardId-" + "0" * 20, "ShardIteratorType": "LATEST"}
_PAGES = ("GetRecordsOutput", "ScanOutput")
_SUCCESS = 200  # the service has no other
_FIRST_ERROR = 300  # as botocore has it
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_SHOWN_BYTES = 100
_READ_BYTES = 5000
_ASKED_AT_ONCE = 4

_OutputShape: TypeAlias = Any
"""botocore's Shape; None for an operation whose answer has none, which its stubs leave out."""


class RawPages(ResponseParserFactory):
    """Hands the bodies of pages through unparsed: botocore takes 230 ms for what takes us 2.

    Those of GetRecords and of Scan.

    Errors, and every other operation, are parsed by botocore.
    """

    def create_parser(self, protocol_name: str) -> ResponseParser:
        """As botocore's, but for one answer of one operation."""
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parse_unless_page(response: Mapping[str, Any], shape: _OutputShape) -> ParsedAnswer:
            status = response["status_code"]
            metadata = {"HTTPStatusCode": status, "HTTPHeaders": response["headers"]}
            is_answer = protocol_name == "json" and shape is not None and status < _FIRST_ERROR
            if is_answer:
                _refuse_what_is_no_answer(response["body"], shape.name, metadata)
            if is_answer and shape.name in _PAGES:
                return {"Body": response["body"], "ResponseMetadata": metadata}
            try:
                parsed: ParsedAnswer = parse(response, shape)
                error = parsed.get("Error", {})
                if status >= _FIRST_ERROR and not error.get("Message"):
                    error["Message"] = error_hints.not_json_hint(response["body"], metadata)
                # botocore takes one that is cut off for an empty one.
                if is_answer and parsed.keys() <= {"ResponseMetadata"}:
                    json.loads(response["body"])
                return parsed
            except _UNREADABLE as error:
                # Neither UTF-8 nor an object, or one whose members are none of the service's.
                if status < _FIRST_ERROR:
                    raise ResponseParserError(f"an answer that can't be read: {error}") from error
                text = repr(response["body"][:_SHOWN_BYTES])
                return {
                    "Error": {"Code": str(status), "Message": text},
                    "ResponseMetadata": metadata,
                }

        parser.parse = parse_unless_page  # type: ignore[method-assign]
        return parser


def _refuse_what_is_no_answer(body: bytes, shape: str, metadata: dict[str, Any]) -> None:
    """Raises UnexpectedAnswerError; an answer that is cut off is trouble that passes.

    botocore takes 204, which a proxy may say, for an answer without members: of BatchWriteItem
    that all is written, of GetItem that there is no such item.
    """
    is_whole = metadata["HTTPStatusCode"] == _SUCCESS  # not 206, a part of one
    if not is_whole or not body[:_SHOWN_BYTES].lstrip().startswith(b"{"):
        operation = shape.removesuffix("Output")
        raise UnexpectedAnswerError(
            f"{operation}: {error_hints.not_json_hint(body[:_READ_BYTES], metadata)}"
        )


class Shortcut:
    """Some of a client's operations without what botocore does around a call.

    botocore chooses the URL and the headers, as seen in a call that it never sends, whose signature
    ours has to equal; it gives the credentials, and reads the answers and errors. That leaves an
    eighth of the CPU time, and of 7 MB that each child's botocore takes by its first call, 4; and
    an end for each call as a whole. What is not plain, the client does, `bounded` (see
    `with_deadline`). For several threads.
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
        self._connections: dict[str, HTTPConnections] = {}
        self._calls: dict[str, SentCall | None] = {}
        self._seeing = threading.Lock()
        self._asked: weakref.WeakSet[PendingResponse] = weakref.WeakSet()

    def prepare(self, arn: str) -> None:
        """Learns how botocore reads the shards of a stream, before the first read."""
        self._seen_call("GetShardIterator", {**_ANY_SHARD, "StreamArn": arn})
        self._seen_call("GetRecords", {"ShardIterator": f"{arn}|1|any"})

    def close(self) -> None:
        """Close its connections; the next call opens another."""
        for http in self._connections.values():
            http.close()
        for asked in list(self._asked):
            asked.close()

    def describe_stream(self, **query: object) -> ParsedAnswer:
        """Calls DescribeStream as the client does."""
        answer = self._answer("DescribeStream", query)
        return self._bounded(self._client.describe_stream)(**query) if answer is None else answer

    def get_shard_iterator(self, **query: object) -> ParsedAnswer:
        """Calls GetShardIterator as the client does."""
        answer = self._answer("GetShardIterator", query)
        return self._bounded(self._client.get_shard_iterator)(**query) if answer is None else answer

    def get_records(self, asked: PendingResponse | None = None, **query: object) -> ParsedAnswer:
        """Calls GetRecords as the client does; with `asked`, takes the answer to that call."""
        answer = self._answer("GetRecords", query, asked)
        return self._bounded(self._client.get_records)(**query) if answer is None else answer

    def ask(self, **query: object) -> PendingResponse | None:
        """Sends GetRecords ahead; None where only `get_records` can, or too many are on their way.

        An answer waits in the system's memory, with up to a megabyte.
        """
        call = self._seen_call("GetRecords", query)
        if call is None or not call.http.usable or len(self._asked) >= _ASKED_AT_ONCE:
            return None
        try:
            asked = self._post(call, query)
        except OSError:  # the read that asks anew will see what is wrong
            return None
        self._asked.add(asked)
        return asked

    def call_of(self, operation: str) -> SentCall | None:
        """Returns how an operation is called; None where botocore calls it, or nobody did yet."""
        return self._calls.get(operation)

    def _seen_call(self, operation: str, query: dict[str, Any]) -> SentCall | None:
        """Returns how an operation is called; None where botocore has to do it."""
        if operation not in self._calls:
            with self._seeing:  # what one thread never sends must not be another's call
                if operation not in self._calls:
                    self._calls[operation] = self._seen(operation, query)
        return self._calls[operation]

    def _seen(self, operation: str, query: dict[str, Any]) -> SentCall | None:
        """Returns a call as botocore would send it; None where we do not know its form."""
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
        return SentCall(operation, url, kept, signer, shape, http)

    def _unsent_request(self, operation: str, query: dict[str, Any]) -> AWSPreparedRequest:
        """Returns the request that botocore makes of a call; it is not sent."""
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
        if url not in self._connections:
            config = self._client.meta.config
            self._connections[url] = HTTPConnections(
                url,
                ca_file=self.ca_file,
                timeouts=Timeouts(
                    connect_seconds=config.connect_timeout,
                    read_seconds=config.read_timeout,
                    whole_seconds=self._whole_call_reads * config.read_timeout,
                ),
            )
        return self._connections[url]

    def _answer(
        self, operation: str, query: dict[str, Any], asked: PendingResponse | None = None
    ) -> ParsedAnswer | None:
        """An operation's answer; None where only the client can get it."""
        call = self._seen_call(operation, query)
        if call is None or not call.http.usable:
            return None
        try:
            answer = (asked or self._post(call, query)).wait()
        except UnexpectedAnswerError as error:
            raise UnexpectedAnswerError(f"{operation}: {error}") from None
        except OverdueAnswerError as error:
            raise TransientError(f"{operation}: {error}", overdue=True) from error
        except OSError as error:
            if asked is not None and not isinstance(error, TimeoutError):
                return self._answer(operation, query)  # a connection may not wait for long
            if _is_about_trust(error):
                logger.debug(f"Reading through botocore from now on: {call.url}: {error}")
                call.http.usable = False
                return None
            raise _as_botocore(error, call.url) from error
        if answer is None:
            return None
        response = {"status_code": answer.status, "headers": answer.headers, "body": answer.body}
        if answer.status >= _FIRST_ERROR:
            raise boto.ClientError(self._parser.parse(response, call.shape), call.operation)
        parsed: ParsedAnswer = self._parser.parse(response, call.shape)
        return parsed

    def _post(self, call: SentCall, query: dict[str, Any]) -> PendingResponse:
        body = json.dumps(query, default=_epoch_seconds).encode()
        return call.http.post(call.headers | call.signer.headers(body, self._frozen_keys()), body)

    def _frozen_keys(self) -> ReadOnlyCredentials | None:
        credentials = self._session.get_credentials()
        return credentials.get_frozen_credentials() if credentials else None


class SentCall(NamedTuple):
    """An operation as botocore sends it."""

    operation: str
    url: str
    headers: dict[str, str]
    signer: Signer
    shape: _OutputShape
    http: HTTPConnections


class _NotSentError(Exception):
    """Ends a call of botocore that was made only to see what it would send."""


def _as_botocore(error: OSError, url: str) -> boto.BotoCoreError:
    """The error that botocore would have raised."""
    match error:
        case TimeoutError():
            return boto.ReadTimeoutError(endpoint_url=url, error=error)
        case ConnectionRefusedError() | socket.gaierror():
            return boto.EndpointConnectionError(endpoint_url=url, error=error)
        case ConnectionError():
            return boto.ConnectionClosedError(endpoint_url=url, error=error)
    return boto.HTTPClientError(error=error)


def _is_about_trust(error: OSError) -> bool:
    """True where the two sides can't agree on TLS, which would fail every time."""
    broken = ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError
    return isinstance(error, ssl.SSLError) and not isinstance(error, broken)


def _epoch_seconds(time: datetime) -> int:
    return int(time.timestamp())


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
