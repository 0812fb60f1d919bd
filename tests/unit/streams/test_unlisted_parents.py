"""Parents that only their children name."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from watcher.aws.model import Position, TrimHorizon
from watcher.aws.retry import first_listing
from watcher.errors import CredentialsError, NoAnswerYetError, TransientError, WatcherError
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def service(clock: HandClock) -> PlayedService:
    return PlayedService(clock)


def begun(
    service: PlayedService, clock: HandClock, seconds: float, shown_after: float = 1e9
) -> list[str]:
    """The shards that are begun within so many seconds; what is hidden is listed later."""
    coordinator = Coordinator(ARN, TrimHorizon(), losses=Losses(clock=clock), clock=clock)
    errors, service.errors = service.errors, []
    coordinator.start(first_listing(service, coordinator.arn))
    service.errors = errors
    found = []
    while clock.passed < seconds:
        coordinator.refresh(service)
        found += [shard.id for shard in coordinator.take_ready()]
        clock.sleep(0.25)
        if clock.passed >= shown_after:
            service.hidden.clear()
    return found


@pytest.mark.parametrize(
    "errors", [[], [CredentialsError("expired")] * 2, [TransientError("500")] * 2]
)
def test_a_listing_that_hides_a_parent_is_waited_for_over_troubles(
    service: PlayedService, clock: HandClock, errors: list[Exception]
) -> None:
    service.add("a")
    service.add("b", "a", hidden=True)
    service.add("c", "b")
    service.errors = [*errors]

    assert begun(service, clock, 100, shown_after=1.5) == ["a"], "b waits for a, and c for b"
    assert not service.errors


def test_a_parent_that_is_gone_is_not_waited_for(service: PlayedService, clock: HandClock) -> None:
    service.add("child", "gone")

    assert begun(service, clock, 0.5) == ["child"]


@pytest.mark.parametrize(("seconds", "found"), [(60, []), (66, ["hidden"])])
def test_a_parent_that_is_there_and_never_listed_is_read_after_a_minute(
    service: PlayedService, clock: HandClock, seconds: float, found: list[str]
) -> None:
    service.add("hidden", hidden=True)
    service.add("child", "hidden")

    assert begun(service, clock, seconds) == found


def test_children_whose_parents_are_gone_do_not_wait_for_one_that_answers_500(
    service: PlayedService, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        service.add(f"child {number}", f"gone {number}")
    service.add("child", "sick")
    iterator = service.get_iterator

    def answer(arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if shard_id == "sick":
            raise TransientError("500")
        return iterator(arn, shard_id, position)

    service.get_iterator = answer  # type: ignore[method-assign]
    coordinator = Coordinator(ARN, TrimHorizon(), losses=Losses(clock=clock), clock=clock)
    coordinator.start(first_listing(service, coordinator.arn))
    coordinator.take_ready()
    coordinator.refresh(service)
    assert [shard.id for shard in coordinator.take_ready()] == [f"child {n}" for n in range(30)]
    for _ in range(60):
        clock.sleep(0.2)
        coordinator.refresh(service)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "Shard sick can't be read yet, and its children wait for it: 500"


class SlowToAnswer(PlayedService):
    """Some shards are asked for in vain, as long as nobody says otherwise."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.slow: set[str] = set()

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        answered = [each for each in shard_ids if each not in self.slow]
        if not answered:
            raise NoAnswerYetError("not yet")
        return super().probe(arn, answered)


def test_each_child_begins_when_its_own_parent_is_answered(clock: HandClock) -> None:
    service = SlowToAnswer(clock)
    for number in range(3):
        service.add(f"child {number}", f"gone {number}")
    service.slow = {"gone 0", "gone 2"}
    coordinator = Coordinator(ARN, TrimHorizon(), losses=Losses(clock=clock), clock=clock)
    coordinator.start(first_listing(service, coordinator.arn))
    begun = []
    for answered in ("", "gone 2", "gone 0"):
        service.slow.discard(answered)
        coordinator.take_ready()
        coordinator.refresh(service)
        begun.append([shard.id for shard in coordinator.take_ready()])
    assert begun == [["child 1"], ["child 2"], ["child 0"]]


def test_parents_that_do_not_answer_are_said_in_one_line_after_ten_seconds(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = SlowToAnswer(clock)
    for number in range(5):
        service.add(f"child {number}", f"parent {number}")
        service.slow.add(f"parent {number}")
    coordinator = Coordinator(ARN, TrimHorizon(), losses=Losses(clock=clock), clock=clock)
    coordinator.start(first_listing(service, coordinator.arn))
    coordinator.take_ready()
    coordinator.refresh(service)
    clock.sleep(9.9)
    coordinator.refresh(service)
    assert caplog.messages == []
    for _ in range(200):
        clock.sleep(0.1)
        coordinator.refresh(service)
    assert caplog.messages == [
        "Shards parent 0, parent 1, parent 2 and 2 more can't be read yet, and their children wait "
        "for them: it does not answer"
    ]
