"""The manager's bookkeeping: any order of messages and deaths, without a process or a socket."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.times import NOON
from tests.wire import FIRST, body
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.observer import Observer
from watcher.delivery.on_error import OnError
from watcher.engine import manager
from watcher.engine.manager import Manager, Settings
from watcher.engine.stores import CheckpointFile
from watcher.errors import (
    CredentialsError,
    DataLossError,
    ObserverError,
    ShardNotFoundError,
    StreamError,
    StreamGoneError,
    TransientError,
    UsageError,
    WatcherError,
)
from watcher.reading import token as checkpoint
from watcher.reading.lineage import Status, Tracked
from watcher.reading.messages import Failed, Finished, Loss, Message, Page, Started, Trouble
from watcher.record.record import Record
from watcher.service.connection import Connection
from watcher.service.model import (
    AfterSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    Shard,
    TrimHorizon,
)
from watcher.service.tally import Tally

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/1"
NEW_ARN = ARN[:-1] + "2"


class Service:
    """What the manager asks of the service."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        self.hidden: set[str] = set()
        self.status = "ENABLED"
        self.newest = ARN
        self.errors: list[Exception] = []
        self.now = NOON
        self.tally = Tally()

    def add(self, name: str, parent: str | None = None, *, hidden: bool = False) -> None:
        self.shards[name] = Shard(name, parent, "1")
        if hidden:
            self.hidden.add(name)

    def listing(self, arn: str) -> Listing:
        if self.errors:
            raise self.errors.pop(0)
        shown = [shard for name, shard in self.shards.items() if name not in self.hidden]
        return Listing(arn, "orders", self.status, "NEW_IMAGE", shown, 1, self.now)

    def children(self, arn: str, shard_id: str) -> list[Shard]:
        return [shard for shard in self.listing(arn).shards if shard.parent == shard_id]

    def iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if shard_id not in self.shards:
            raise ShardNotFoundError("no such shard")
        return "iterator", self.now

    def latest_stream(self, table: str) -> str:
        return self.newest


class Process:
    """A process that was started in name only."""

    exitcode = -9

    def __init__(self) -> None:
        self.ended = ""

    def join(self) -> None:
        pass

    def terminate(self) -> None:
        self.ended = "terminated"

    def kill(self) -> None:
        self.ended = "killed"


class Bookkeeper(Manager):
    """A manager whose processes are played by the test."""

    def __init__(self, service: Service, observe: Any, **more: Any) -> None:
        self.service = service
        self.begun: list[tuple[str, Position]] = []
        file = more.pop("file", None)
        of_table = more.pop("of_table", False)
        on_error = OnError.parse(more.pop("on_error", "log"))
        more.setdefault("start", TrimHorizon())
        super().__init__(
            service,  # type: ignore[arg-type]
            Connection(region="us-east-1"),
            ARN,
            Dispatcher([Observer("seen", observe)], on_error),
            Settings(**more),
            file,
            of_table,
        )

    def begin(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manager, "for_loop", lambda *_: self.service)
            patch.setattr(manager, "for_worker", lambda *_: None)
            self._begin()
        self._start_ready()

    def _new_process(self, shard: Tracked) -> Any:
        self.begun.append((shard.id, shard.position))
        return Process()

    @property
    def running(self) -> list[str]:
        return sorted(self._workers)

    def say(self, shard_id: str, message: Message | None) -> None:
        self._handle(self._lineage.shards[shard_id], message)

    def list_now(self) -> None:
        self._list_again()
        self._start_ready()

    def restart_now(self) -> None:
        self._restart_due = dict.fromkeys(self._restart_due, 0.0)
        self._start_ready()

    @property
    def shards(self) -> dict[str, Tracked]:
        return self._lineage.shards

    def token(self) -> checkpoint.Token:
        return self._token()

    def end(self) -> None:
        self._end()


class Seen:
    """An observer that notes the numbers it gets."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, record: Record) -> None:
        self.numbers.append(int(record.sequence_number) - FIRST)


def page(*numbers: int) -> Page:
    return Page(0, len(numbers), str(FIRST + numbers[-1]), body(numbers))


@pytest.fixture
def service() -> Service:
    made = Service()
    made.add("a")
    return made


@pytest.fixture
def seen() -> Seen:
    return Seen()


def begun(service: Service, observe: Any, **more: Any) -> Bookkeeper:
    made = Bookkeeper(service, observe, **more)
    made.begin()
    return made


def test_a_killed_process_is_started_again_where_delivery_stands(
    service: Service, seen: Seen
) -> None:
    made = begun(service, seen)
    made.say("a", page(1, 2, 3))
    made.say("a", None)
    made.restart_now()
    assert made.begun == [("a", TrimHorizon()), ("a", AfterSequence(str(FIRST + 3)))]
    assert made.totals.restarts == 1


def test_an_idle_latest_shard_is_started_again_at_the_time_of_its_first_iterator(
    service: Service, seen: Seen
) -> None:
    made = begun(service, seen, start=Latest())
    made.say("a", Started(NOON + timedelta(seconds=9)))
    made.say("a", None)
    made.restart_now()
    assert made.begun[1] == ("a", AtTime(NOON + timedelta(seconds=9)))


def test_a_latest_shard_that_died_before_it_began_goes_back_to_the_watchs_beginning(
    service: Service, seen: Seen
) -> None:
    made = begun(service, seen, start=Latest())
    service.now += timedelta(minutes=1)
    made.list_now()
    made.say("a", None)
    made.restart_now()
    (_, position) = made.begun[1]
    assert isinstance(position, AtTime) and position.time <= NOON


def test_watching_is_said_when_all_have_begun_the_restarted_ones_too(
    service: Service, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    service.add("b")
    made = begun(service, seen, start=Latest())
    made.say("a", None)
    made.say("b", Started(NOON))
    assert "Watching" not in caplog.text
    made.restart_now()
    made.say("a", Started(NOON))
    assert "Watching 2 shards of orders" in caplog.messages


def test_a_process_that_ends_after_its_shard_was_forgotten_is_no_surprise(
    service: Service, seen: Seen
) -> None:
    service.add("b", "a")
    made = begun(service, seen)
    made.say("a", Finished(True))
    made._start_ready()
    del service.shards["a"]
    made.list_now()
    made.say("a", None)
    made.list_now()
    assert "a" not in made.shards and made.running == ["b"]


def test_a_parent_that_is_gone_takes_no_process(service: Service, seen: Seen) -> None:
    service.shards["a"] = Shard("a", "gone")
    made = begun(service, seen)
    assert made.begun == [("a", TrimHorizon())]
    assert made.totals.losses == 0


def test_a_parent_that_is_not_listed_yet_is_waited_for_with_its_own_parent(
    service: Service, seen: Seen
) -> None:
    service.add("b", "a", hidden=True)
    service.add("c", "b")
    made = begun(service, seen)
    assert made.running == ["a"]
    service.hidden.clear()
    made.list_now()
    assert made.running == ["a"]
    made.say("a", Finished(True))
    made._start_ready()
    assert [name for name, _ in made.begun] == ["a", "b"]


def test_a_checkpoint_never_holds_what_was_not_flushed(
    service: Service, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begun(service, seen)
    monkeypatch.setattr(
        made._dispatcher, "flush", lambda: (_ for _ in ()).throw(ObserverError("full"))
    )
    with pytest.raises(ObserverError):
        made.say("a", page(1, 2))
    assert made.shards["a"].position == TrimHorizon()


def test_stop_leaves_the_position_before_the_failed_record(service: Service) -> None:
    def fail_on_two(record: Record) -> None:
        if record.sequence_number == str(FIRST + 2):
            raise ValueError("two")

    made = begun(service, fail_on_two, on_error="stop")
    with pytest.raises(ObserverError):
        made.say("a", page(1, 2, 3))
    assert made.shards["a"].position == AfterSequence(str(FIRST + 1))


def test_max_records_with_a_checkpoint_goes_on_after_the_last_one(
    service: Service, seen: Seen, tmp_path: Path
) -> None:
    """The end of the shard, read with the records that were not wanted any more, must not count."""
    file = CheckpointFile(tmp_path / "c.json")
    made = Bookkeeper(service, seen, file=file, max_records=2)
    waiting: list[tuple[str, Message | None]] = [
        ("a", page(1, 2, 3)),
        ("a", Finished(True)),
        ("a", None),
    ]
    made._queue.receive = lambda timeout: waiting.pop(0) if waiting else None  # type: ignore
    made.run()
    saved = file.load()
    file.close()
    assert seen.numbers == [1, 2]
    assert saved is not None
    (shard,) = checkpoint.resume(saved)
    assert shard.status is not Status.FINISHED
    assert shard.position == AfterSequence(str(FIRST + 2))


def test_loss_is_counted_once_and_the_shard_goes_on_at_its_horizon(
    service: Service, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    made = begun(service, seen)
    made.say("a", page(1))
    made.say("a", Loss("a", "sequence number 1", "trimmed"))
    made.say("a", None)
    made.restart_now()
    assert made.totals.losses == 1
    assert made.begun[1] == ("a", TrimHorizon())
    assert "DATA LOSS: shard a from sequence number 1" in caplog.text


def test_loss_is_an_error_where_it_is_asked_to_be(service: Service, seen: Seen) -> None:
    made = begun(service, seen, fail_on_data_loss=True)
    made.say("a", page(1))
    with pytest.raises(DataLossError):
        made.say("a", Loss("a", "sequence number 1", "trimmed"))


def test_an_open_shard_is_never_given_up(service: Service, seen: Seen) -> None:
    made = begun(service, seen)
    made.say("a", Finished(True, gone=True))
    made.say("a", None)
    made.restart_now()
    assert len(made.begun) == 2


def test_refused_credentials_do_not_end_a_watch(service: Service, seen: Seen) -> None:
    made = begun(service, seen)
    service.errors = [CredentialsError("expired"), TransientError("throttled")]
    made._list_again()
    made._streams = service  # type: ignore[assignment]
    made._list_again()
    made._list_again()
    assert made._listing_failures == 0


def test_a_missing_permission_ends_it(service: Service, seen: Seen) -> None:
    made = begun(service, seen)
    service.errors = [StreamError("no permission")]
    with pytest.raises(StreamError):
        made._list_again()
    with pytest.raises(StreamError):
        made.say("a", Failed("no permission", fatal=True))


def test_a_warning_comes_at_ever_longer_distances(
    service: Service, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    made = begun(service, seen)
    for failures in range(1, 101):
        made.say("a", Trouble("refused", failures))
    assert len(caplog.messages) == 5  # 4, 8, 16, 32, 64


def test_a_process_that_cannot_be_started_is_tried_again(
    service: Service, seen: Seen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(shard: Tracked) -> Any:
        raise OSError(24, "Too many open files")

    made = Bookkeeper(service, seen)
    monkeypatch.setattr(made, "_new_process", refuse)
    made.begin()
    assert "Can't start a process for shard a: Too many open files" in caplog.messages
    monkeypatch.undo()
    made.restart_now()
    assert made.running == ["a"]


def test_a_thousand_deaths_do_not_overflow_the_pause(service: Service, seen: Seen) -> None:
    made = begun(service, seen)
    for _ in range(1100):
        made.say("a", None)
        made.restart_now()


def test_one_late_child_of_two_is_waited_for_at_the_end(service: Service, seen: Seen) -> None:
    made = begun(service, seen, follow=False)
    service.add("b", "a")
    service.add("c", "a", hidden=True)
    made.say("a", Finished(True))
    made.say("a", None)
    made._start_ready()
    made.say("b", Finished(False))
    made.say("b", None)
    assert not made._is_done()
    service.hidden.clear()
    made.list_now()
    assert made.running == ["c"]


def test_an_ended_stream_is_followed_by_the_tables_new_one(
    service: Service, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    made = begun(service, seen, of_table=True)
    service.status, service.newest = "DISABLED", NEW_ARN
    made.say("a", Finished(True))
    made.say("a", None)
    made.list_now()
    made._grace_end = 0.0
    assert not made._is_done()
    service.status = "ENABLED"
    service.shards = {"n": Shard("n")}
    made.list_now()
    assert made.begun[-1] == ("n", TrimHorizon())
    assert made.token().stream_arn == NEW_ARN
    assert made.totals.losses == 1
    assert f"DATA LOSS: between the table's streams {ARN} and {NEW_ARN}" in caplog.text


def test_an_ended_stream_named_by_its_arn_is_the_end_and_the_new_one_is_named(
    service: Service, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    made = begun(service, seen)
    service.status, service.newest = "DISABLED", NEW_ARN
    made.say("a", Finished(True))
    made.say("a", None)
    made.list_now()
    made._grace_end = 0.0
    assert made._is_done()
    assert f"python -m watcher {NEW_ARN} --from trim-horizon" in caplog.text


def saved(path: Path, token: checkpoint.Token) -> CheckpointFile:
    file = CheckpointFile(path)
    file.save(token)
    return file


def test_a_checkpoint_of_the_tables_former_stream_is_read_to_its_end_first(
    service: Service, seen: Seen, tmp_path: Path
) -> None:
    old = ARN[:-1] + "0"
    former = checkpoint.Token(old, [], [checkpoint.TokenShard("a", "trim_horizon")], NOON)
    file = saved(tmp_path / "c", former)
    made = begun(service, seen, file=file, of_table=True)
    assert made.token().stream_arn == old
    file.close()


def test_a_checkpoint_of_a_former_stream_that_is_gone_is_a_loss(
    service: Service, seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = ARN[:-1] + "0"
    file = saved(tmp_path / "c", checkpoint.Token(old, [], [], NOON))
    service.errors = [StreamGoneError("no such stream")]
    made = begun(service, seen, file=file, of_table=True)
    assert made.token().stream_arn == ARN
    assert made.totals.losses == 1
    file.close()


@pytest.mark.parametrize(("old", "of_table"), [(ARN[:-1] + "0", False), ("arn:other", True)])
def test_a_checkpoint_of_another_stream_is_refused(
    service: Service, seen: Seen, tmp_path: Path, old: str, of_table: bool
) -> None:
    file = saved(tmp_path / "c", checkpoint.Token(old, [], [], NOON))
    with pytest.raises(UsageError, match="choose another file"):
        begun(service, seen, file=file, of_table=of_table)
    file.close()


def test_a_checkpoint_older_than_retention_is_a_loss_by_the_services_clock(
    service: Service, seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = NOON - timedelta(hours=25)
    file = saved(tmp_path / "c", checkpoint.Token(ARN, [], [], old))
    made = begun(service, seen, file=file)
    assert made.totals.losses == 1 and "the checkpoint is of 2026-11-20" in caplog.text
    file.close()


def test_a_disk_that_fills_up_is_said_once_and_is_an_error_in_the_end(
    service: Service, seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = CheckpointFile(tmp_path / "c")
    made = begun(service, seen, file=file)

    def full(token: checkpoint.Token) -> None:
        raise UsageError("can't use checkpoint c: No space left on device")

    file.save = full  # type: ignore[method-assign]
    for number in range(3):
        made.say("a", page(number))
        made._save()
    assert seen.numbers == [0, 1, 2]
    assert len(caplog.messages) == 1
    made._workers.clear()
    with pytest.raises(WatcherError, match="positions of this run are not saved"):
        made._begin = made.stop  # type: ignore[method-assign]
        made.run()
    file.close()


def test_while_it_drains_the_positions_are_still_saved(
    service: Service, seen: Seen, tmp_path: Path
) -> None:
    file = CheckpointFile(tmp_path / "c")
    made = begun(service, seen, file=file)
    made._stopping = True
    made._save_due = 0.0
    made.say("a", page(1))
    made._keep_house()
    token = file.load()
    assert token is not None and token.shards[0].sequence_number == str(FIRST + 1)
    file.close()


class AnyHistory(RuleBasedStateMachine):
    """Pages, ends, deaths, lagging listings and resumes in any order.

    Each shard's reader is a number: the next record it sends. What must hold: what an observer
    gets of a shard has no gap and no repetition, no child begins before its parent's last record
    was delivered, and a token never says more than was delivered.
    """

    LENGTH = 12

    @initialize()
    def begin(self) -> None:
        self.service = Service()
        for name in ("s0", "s1"):
            self.service.add(name)
        self.parents: dict[str, str | None] = {"s0": None, "s1": None}
        self.delivered: dict[str, int] = {}
        self.readers: dict[str, int] = {}
        self.start(None)

    def start(self, file: Any) -> None:
        self.manager = Bookkeeper(self.service, self.observe)
        if file is not None:
            self.manager._checkpoint = file
        self.manager.begin()
        self.started = 0
        self.follow_the_starts()

    def observe(self, record: Record) -> None:
        shard, number = record.shard_id, int(record.sequence_number) - FIRST
        assert number == self.delivered.get(shard, 0), "a gap, or a repetition"
        parent = self.parents[shard]
        assert parent is None or self.delivered.get(parent, 0) == self.LENGTH, "too early"
        self.delivered[shard] = number + 1

    def follow_the_starts(self) -> None:
        for name, position in self.manager.begun[self.started :]:
            after = position.sequence_number if isinstance(position, AfterSequence) else None
            self.readers[name] = 0 if after is None else int(after) - FIRST + 1
            assert self.readers[name] == self.delivered.get(name, 0)
        self.started = len(self.manager.begun)

    def a_running_one(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.manager.running))

    @precondition(lambda self: self.manager.running)
    @rule(data=st.data(), count=st.integers(1, 5))
    def a_page_comes(self, data: st.DataObject, count: int) -> None:
        name = self.a_running_one(data)
        first = self.readers[name]
        last = min(first + count, self.LENGTH)
        if first < last:
            self.manager.say(name, page(*range(first, last)))
            self.readers[name] = last

    @precondition(lambda self: self.manager.running)
    @rule(data=st.data(), children=st.integers(0, 2))
    def a_shard_ends(self, data: st.DataObject, children: int) -> None:
        name = self.a_running_one(data)
        if self.readers[name] < self.LENGTH or self.manager.shards[name].status is Status.FINISHED:
            return
        has_children = any(parent == name for parent in self.parents.values())
        for _ in range(0 if has_children or len(self.parents) > 25 else children):
            child = f"s{len(self.parents)}"
            self.parents[child] = name
            self.service.add(child, name, hidden=data.draw(st.booleans()))
        self.manager.say(name, Finished(True))

    @precondition(lambda self: self.manager.running)
    @rule(data=st.data())
    def a_process_ends(self, data: st.DataObject) -> None:
        self.manager.say(self.a_running_one(data), None)

    @rule()
    def the_dead_are_started_again(self) -> None:
        self.manager.restart_now()
        self.follow_the_starts()

    @precondition(lambda self: self.service.hidden)
    @rule(data=st.data())
    def a_shard_is_listed(self, data: st.DataObject) -> None:
        self.service.hidden.remove(data.draw(st.sampled_from(sorted(self.service.hidden))))

    @rule(data=st.data())
    def a_finished_shard_leaves_the_listing(self, data: st.DataObject) -> None:
        parents = {parent for parent in self.parents.values() if parent}
        over = sorted(
            name
            for name in parents & set(self.service.shards)
            if self.delivered.get(name, 0) == self.LENGTH and name not in self.manager.running
        )
        if over:
            del self.service.shards[over[0]]

    @rule()
    def a_listing_comes(self) -> None:
        self.manager.list_now()
        self.follow_the_starts()

    @rule()
    def killed_and_resumed(self) -> None:
        token = self.manager.token()
        positions = {
            shard.id: int(shard.position.sequence_number) - FIRST + 1
            for shard in checkpoint.resume(token)
            if isinstance(shard.position, AfterSequence)
        }
        for name, position in positions.items():
            assert position <= self.delivered.get(name, 0), "ahead of delivery"

        class Stored:
            path = "stored"

            def load(self) -> checkpoint.Token:
                return checkpoint.from_json(checkpoint.encode(token))

            def save(self, token: checkpoint.Token) -> None:
                pass

        self.manager.end()
        self.start(Stored())

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        self.service.hidden.clear()
        for _ in range(4 * len(self.parents)):
            self.a_listing_comes()
            self.the_dead_are_started_again()
            for name in self.manager.running:
                if self.readers[name] < self.LENGTH:
                    self.manager.say(name, page(*range(self.readers[name], self.LENGTH)))
                    self.readers[name] = self.LENGTH
                self.manager.say(name, Finished(True))
                self.manager.say(name, None)
        assert self.delivered == dict.fromkeys(self.parents, self.LENGTH)
        self.manager.end()


AnyHistory.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class TestAnyHistory(AnyHistory.TestCase):  # type: ignore[misc,valid-type]
    """Run by pytest under this name."""
