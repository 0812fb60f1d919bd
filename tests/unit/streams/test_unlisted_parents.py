"""Parents that only their children name."""

from __future__ import annotations

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from watcher.aws.model import TrimHorizon
from watcher.aws.retry import first_listing
from watcher.errors import CredentialsError, TransientError
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


OPENED = "shardId-{:020d}-child"
"""An id that tells when its shard was opened, in milliseconds."""


@pytest.mark.parametrize(
    "errors", [[], [CredentialsError("expired")] * 2, [TransientError("500")] * 2]
)
def test_a_listing_that_hides_a_parent_is_waited_for_over_troubles(
    service: PlayedService, clock: HandClock, errors: list[Exception]
) -> None:
    child = OPENED.format(int(clock.time() * 1000) - 50_000)
    service.add("a")
    service.add("b", "a", hidden=True)
    service.add(child, "b")
    service.errors = [*errors]

    assert begun(service, clock, 9, shown_after=1.5) == ["a"], "b waits for a, and its child for b"
    assert not service.errors


@pytest.mark.parametrize(("age", "found"), [(61, True), (50, False)])
@pytest.mark.parametrize("ahead", ["neither", "theirs", "ours"])
def test_the_parent_of_a_child_that_is_old_by_both_clocks_is_gone_if_it_is_not_listed(
    clock: HandClock, age: int, found: bool, ahead: str
) -> None:
    service = PlayedService(HandClock())
    child = OPENED.format(int(clock.time() * 1000) - age * 1000)
    service.add(child, "gone")
    service.clock.slept = 3600.0 * (ahead == "theirs")
    clock.slept = 3600.0 * (ahead == "ours")

    assert begun(service, clock, 0.5) == [child] * found


@pytest.mark.parametrize(("seconds", "found"), [(60, []), (66, ["child"])])
def test_a_parent_that_is_never_listed_is_gone_after_a_minute(
    service: PlayedService,
    clock: HandClock,
    caplog: pytest.LogCaptureFixture,
    seconds: float,
    found: list[str],
) -> None:
    service.add("child", "hidden")

    assert begun(service, clock, seconds) == found
    assert ("no listing shows it: it counts as gone" in caplog.text) == bool(found)
