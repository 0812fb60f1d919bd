"""Limits botocore's calls in time and size, which it does not do while bytes arrive."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import urllib3
from botocore import exceptions as boto
from botocore.awsrequest import AWSPreparedRequest

from watcher.aws import timing as timings
from watcher.aws.config import Client
from watcher.aws.http import LARGEST_BODY_BYTES, too_large
from watcher.aws.timing import CallTiming
from watcher.errors import TransientError, UnexpectedAnswerError

logger = logging.getLogger("watcher")

_Answer = TypeVar("_Answer")
_HttpAnswer: TypeAlias = Any
"""botocore's AWSResponse, whose `_content` has no stub."""
_PIECE_BYTES = 256 * 1024


def within(
    seconds: float,
    call: Callable[[], _Answer],
    name: str = "",
    *,
    timing: CallTiming | None = None,
) -> _Answer:
    """Returns the call's answer. Raises its error, or TransientError after `seconds`.

    A thread waits for a later answer, until botocore's read timeout. After ten seconds the log
    reports that the call `name` has no answer yet.
    """
    log_seconds = (timing or timings.CALLS).unanswered_seconds
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="call", daemon=True)
    thread.start()
    thread.join(min(seconds, log_seconds) if name else seconds)
    if name and thread.is_alive():
        logger.info(f"{name}: no answer for {log_seconds:g} s; still waiting")
        thread.join(seconds - log_seconds)
    if errors:
        raise errors.pop()  # else this frame would hold it, and its socket
    if not answers:
        raise TransientError(f"no whole answer within {seconds:g} s", overdue=True)
    return answers[0]


def with_deadline(
    operation: Callable[..., _Answer],
    *,
    seconds: float,
    before: Callable[[], object],
    logs: bool = False,
    timing: CallTiming | None = None,
) -> Callable[..., _Answer]:
    """Returns an operation of botocore's client with a time limit for each whole call.

    `before` is called first, outside of that time: the user may be asked for an MFA code there.
    `logs` reports a slow call, where a user may wait for it.
    """
    name = operation.__name__.title().replace("_", "") if logs else ""

    @functools.wraps(operation)
    def call(**query: object) -> _Answer:
        before()
        return within(seconds, functools.partial(operation, **query), name, timing=timing)

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
def log_if_slow(
    text: Callable[[float], str | None], *, timing: CallTiming | None = None
) -> Iterator[None]:
    """Logs a warning once the block has taken ten seconds, and then every minute.

    `text` gets the seconds so far; where it returns None, nothing is logged this time.
    """
    timing = timing or timings.CALLS
    done = threading.Event()

    def run() -> None:
        passed, pause = 0.0, timing.slow_from_seconds
        while not done.wait(pause):
            passed += pause
            pause = timing.slow_every_seconds
            if line := text(passed):
                logger.warning(line)

    thread = threading.Thread(target=run, name="log if slow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
