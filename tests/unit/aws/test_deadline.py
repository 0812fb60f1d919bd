"""A call that can't be ended is left to itself."""

import logging
import threading
import time
from collections.abc import Callable

import pytest

from watcher.aws.deadline import WithDeadline, within
from watcher.errors import TransientError


def test_an_answer_and_an_error_come_through() -> None:
    assert within(5, lambda: "answer") == "answer"
    assert within(5, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 / 0)


def test_what_takes_longer_is_trouble_of_an_endpoint() -> None:
    end = threading.Event()
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"no whole answer within 0\.05 s") as caught:
        within(0.05, end.wait)
    end.set()
    assert time.monotonic() - began < 20
    assert caught.value.unreachable


def test_a_client_is_asked_as_ever() -> None:
    class Client:
        def get_records(self, **query: str) -> dict[str, str]:
            return query

    before: list[int] = []
    timely = WithDeadline(Client(), 5, lambda: before.append(1))
    assert timely.get_records(ShardIterator="x") == {"ShardIterator": "x"}
    assert timely.get_records.__name__ == "get_records"
    assert before == [1]


def test_where_somebody_waits_it_is_said_that_there_is_no_answer_yet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = threading.Event()

    class Client:
        def describe_table(self) -> str:
            heard.wait(seconds)
            return "answer"

    monkeypatch.setattr("watcher.aws.deadline._SAID_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "watcher")
    seconds = 0.1
    assert WithDeadline(Client(), 30, lambda: None).describe_table() == "answer"
    assert caplog.messages == []
    seconds = 20.0
    monkeypatch.setattr(caplog.handler, "emit", _setting(heard, caplog.handler.emit))
    assert WithDeadline(Client(), 30, lambda: None, says=True).describe_table() == "answer"
    assert caplog.messages == ["DescribeTable: no answer yet, for 0.01 s; it is asked on"]


def _setting(
    heard: threading.Event, emit: Callable[[logging.LogRecord], None]
) -> Callable[[logging.LogRecord], None]:
    def emitting(record: logging.LogRecord) -> None:
        emit(record)
        heard.set()

    return emitting
