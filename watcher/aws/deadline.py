"""Limits botocore's calls in time and size, which it does not do while bytes arrive."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import urllib3
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest

from watcher.aws.config import Client
from watcher.aws.http import LARGEST_BODY_BYTES, too_large
from watcher.call_pool import CallPool
from watcher.errors import TransientError, UnexpectedAnswerError

logger = logging.getLogger("watcher")

_Answer = TypeVar("_Answer")
_HttpAnswer: TypeAlias = Any
"""botocore's AWSResponse, whose `_content` has no stub."""
_PIECE_BYTES = 256 * 1024

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
"""The read timeout, for a pause between bytes: it detects a dead peer."""
LOOP_READ_SECONDS = 3.0
"""The read timeout in the loop, which has other streams to serve."""
SLOW_FROM_SECONDS = 10.0
"""The time after which a wait is logged with its cause …"""
SLOW_EVERY_SECONDS = 60.0
"""… and the delay before it is logged again."""

# More than there are connections: those that hang must not keep others.
_calls = CallPool(most=256)


def with_deadline(
    operation: Callable[..., _Answer], *, seconds: float, before: Callable[[], object]
) -> Callable[..., _Answer]:
    """Returns an operation of botocore's client with a time limit for each whole call.

    After it TransientError is raised, and a thread waits for the answer, until botocore's read
    timeout. `before` is called first, outside of that time: the user may be asked for an MFA code
    there.
    """

    @functools.wraps(operation)
    def call(**query: object) -> _Answer:
        before()
        (answer,) = _calls.start([functools.partial(operation, **query)], few=0)
        try:
            if not wait([answer], seconds).done:
                raise TransientError(f"no whole answer within {seconds:g} s", overdue=True)
            return answer.result()
        finally:
            del answer  # else an error's frame would hold it, and its socket

    return call


def limit_answers(client: Client, *, most_bytes: int = LARGEST_BODY_BYTES) -> None:
    """Makes a botocore client raise UnexpectedAnswerError for answers over `most_bytes`.

    Botocore reads an answer of any size into memory.
    """
    session = client._endpoint.http_session
    send = session.send

    def send_limited(request: AWSPreparedRequest) -> _HttpAnswer:
        request.stream_output = True  # else `send` reads all of the answer
        answer: _HttpAnswer = send(request)
        body = bytearray()
        try:
            for piece in answer.raw.stream(_PIECE_BYTES):
                body += piece
                if len(body) > most_bytes:
                    answer.raw.close()
                    target = request.headers.get("X-Amz-Target", b"")
                    name = target if isinstance(target, str) else target.decode("latin-1")
                    operation = name.rpartition(".")[2]
                    raise UnexpectedAnswerError(f"{operation}: {too_large(most_bytes)}")
        except urllib3.exceptions.ReadTimeoutError as error:
            raise boto.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except urllib3.exceptions.ProtocolError as error:
            raise boto.ConnectionClosedError(
                endpoint_url=request.url, request=request, error=error
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise boto.HTTPClientError(error=error) from error
        answer._content = bytes(body)
        return answer

    session.send = send_limited


@contextmanager
def log_if_slow(text: Callable[[float], str | None]) -> Iterator[None]:
    """Logs a warning once the block has taken ten seconds, and then every minute.

    `text` gets the seconds so far; where it returns None, nothing is logged this time.
    """
    done = threading.Event()

    def run() -> None:
        passed, pause = 0.0, SLOW_FROM_SECONDS
        while not done.wait(pause):
            passed += pause
            pause = SLOW_EVERY_SECONDS
            if line := text(passed):
                logger.warning(line)

    logging_aside = _calls.start([run], few=0)
    try:
        yield
    finally:
        done.set()
        wait(logging_aside)
