"""The coordinator: what it asks, which shards it begins, and what their ends mean."""

import math
from collections.abc import Container
from datetime import timedelta
from unittest.mock import Mock

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.times import NOON
from watcher.aws.model import (
    CLOCKS_APART,
    AfterSequence,
    AtTime,
    Latest,
    Position,
    Shard,
    TrimHorizon,
)
from watcher.aws.retry import first_listing
from watcher.errors import CredentialsError, NoAnswerYetError, StreamGoneError
from watcher.streams.coordinator import Call, Coordinator, ReadAgain, ShardEnd
from watcher.streams.losses import Losses
from watcher.streams.messages import Loss, Notice, ReaderEnded


@pytest.fixture
def service(clock: HandClock) -> PlayedService:
    made = PlayedService(clock)
    made.add("a")
    return made


def coordinator(
    service: PlayedService,
    start: Position | None = None,
    *,
    in_use: Container[str] = (),
    clock: HandClock | None = None,
) -> Coordinator:
    clock = clock or service.clock
    losses = Losses(clock=clock)
    made = Coordinator(ARN, start or TrimHorizon(), losses=losses, in_use=in_use, clock=clock)
    made.start(first_listing(service, made.arn))
    return made


def begun(made: Coordinator) -> list[str]:
    return [shard.id for shard in made.take_ready()]


def pass_time(made: Coordinator, service: PlayedService, seconds: float) -> None:
    """Tick by tick, as an engine's loop does."""
    for _ in range(round(seconds / 0.05)):
        service.clock.sleep(0.05)
        made.refresh(service)


def end(made: Coordinator, name: str, *, gone: bool = False) -> ShardEnd | ReadAgain:
    shard = made.lineage.shards[name]
    loss = Loss(name, "its trim horizon", "no such shard") if gone else None
    meaning = made.on_message(shard, ReaderEnded(True, loss))
    assert isinstance(meaning, ShardEnd | ReadAgain)
    if meaning is ShardEnd.CLOSED:
        made.finish(shard)
    return meaning


# Listings


def test_due_in_tells_when_the_next_call_is_due(service: PlayedService) -> None:
    made = coordinator(service)
    begun(made)
    listed = service.listings
    service.clock.sleep(made.due_in() - 0.01)
    made.refresh(service)
    assert service.listings == listed
    service.clock.sleep(0.02)
    assert made.due_in() == 0.0 and made.due_in({Call.LISTING}) == math.inf
    service.errors = [NoAnswerYetError("later")]
    assert made.refresh(service) == {Call.LISTING}
    end(made, "a")
    assert made.due_in({Call.LISTING}) == 0.0
    assert made.due_in({Call.LISTING, Call.CHILDREN}) == math.inf, "only an answer brings one"


@pytest.mark.parametrize(
    ("status", "hours", "said"),
    [
        ("ENABLED", 25, ["the last listing is of 2026-11-21T12:00:00+00:00"]),
        ("ENABLED", 23, []),
        ("DISABLED", 25, []),
    ],
)
def test_a_stream_that_vanished_while_the_machine_slept_may_have_had_children_unseen(
    service: PlayedService, clock: HandClock, status: str, hours: int, said: list[str]
) -> None:
    service.status = status
    made = coordinator(service)
    clock.slept = hours * 3600.0
    service.errors = [StreamGoneError("no such stream")] * 2
    pass_time(made, service, 12)
    assert [line.partition(": ")[0] for line in made.losses.lines] == said


# The children of a finished shard


def test_the_children_of_a_finished_shard_begin_at_once(service: PlayedService) -> None:
    made = coordinator(service, Latest())
    begun(made)
    service.add("b", "a")
    assert end(made, "a") is ShardEnd.CLOSED
    made.refresh(service)
    assert begun(made) == ["b"]
    assert made.lineage.shards["b"].position == TrimHorizon(), "whatever the start was"
    assert service.listings == 1


def test_what_was_closed_at_the_beginning_takes_no_call_each_and_no_wait_of_its_own(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"closed{number}" for number in range(64)]
    for name in names:
        service.shards[name] = Shard(name, None, "1", "2")
    monkeypatch.setattr(service, "list_children", None)
    made = coordinator(service)
    assert set(names) < set(begun(made))
    for name in names[:32]:
        end(made, name)
        pass_time(made, service, 0.1)
    assert not made.confirm_exhausted(), "a listing of now may lack a child"
    pass_time(made, service, 3)
    for name in names[32:]:
        end(made, name)
    made.refresh(service)
    assert made.confirm_exhausted(), "that of the 5th second lacks none"


def test_a_refused_call_for_children_is_made_up_by_the_listing(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = coordinator(service)
    begun(made)
    service.add("b", "a")
    monkeypatch.setattr(service, "list_children", Mock(side_effect=CredentialsError("expired")))
    end(made, "a")
    pass_time(made, service, 1)
    assert begun(made) == ["b"]


def test_a_late_child_is_looked_for_quickly_and_then_seldom(service: PlayedService) -> None:
    made = coordinator(service)
    begun(made)
    service.shards["a"] = Shard("a", None, "1", "5")
    end(made, "a")
    pass_time(made, service, 5)
    assert 5 <= service.listings <= 9
    pass_time(made, service, 60)
    assert service.listings <= 22
    service.add("b", "a")
    pass_time(made, service, 6)
    assert begun(made) == ["b"]


# Ends


def test_what_was_read_up_to_its_end_is_settled(service: PlayedService) -> None:
    made = coordinator(service)
    assert not made.confirm_exhausted(), "a shard waits for its turn"
    begun(made)
    shard = made.lineage.shards["a"]
    pass_time(made, service, 5.1)
    assert made.on_message(shard, ReaderEnded(False)) is ShardEnd.LEFT_OPEN
    assert not made.confirm_exhausted(), "the shard may have been closed since the last listing"
    pass_time(made, service, 0.1)
    assert made.confirm_exhausted()


def test_a_shard_left_as_open_is_read_again_where_it_has_closed_or_may_have(
    service: PlayedService,
) -> None:
    made = coordinator(service)
    begun(made)
    shard = made.lineage.shards["a"]
    pass_time(made, service, 4)
    assert made.on_message(shard, ReaderEnded(False)) == ReadAgain(1.0)
    pass_time(made, service, 2)
    service.add("b", "a")
    assert made.on_message(shard, ReaderEnded(False)) is ShardEnd.LEFT_OPEN
    assert not made.confirm_exhausted()
    pass_time(made, service, 0.1)
    assert begun(made) == ["a"]
    end(made, "a")
    made.refresh(service)
    assert begun(made) == ["b"]


def test_the_end_of_a_shard_left_open_in_use_is_read_by_who_holds_it(
    service: PlayedService,
) -> None:
    made = coordinator(service, in_use=["a"])
    begun(made)
    shard = made.lineage.shards["a"]
    pass_time(made, service, 5.1)
    assert made.on_message(shard, ReaderEnded(False)) is ShardEnd.LEFT_OPEN
    service.add("b", "a")
    assert made.take_reopened() == [] and not made.confirm_exhausted()
    pass_time(made, service, 0.1)
    assert begun(made) == []
    assert made.take_reopened() == [shard] and made.take_reopened() == []
    end(made, "a")
    made.refresh(service)
    assert begun(made) == ["b"]


def test_a_closed_shard_is_read_once_up_to_the_end_where_many_later_records_follow(
    service: PlayedService,
) -> None:
    made = coordinator(service)
    begun(made)
    shard = made.lineage.shards["a"]
    service.add("b", "a")
    pass_time(made, service, 60)
    assert made.is_closed("a")
    assert made.on_message(shard, ReaderEnded(False, past_end=True)) is ShardEnd.LEFT_OPEN
    pass_time(made, service, 100)
    assert begun(made) == [] and made.take_reopened() == [] and made.confirm_exhausted()


def test_a_shard_that_was_open_by_latest_needs_no_later_listing(service: PlayedService) -> None:
    made = coordinator(service)
    begun(made)
    pass_time(made, service, 2)
    meaning = made.on_message(made.lineage.shards["a"], ReaderEnded(False, proven=True))
    assert meaning is ShardEnd.LEFT_OPEN and made.confirm_exhausted()
    assert service.listings == 1


def test_a_finished_shard_that_listings_show_as_open_is_read_on(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer without an iterator ended it (localstack #12483)."""
    made = coordinator(service)
    assert begun(made) == ["a"]
    made.lineage.shards["a"].move_behind("7")
    end(made, "a")
    pass_time(made, service, 4)
    assert begun(made) == [], "a listing may lag"
    pass_time(made, service, 8)
    assert begun(made) == ["a"]
    assert made.lineage.shards["a"].position == AfterSequence("7")
    for _ in range(8):  # a service that never shows the end
        end(made, "a")
        pass_time(made, service, 9)
    assert begun(made) == [] and caplog.text.count("still show it as open") == 1
    end_at = service.clock.monotonic()
    while not begun(made):
        pass_time(made, service, 1)
    assert service.clock.monotonic() - end_at < 60


def test_an_enabled_stream_without_an_open_shard_is_noted(service: PlayedService) -> None:
    made = coordinator(service)
    begun(made)
    assert made.none_open_since == math.inf
    end(made, "a")
    assert made.none_open_since == service.clock.monotonic()
    service.status = "DISABLED"
    pass_time(made, service, 6)
    assert made.none_open_since == math.inf


def test_a_remark_on_a_shard_is_made_once(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    made = coordinator(service)
    for _ in range(3):
        made.on_message(made.lineage.shards["a"], Notice("odd"))
    assert caplog.messages == ["Shard a: odd"]


def test_a_shard_listed_as_open_and_not_to_be_read_is_read_again(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    made = coordinator(service)
    begun(made)
    for _ in range(4):
        assert end(made, "a", gone=True) == ReadAgain(1.0)
    assert caplog.messages == ["Shard a: 4 failures in a row: no such shard"]
    assert made.due_in() == 0.0
    service.add("b", "a")
    made.refresh(service)
    assert end(made, "a", gone=True) is ShardEnd.CLOSED, (
        "with a child it has ended, however it looks"
    )


# Clocks


@pytest.mark.parametrize(("minutes", "believed"), [(-10, -10), (10, 0), (60, 60)])
def test_a_service_whose_clock_is_minutes_ahead_puts_no_beginning_into_the_future(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch, minutes: int, believed: int
) -> None:
    ahead = NOON + timedelta(minutes=minutes)
    monkeypatch.setattr(PlayedService, "now", ahead)
    made = coordinator(service, Latest())
    (shard,) = made.take_ready()
    assert made.restart(shard) == AtTime(NOON + timedelta(minutes=believed) - CLOCKS_APART)
    assert made.written_at > ahead


# Parents that no listing shows


def test_a_time_without_listings_does_not_count_for_a_hidden_parent(service: PlayedService) -> None:
    """The first listing after it shows the parent, and the one above it, too."""
    service.add("b", "a", hidden=True)
    service.add("c", "b")
    made = coordinator(service)
    assert begun(made) == ["a"]
    end(made, "a")
    pass_time(made, service, 3)
    service.errors = [CredentialsError("the token has expired")] * 30
    pass_time(made, service, 120)
    assert begun(made) == [] and service.errors
    service.errors.clear()
    service.hidden.clear()
    pass_time(made, service, 6)
    assert begun(made) == ["b"]


@pytest.mark.parametrize(("age", "found"), [(61, True), (50, False)])
@pytest.mark.parametrize("ahead", ["neither", "theirs", "ours"])
def test_the_parent_of_a_child_that_is_old_by_both_clocks_is_gone_if_it_is_not_listed(
    clock: HandClock, age: int, found: bool, ahead: str
) -> None:
    service = PlayedService(HandClock())
    child = f"shardId-{int(clock.time() - age) * 1000:020d}-child"
    service.add(child, "gone")
    service.clock.slept = 3600.0 * (ahead == "theirs")
    clock.slept = 3600.0 * (ahead == "ours")
    assert begun(coordinator(service, clock=clock)) == [child] * found


@pytest.mark.parametrize(("seconds", "found"), [(60, []), (66, ["child"])])
def test_a_parent_that_is_never_listed_is_gone_after_a_minute(
    service: PlayedService, caplog: pytest.LogCaptureFixture, seconds: float, found: list[str]
) -> None:
    service.add("child", "hidden")
    made = coordinator(service)
    assert begun(made) == ["a"]
    pass_time(made, service, seconds)
    assert begun(made) == found
    assert ("no listing shows it: it counts as gone" in caplog.text) == bool(found)
