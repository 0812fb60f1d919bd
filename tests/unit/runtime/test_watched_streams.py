"""Several streams in one watch: each its own order, its own trouble, its own end."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, NEW_ARN, Memory, Play, PlayedService, Step, page
from tests.support.times import NOON
from tests.support.wire import FIRST
from watcher.aws.model import AfterSequence, AtTime, Latest, Listing, ShardKey, TrimHorizon
from watcher.errors import (
    CredentialsError,
    NoAnswerYetError,
    StreamError,
    StreamGoneError,
    UnexpectedAnswerError,
)
from watcher.options import WatchOptions
from watcher.records.record import Record
from watcher.runtime.watched_stream import StreamRetry, WatchedStream
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token, TokenShard
from watcher.streams.messages import ErrorKind, IteratorGranted, Loss, ReaderEnded, ReadFailed

USERS = ARN.replace("orders", "users")
SHOPS = ARN.replace("orders", "shops")
GRACE = 10.0
OF_ORDERS, OF_USERS = ShardKey(ARN, "a"), ShardKey(USERS, "a")
"""The shards of two streams may have one id."""


class Seen:
    def __init__(self) -> None:
        self.of: dict[str, list[int]] = {}

    def __call__(self, record: Record) -> None:
        self.of.setdefault(record.table, []).append(int(record.sequence_number) - FIRST)


class AskedAside:
    """What has the answer to a first listing ready a while after it was asked for."""

    def __init__(self, service: PlayedService, clock: HandClock, seconds: float) -> None:
        self._service = service
        self._clock = clock
        self._seconds = seconds
        self._ready_at: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def list_shards(self, arn: str) -> Listing:
        now = self._clock.monotonic()
        self._ready_at = self._ready_at or now + self._seconds
        if now < self._ready_at:
            raise NoAnswerYetError("not yet")
        self._ready_at = None
        return self._service.list_shards(arn)


class Region:
    """Two streams, and a clock."""

    def __init__(self) -> None:
        self.clock, self.seen = HandClock(), Seen()
        self.orders, self.users = PlayedService(self.clock), PlayedService(self.clock)
        for service in (self.orders, self.users):
            service.add("a")

    def play(self, **more: Any) -> Play:
        more.setdefault("others", {USERS: self.users})
        return Play(self.seen, service=self.orders, clock=self.clock, **more)

    def asides(self, seconds: float) -> dict[str, AskedAside]:
        return {USERS: AskedAside(self.users, self.clock, seconds)}


@pytest.fixture
def region(caplog: pytest.LogCaptureFixture) -> Region:
    caplog.set_level(logging.INFO, "watcher")
    return Region()


def test_the_first_is_delivered_while_the_others_are_being_listed(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    seen_by_then: list[dict[str, list[int]]] = []
    play = region.play(asides=region.asides(8.0), start=Latest())
    play.run(
        *((OF_ORDERS, IteratorGranted(NOON)), (OF_ORDERS, page(1)), 3.0),
        lambda: seen_by_then.append({**region.seen.of}),
        *(6.0, lambda: logging.getLogger("watcher").info("all are listed")),
        *((OF_USERS, IteratorGranted(NOON)), (OF_USERS, page(1)), 1.0),
    )
    assert seen_by_then == [{"orders": [1]}]
    assert region.seen.of == {"orders": [1], "users": [1]}
    late = AtTime(NOON - timedelta(seconds=2))
    assert [position for _, position in play.begun_by_origin] == [Latest(), late]
    told = [text for text in caplog.messages if "Watching" in text or text.startswith("all")]
    assert told == ["all are listed", "Watching 2 shards of 2 streams"]
    assert [each.stream_arn for each in play.store.load()] == [ARN, USERS]


def test_a_checkpoint_of_a_watch_that_ends_as_it_begins_keeps_what_it_held(region: Region) -> None:
    store = memory(token(ARN, 5), token(USERS, 7))
    play = region.play(store=store, asides=region.asides(60.0))
    play.run((OF_ORDERS, page(6)), 3.0)
    kept = {each.stream_arn: each.shards[0].sequence_number for each in store.load()}
    assert kept == {ARN: str(FIRST + 6), USERS: str(FIRST + 7)}


def test_shards_of_one_id_are_two_shards(region: Region) -> None:
    play = region.play().run(
        (OF_ORDERS, page(1, 2)), (OF_USERS, page(1)), (OF_ORDERS, None), 1.0, (OF_USERS, page(2))
    )
    assert region.seen.of == {"orders": [1, 2], "users": [1, 2]}
    assert play.begun_by_origin[2:] == [(OF_ORDERS, AfterSequence(str(FIRST + 2)))]


def token(arn: str, number: int, saved_at: Any = NOON) -> Token:
    shard = TokenShard("a", "after_sequence", str(FIRST + number))
    return Token(arn, ["a"], [shard], saved_at)


def memory(*stored: Token) -> Memory:
    made = Memory()
    made.saved = checkpoint_format.encode_all(stored)
    return made


def test_a_checkpoint_of_one_grows_to_several_and_the_new_one_begins_as_asked(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory(token(ARN, 5))
    play = region.play(store=store, start=Latest()).run(1.0)
    begun = {OF_ORDERS: AfterSequence(str(FIRST + 5)), OF_USERS: Latest()}
    assert dict(play.begun_by_origin) == begun
    assert f"memory holds no position in {USERS}: begins at --from" in caplog.messages
    assert [each.stream_arn for each in store.load()] == [ARN, USERS]


def test_what_is_not_watched_now_is_kept_and_said(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory(token(ARN, 5), token(SHOPS, 6), token(USERS, 7))
    play = region.play(store=store, others={}).run((OF_ORDERS, page(6)), 2.0)
    assert f"streams that are not watched now, and keeps them: {SHOPS}, {USERS}" in caplog.text
    kept = {each.stream_arn: each.shards[0].sequence_number for each in store.load()}
    assert kept == {ARN: str(FIRST + 6), SHOPS: str(FIRST + 6), USERS: str(FIRST + 7)}
    assert play.names == ["a"]
    old = memory(token(ARN, 5), token(SHOPS, 6, NOON - timedelta(hours=25)))
    region.play(store=old).run(2.0)
    assert [each.stream_arn for each in old.load()] == [ARN, USERS]


# One stream's trouble


def test_a_permission_that_one_stream_lacks_is_its_own_trouble_and_said_once(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    """Its listings are answered all the while."""
    denied = ReadFailed("not authorized", 1, ErrorKind.DENIED)
    steps: list[Step] = [(OF_ORDERS, page(1))]
    steps += [step for _ in range(12) for step in ((OF_USERS, denied), 10.0)]
    with pytest.raises(StreamError, match="not authorized"):
        region.play().run(*steps, (OF_ORDERS, page(2)), 1.0)
    assert region.seen.of == {"orders": [1, 2]}
    told = [text for text in caplog.messages if text.startswith("users")]
    assert told == ["users: not authorized; the other streams continue"]


def test_where_no_read_of_any_is_allowed_from_the_start_the_watch_ends(region: Region) -> None:
    denied = ReadFailed("not authorized", 1, ErrorKind.DENIED)
    play = region.play()
    with pytest.raises(StreamError, match="2 streams could not be read: not authorized"):
        play.run((OF_ORDERS, denied), 5.0, (OF_USERS, denied), 1000.0)
    assert not play.totals.stopped


def test_a_stream_that_could_not_be_begun_begins_at_the_moment_of_the_watch_by_the_services_clock(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, listing = timedelta(minutes=4), region.users.list_shards

    def late(arn: str) -> Listing:
        found = listing(arn)
        return msgspec.structs.replace(found, time=found.time - behind)

    region.users.errors = [StreamGoneError("no such stream")]
    monkeypatch.setattr(region.users, "list_shards", late)
    play = region.play(start=Latest()).run((OF_ORDERS, page(1)), 40.0)
    position = dict(play.begun_by_origin)[OF_USERS]
    assert isinstance(position, AtTime)
    assert timedelta() <= NOON - behind - position.time < timedelta(seconds=5)


def test_up_to_now_the_others_are_read_and_one_that_fails_is_given_up(region: Region) -> None:
    region.users.errors = [StreamError("not authorized")] * 9
    play = region.play(follow=False)
    with pytest.raises(StreamError, match="not authorized"):
        play.run(
            (OF_ORDERS, page(1)), GRACE, (OF_ORDERS, ReaderEnded(False)), (OF_ORDERS, None), 1000.0
        )
    assert not play.totals.stopped, "it ends by itself"


def test_where_all_are_refused_at_the_start_the_watch_ends(region: Region) -> None:
    region.orders.errors = [StreamError("no")]
    region.users.errors = [StreamError("nor this")]
    with pytest.raises(StreamError, match="2 streams could not be read: no; nor this"):
        region.play().run(10.0)


def test_credentials_are_everybodys(region: Region) -> None:
    region.users.errors = [CredentialsError("no credentials")]
    with pytest.raises(CredentialsError):
        region.play().run(10.0)


def test_a_loss_of_a_stream_that_is_forgotten_stays_counted(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.runtime.watched_streams.FORGOTTEN_SECONDS", 50.0)
    lost = Loss("a", "sequence number 1", "trimmed")

    def disable() -> None:
        region.users.status, region.users.newest = "DISABLED", USERS

    play = region.play().run(
        *((OF_USERS, page(1)), (OF_USERS, lost), disable),
        *((OF_USERS, ReaderEnded(True)), (OF_USERS, None), 100.0, (OF_ORDERS, page(1)), 100.0),
    )
    assert {each.stream_arn for each in play.store.load()} == {ARN}, "users is forgotten"
    assert play.totals.losses == 1


def test_what_left_a_tables_next_stream_before_its_first_listing_is_said_by_a_later_run(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    region.orders.newest = NEW_ARN
    region.orders.errors = [StreamGoneError("it was deleted"), UnexpectedAnswerError("odd")]
    store = memory(token(ARN, 5, NOON - timedelta(hours=25)))
    with pytest.raises(UnexpectedAnswerError):
        region.play(others={}, of_table=True, store=store).run(1.0)
    for _ in range(2):
        region.play(others={}, of_table=True, store=store).run(1.0)
    assert store.token.stream_arn == NEW_ARN
    said = [text for text in caplog.messages if "DATA LOSS" in text]
    assert ["between" in text for text in said] == [True, False], "each once"
    assert "the checkpoint is of 2026" in said[1] and "older than the retention" in said[1]


# Coming and going


class Comes:
    """Newcomers that a test lets come."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.arns: list[str] = []

    def find(self) -> list[WatchedStream]:
        arns, self.arns = self.arns, []
        service, clock = self._region.users, self._region.clock
        how: dict[str, Any] = {"of_table": True, "start": TrimHorizon(), "clock": clock}
        return [WatchedStream(arn, WatchOptions(), service=service, **how) for arn in arns]


def test_a_newcomer_begins_at_its_trim_horizon_once(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    comes = Comes(region)

    def come() -> None:
        comes.arns = [ARN, USERS, USERS[:-1] + "2"]

    play = region.play(others={}, newcomers=comes, start=Latest(), of_table=True)
    play.run((OF_ORDERS, IteratorGranted(NOON)), come, 1.0, (OF_USERS, page(1)), come, 1.0)
    assert play.begun_by_origin == [(OF_ORDERS, Latest()), (OF_USERS, TrimHorizon())]
    assert caplog.messages.count("users joins the watch") == 1
    assert region.seen.of == {"users": [1]}


def test_a_newcomer_that_the_checkpoint_knows_goes_on_there(region: Region) -> None:
    comes = Comes(region)
    comes.arns = [USERS]
    store = memory(token(ARN, 5), token(USERS, 7))
    play = region.play(others={}, newcomers=comes, store=store).run(1.0)
    assert (OF_USERS, AfterSequence(str(FIRST + 7))) in play.begun_by_origin


def test_a_watch_that_awaits_more_goes_on_without_any(region: Region) -> None:
    comes = Comes(region)

    def disable() -> None:
        region.orders.status = "DISABLED"

    play = region.play(others={}, newcomers=comes)
    play.run(
        *(disable, (OF_ORDERS, ReaderEnded(True)), (OF_ORDERS, None), 200.0),
        *(lambda: comes.arns.append(USERS), 1.0, (OF_USERS, page(3)), 1.0),
    )
    assert region.seen.of == {"users": [3]} and play.totals.stopped


def test_one_of_several_streams_pauses_longer_each_time_and_is_logged_once(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    retry = StreamRetry(clock)
    for pause in (30, 60, 120, 240, 300, 300):
        for _ in range(2):  # of two shards
            retry.on_error(ARN, StreamError("no permission"))
        clock.sleep(pause - 1)
        assert retry.is_paused
        clock.sleep(2)
        assert not retry.is_paused
    assert retry.failures == 6 and str(retry.error) == "no permission"
    retry.on_success(ARN)
    retry.on_success(ARN)
    assert retry.failures == 0 and retry.error is None
    assert caplog.messages == [
        "orders: no permission; the other streams continue",
        "orders can be read again",
    ]


def test_refused_credentials_are_not_one_streams_error(clock: HandClock) -> None:
    retry = StreamRetry(clock)
    with pytest.raises(CredentialsError):
        retry.on_error(ARN, CredentialsError("expired"))
    assert not retry.is_paused
