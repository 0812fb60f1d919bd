"""The loop: what it refuses, how it ends, and what it says, without a process or a socket."""

import logging
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, NEW_ARN, Memory, Play, PlayedService, Seen, Step, page
from tests.support.times import NOON
from tests.support.wire import FIRST
from watcher.aws.model import AfterSequence, ShardKey, TrimHorizon
from watcher.errors import (
    DataLossError,
    HandlerError,
    StreamError,
    StreamGoneError,
    TransientError,
    WatcherError,
)
from watcher.records.record import Record
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import Lineage, TrackedShard
from watcher.streams.messages import Loss, ReaderCrashed, ReaderEnded, ReadFailed


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def service() -> PlayedService:
    made = PlayedService(HandClock())
    made.add("a")
    return made


def played(service: PlayedService, observe: Any, **more: Any) -> Play:
    return Play(observe, service=service, clock=service.clock, **more)


def test_a_command_to_a_worker_holds_no_secret(
    service: PlayedService, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in a pipe; a worker gets keys, and what it connects to, at its start."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "keep-this-to-yourself")
    play = played(service, seen).run(0.2)
    (command,) = play.processes[0].commands
    assert b"keep-this-to-yourself" not in msgspec.json.encode(command)


def test_a_reader_that_ends_before_its_listed_shard_goes_on_after_a_pause_and_is_no_restart(
    service: PlayedService, seen: Seen
) -> None:
    ended = ("a", ReaderEnded(True, Loss("a", "its trim horizon", "gone")))
    begun: list[str] = []
    play = played(service, seen)
    play.run(("a", page(1)), ended, ("a", None), 0.5, lambda: begun.extend(play.names), 1.0)
    assert begun == ["a"] and play.begun[1] == ("a", AfterSequence(str(FIRST + 1)))
    assert play.totals.restarts == play.totals.losses == 0


def test_a_shards_end_and_its_child_wait_for_no_other_shards_slow_handler(
    service: PlayedService,
) -> None:
    service.add("b")
    begun: list[list[str]] = []

    def slow(record: Record) -> None:
        service.clock.sleep(15.0)
        begun.append(play.names)

    play = played(service, slow)
    split = partial(service.add, "c", parent="a")
    play.run(("b", page(*range(1, 9))), split, ("a", ReaderEnded(True)), ("a", None), 200.0)
    assert "c" not in begun[0] and "c" in begun[4] and len(begun) == 8


def test_a_checkpoint_never_holds_what_was_not_flushed(
    service: PlayedService, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        closed = False

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    play = played(service, seen)
    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(HandlerError, match="No space left"):
        play.run(("a", page(1, 2)))
    assert play.store.position("a") == TrimHorizon()


def test_max_records_with_a_checkpoint_goes_on_after_the_last_one(
    service: PlayedService, seen: Seen
) -> None:
    """The end of the shard, read with the records that were not wanted any more, must not count."""
    play = played(service, seen, max_records=2)
    play.run(("a", page(1, 2, 3)), ("a", ReaderEnded(True)), ("a", None))
    assert seen.numbers == [1, 2]
    assert not play.store.token.shards[0].finished
    assert play.store.position("a") == AfterSequence(str(FIRST + 2))


def test_a_missing_permission_ends_it(service: PlayedService, seen: Seen) -> None:
    play = played(service, seen)
    with pytest.raises(StreamError, match="no permission"):
        play.run(lambda: service.errors.append(StreamError("no permission")), 20.0)
    with pytest.raises(StreamError, match="no permission"):
        played(service, seen).run(("a", ReaderCrashed("no permission", fatal=True)))


def test_a_watch_that_ends_without_one_answered_read_fails_with_the_cause(
    service: PlayedService, seen: Seen
) -> None:
    play = played(service, seen)
    with pytest.raises(StreamError, match="nothing could be read: refused"):
        play.run(("a", ReadFailed("refused", 1)), 30.0, ("a", ReadFailed("refused", 2)))
    answered = played(service, seen)
    counters = answered.manager.stats.counters(ShardKey(ARN, "a"))
    answered.run(("a", ReadFailed("refused", 1)), counters.answer, 1.0)


def test_what_is_to_end_waits_for_its_first_read_for_a_minute(
    service: PlayedService, seen: Seen
) -> None:
    play = played(service, seen, follow=False)
    with pytest.raises(StreamError, match="nothing could be read: refused"):
        play.run(("a", ReadFailed("refused", 1)), 1000.0)
    assert 60 < play.clock.passed < 65


def test_what_is_to_end_and_can_read_nothing_more_ends_after_a_minute(
    service: PlayedService, seen: Seen
) -> None:
    """It ran for ever where the service went away behind a first read."""
    play = played(service, seen, follow=False)
    counters = play.manager.stats.counters(ShardKey(ARN, "a"))
    fail = "a", ReadFailed("refused", 1)

    def read() -> None:
        counters.attempt(play.clock.monotonic() + 0.01, answered=True)

    with pytest.raises(StreamError, match=r"nothing more .* refused; .* 1 shard: a"):
        play.run(("a", page(1)), fail, 50.0, read, 50.0, fail, 1000.0)
    assert seen.numbers == [1] and 160 <= play.clock.passed < 165


def test_processes_that_die_at_birth_end_the_watch(service: PlayedService, seen: Seen) -> None:
    play = played(service, seen)
    play.exitcode = 1
    died: list[Step] = [("a", None), 1.0]
    with pytest.raises(WatcherError, match="end as soon as they start"):
        play.run(*died * 3)


def test_an_ended_stream_named_by_its_arn_is_the_end_and_the_new_one_is_named(
    service: PlayedService, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")

    def disable() -> None:
        service.status, service.newest = "DISABLED", NEW_ARN

    play = played(service, seen).run(disable, ("a", ReaderEnded(True)), ("a", None), 100.0)
    assert not play.totals.stopped, "it ends by itself"
    assert f"python -m watcher {NEW_ARN} --from trim-horizon" in caplog.text


def test_loss_is_an_error_where_it_is_asked_to_be(service: PlayedService, seen: Seen) -> None:
    play = played(service, seen, fail_on_data_loss=True)
    with pytest.raises(DataLossError):
        play.run(("a", page(1)), ("a", Loss("a", "sequence number 1", "trimmed")))
    assert play.store.position("a") == AfterSequence(str(FIRST + 1)), "to be found again"


def test_a_checkpoint_of_a_former_stream_goes_on_after_errors_that_pass(
    service: PlayedService, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch ended with "no such stream" where the question for the new one failed once."""
    answers = [TransientError("InternalServerError"), TransientError("reset")]

    def latest(table: str) -> str:
        if answers:
            raise answers.pop()
        return ARN

    monkeypatch.setattr(service, "latest_stream", latest)
    service.errors = [StreamGoneError("no such stream")]
    store = Memory(Token(ARN[:-1] + "0", [], [], NOON))
    play = played(service, seen, store=store, of_table=True).run(1.0)
    assert store.token.stream_arn == ARN
    assert play.totals.losses == 1


def test_a_slow_observer_gets_the_record_in_hand_and_what_is_left_is_said(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    def slow(record: Record) -> None:
        play.clock.sleep(1.0)
        if record.sequence_number == str(FIRST + 2):
            play.manager.stop()

    caplog.set_level(logging.INFO, "watcher")
    service.add("b")
    play = played(service, slow)
    play.run(("a", page(*range(1, 100))), ("a", page(100)), ("b", page(101, 102)), ("b", None))
    assert play.totals.records == 2 and play.totals.stopped
    assert play.store.position("a") == AfterSequence(str(FIRST + 2))
    assert play.store.position("b") == TrimHorizon()
    assert caplog.messages[-1:] == [
        "Stopping: 97 records left unread; with a checkpoint, the next watch begins there"
    ]


def test_an_observer_that_is_broken_off_gets_its_record_again(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()

    def stuck(record: Record) -> None:
        seen(record)
        if record.sequence_number == str(FIRST + 2):
            play.manager.stop()
            play.clock.sleep(5.0)
            play.manager.shutdown.interrupt()

    caplog.set_level(logging.INFO, "watcher")
    play = played(service, stuck)
    play.run(("a", page(1, 2, 3)))
    assert play.store.position("a") == AfterSequence(str(FIRST + 1))
    assert caplog.messages[-2].startswith("Interrupted: a handler")
    assert "2 records left unread" in caplog.messages[-1]
    resumed = played(service, seen, store=play.store)
    resumed.run(("a", page(2, 3)))
    assert seen.numbers == [1, 2, 2, 3]


def test_a_record_that_is_tried_again_and_again_is_left_when_it_is_late(
    service: PlayedService,
) -> None:
    def fail(record: Record) -> None:
        play.manager.stop()
        raise ValueError("no")

    play = played(service, fail, on_error="retry:1000")
    play.run(("a", page(1, 2)))
    assert play.clock.passed < 5.0
    assert play.store.position("a") == TrimHorizon()
    assert play.totals.failures == 0


def test_a_watch_of_thousands_of_shards_looks_at_them_only_when_there_is_news(
    service: PlayedService, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = Lineage.ready

    def counted(self: Lineage) -> list[TrackedShard]:
        nonlocal looks
        looks += 1
        return look(self)

    play = played(service, seen)
    monkeypatch.setattr(Lineage, "ready", counted)
    play.run(*[("a", page(number)) for number in range(100)])
    assert looks <= 3
