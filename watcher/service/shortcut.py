"""A speed seam: shard reads without what botocore does around a call (a sixth of the CPU time).

Nothing here is needed for what is right, only for what is fast: where a call is not as we know it,
botocore makes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.httpsession import get_cert_path
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory
from botocore.utils import get_environ_proxies

from watcher.service.plain_http import PlainHTTP

logger = logging.getLogger("watcher")

# What the shortcut takes over from botocore's request; all else is made for each.
_KEPT_HEADERS = ("content-type", "user-agent", "x-amz-target")
_SCOPE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
)

_PAGES = ("GetRecordsOutput", "ScanOutput")
_FIRST_ERROR = 300  # as botocore has it
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_SHOWN_BYTES = 100


class RawPages(ResponseParserFactory):
    """Hands the bodies of pages through unparsed: botocore takes 230 ms for what takes us 2.

    Those of GetRecords and of Scan.

    Errors, and every other operation, are parsed by botocore.
    """

    def create_parser(self, protocol_name: str) -> ResponseParser:
        """As botocore's, but for one answer of one operation."""
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parse_unless_page(response: Any, shape: Any) -> Any:
            status = response["status_code"]
            metadata = {"HTTPStatusCode": status, "HTTPHeaders": response["headers"]}
            if shape is not None and shape.name in _PAGES and status == 200:
                return {"Body": response["body"], "ResponseMetadata": metadata}
            try:
                return parse(response, shape)
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


class Shortcut:
    """A client's `get_shard_iterator` and `get_records` without what botocore does around a call.

    botocore chooses the URL and the headers, as seen in a call that it never sends; it gives the
    credentials, signs, and reads the answers and errors. That leaves a sixth of the CPU time, and
    of 7 MB that each child's botocore takes by its first call, 4.
    """

    def __init__(self, session: Any, client: Any, arn: str) -> None:
        self._session = session
        self._client = client
        self._parser = RawPages().create_parser("json")
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

    def _seen(self, operation: str, call: Callable[..., Any], **query: str) -> _SentCall | None:
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
        return _SentCall(
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
            if _is_about_trust(error):
                logger.debug(f"Reading through botocore from now on: {call.url}: {error}")
                call.http.usable = False
                return None
            raise boto.HTTPClientError(error=error) from error
        if answer is None:
            return None
        response = {"status_code": answer.status, "headers": answer.headers, "body": answer.body}
        parsed = self._parser.parse(response, call.shape)
        if answer.status >= _FIRST_ERROR:
            raise boto.ClientError(parsed, call.operation)
        return parsed


class _SentCall(NamedTuple):
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


def _is_about_trust(error: OSError) -> bool:
    """Whether the two sides can't agree on TLS, which would fail every time."""
    broken = ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError
    return isinstance(error, ssl.SSLError) and not isinstance(error, broken)


def _epoch_seconds(time: datetime) -> int:
    return int(time.timestamp())


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
