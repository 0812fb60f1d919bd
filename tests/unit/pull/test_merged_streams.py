"""Several streams that one program pulls: they begin side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from tests.support.times import NOON
from tests.unit.pull.test_merged_shards import Shards
from watcher.aws.model import CLOCKS_APART, AtTime, Latest, Listing, Service
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError
from watcher.pull.merged_shards import MergedShards
from watcher.pull.merged_streams import MergedStreams, StartPosition
from watcher.streams.losses import Losses

USERS = ARN.replace("orders", "users")


class _Hanging(Shards):
    """Has no answer to who lists it, as long as it is held."""

    def __init__(self) -> None:
        super().__init__(HandClock(), 1)
        self.released = threading.Event()

    def list_shards(self, arn: str) -> Listing:
        assert self.released.wait(60)
        return super().list_shards(arn)


def make(service: Service, arn: str, start: StartPosition) -> MergedShards:
    return MergedShards(
        service, arn, start, losses=Losses(clock=CLOCK), calls=CallPool(threads=False)
    )


def readers(services: Mapping[str, Service], clock: Clock = CLOCK) -> MergedStreams:
    return MergedStreams(services, make, clock, in_threads=True)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Hanging]:
    monkeypatch.setattr("watcher.pull.merged_streams.START_SECONDS", 0.0)
    service = _Hanging()
    yield service
    service.released.set()


def test_one_that_hangs_keeps_no_other_and_begins_where_all_did(held: _Hanging) -> None:
    services = {ARN: held, USERS: Shards(HandClock(), 1)}
    made = readers(services)
    made.start(dict.fromkeys(services, Latest()))
    assert list(made.started) == [USERS]
    assert "not listed yet" in str(made.errors[ARN])
    assert isinstance(made.starts[ARN], AtTime)
    held.released.set()
    while ARN not in made.started:
        made.attempt(ARN, lambda reader: None)
        time.sleep(0.01)
    assert made.errors == {}


def test_latest_is_when_all_began_not_when_one_is_given_up(held: _Hanging) -> None:
    clock = HandClock()

    class _Slow(Shards):
        def list_shards(self, arn: str) -> Listing:
            clock.sleep(20)
            return super().list_shards(arn)

    services = {ARN: held, USERS: _Slow(HandClock(), 1)}
    made = readers(services, clock)
    made.start(dict.fromkeys(services, Latest()))
    assert made.starts[ARN] == AtTime(NOON - CLOCKS_APART)


@pytest.mark.parametrize(("ahead", "slept"), [(240.0, 0.0), (0.0, 3600.0)])
def test_latest_is_by_the_services_clock_though_ours_is_ahead_or_the_machine_has_slept_since(
    held: _Hanging, ahead: float, slept: float
) -> None:
    clock = HandClock() if ahead else held.clock
    clock.sleep(ahead)
    services = {ARN: held, USERS: Shards(HandClock(), 1)}
    made = readers(services, clock)
    made.start(dict.fromkeys(services, Latest()))
    clock.slept = slept
    held.released.set()
    while ARN not in made.started:
        made.attempt(ARN, lambda reader: None)
        time.sleep(0.01)
    assert made.starts[ARN] == AtTime(NOON - CLOCKS_APART)


def test_where_all_hang_the_first_that_is_listed_is_waited_for(held: _Hanging) -> None:
    services = {ARN: held, USERS: held}
    threading.Timer(0.2, held.released.set).start()
    made = readers(services)
    made.start(dict.fromkeys(services, Latest()))
    assert made.started


def test_where_none_can_be_listed_that_is_raised(held: _Hanging) -> None:
    held.errors = [StreamError("denied")] * 2
    held.released.set()
    services = {ARN: held, USERS: held}
    with pytest.raises(StreamError, match="denied"):
        readers(services).start(dict.fromkeys(services, Latest()))
