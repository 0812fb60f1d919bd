"""What follows a stream that has ended."""

from __future__ import annotations

import logging

import msgspec
import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, NEW_ARN, PlayedService
from watcher.aws.model import TrimHorizon
from watcher.errors import (
    CredentialsError,
    StreamError,
    TransientError,
    UnexpectedAnswerError,
    WatcherError,
)
from watcher.pull.stream_successor import StreamEnd, SuccessorSearch
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses


@pytest.fixture
def service() -> PlayedService:
    return PlayedService(HandClock())


def up_to_now(service: PlayedService) -> SuccessorSearch:
    return SuccessorSearch(of_table=True, clock=service.clock)


def of_one_stream(service: PlayedService) -> SuccessorSearch:
    return SuccessorSearch(of_table=False, clock=service.clock)


def ended(clock: HandClock, arn: str = ARN, table: str = "") -> Coordinator:
    made = Coordinator(arn, TrimHorizon(), losses=Losses(clock=clock), clock=clock)
    made.listing = msgspec.structs.replace(made.listing, table=table, status="DISABLED")
    return made


def asked(service: PlayedService, successor: SuccessorSearch, seconds: float) -> StreamEnd | None:
    """Asked again and again, as the loop does, until there is an answer."""
    for _ in range(round(seconds / 0.2)):
        if (answer := successor.search(service, ended(service.clock))) is not None:
            return answer
        service.clock.sleep(0.2)
    return None


def test_it_waits_a_minute_for_one(service: PlayedService) -> None:
    successor = SuccessorSearch(of_table=True, wait_seconds=60, clock=service.clock)
    assert asked(service, successor, 55) is None
    assert asked(service, successor, 11) == StreamEnd()


def test_up_to_now_it_does_not_wait(service: PlayedService) -> None:
    assert asked(service, up_to_now(service), 1) == StreamEnd()


def test_a_watch_of_one_stream_names_the_new_one_and_ends(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    service.newest = NEW_ARN
    assert asked(service, of_one_stream(service), 1) == StreamEnd(newer=NEW_ARN)
    assert caplog.messages[-1].endswith(f"python -m watcher {NEW_ARN} --from trim-horizon")


def test_a_service_that_does_not_tell_is_taken_for_none(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(table: str) -> str:
        raise StreamError("no permission")

    monkeypatch.setattr(service, "latest_stream", refuse)
    assert asked(service, of_one_stream(service), 1) == StreamEnd()


@pytest.mark.parametrize("of_table", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        TransientError("InternalServerError"),
        CredentialsError("the token has expired"),
        UnexpectedAnswerError("a proxy's page"),
    ],
)
def test_an_error_that_may_pass_is_no_end(
    service: PlayedService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: WatcherError,
    of_table: bool,
) -> None:
    def refuse(table: str) -> str:
        raise error

    service.newest = NEW_ARN
    successor = SuccessorSearch(of_table=of_table, clock=service.clock)
    with monkeypatch.context() as patch:
        patch.setattr(service, "latest_stream", refuse)
        assert asked(service, successor, 30) is None
    assert caplog.messages[0] == (f"Can't ask for the table's new stream, trying again: {error}")
    found = asked(service, successor, 6)
    assert found == (StreamEnd(NEW_ARN) if of_table else StreamEnd(newer=NEW_ARN))


@pytest.mark.parametrize(
    ("arn", "table"),
    [(ARN, ARN.partition("/stream/")[0]), ("S8a2b1c30-0f4e-11f0-9cd2-0242ac120002", "orders")],
)
def test_it_asks_by_the_tables_whole_arn_and_by_its_name_where_there_is_none(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch, arn: str, table: str
) -> None:
    asked_for: list[str] = []

    def latest(table: str) -> str:
        asked_for.append(table)
        return arn

    monkeypatch.setattr(service, "latest_stream", latest)
    search = SuccessorSearch(of_table=True, clock=service.clock)
    assert search.search(service, ended(service.clock, arn, "orders")) == StreamEnd()
    assert asked_for == [table]
