"""Whether a watch goes on after its stream has ended."""

from __future__ import annotations

import logging

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, NEW_ARN, PlayedService
from watcher.errors import StreamError
from watcher.runtime.watched_stream import StreamSuccessor


@pytest.fixture
def service() -> PlayedService:
    return PlayedService(HandClock())


def asked(service: PlayedService, next_stream: StreamSuccessor, seconds: float) -> str | None:
    """Asked again and again, as the loop does, until there is an answer."""
    for _ in range(round(seconds / 0.2)):
        if (answer := next_stream.after(service, ARN, "disabled")) is not None:
            return answer
        service.clock.sleep(0.2)
    return None


def test_a_watch_of_a_table_goes_on_with_its_new_stream(service: PlayedService) -> None:
    next_stream = StreamSuccessor(of_table=True, wait=True, clock=service.clock)
    assert asked(service, next_stream, 20) is None
    service.newest = NEW_ARN
    assert asked(service, next_stream, 6) == NEW_ARN


def test_it_waits_a_minute_for_one(service: PlayedService) -> None:
    next_stream = StreamSuccessor(of_table=True, wait=True, clock=service.clock)
    assert asked(service, next_stream, 55) is None
    assert asked(service, next_stream, 11) == ""


def test_up_to_now_it_does_not_wait(service: PlayedService) -> None:
    assert asked(service, StreamSuccessor(True, False, service.clock), 1) == ""


def test_a_watch_of_one_stream_names_the_new_one_and_ends(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    service.newest = NEW_ARN
    assert asked(service, StreamSuccessor(False, True, service.clock), 1) == ""
    assert caplog.messages[-1].endswith(f"python -m watcher {NEW_ARN} --from trim-horizon")


def test_a_service_that_does_not_tell_is_taken_for_none(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(table: str) -> str:
        raise StreamError("no permission")

    monkeypatch.setattr(service, "latest_stream", refuse)
    assert asked(service, StreamSuccessor(False, True, service.clock), 1) == ""


@pytest.mark.parametrize(
    ("arn", "table"),
    [
        (ARN, ARN.partition("/stream/")[0]),
        ("S8a2b1c30-0f4e-11f0-9cd2-0242ac120002", "orders"),
    ],
)
def test_it_asks_by_the_tables_whole_arn_and_by_its_name_where_there_is_none(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch, arn: str, table: str
) -> None:
    asked_for: list[str] = []

    def latest(table: str) -> str:
        asked_for.append(table)
        return arn

    monkeypatch.setattr(service, "latest_stream", latest)
    assert StreamSuccessor(True, False, service.clock).after(service, arn, "gone", "orders") == ""
    assert asked_for == [table]
