"""What a watch says of its own health: live as long as it attempts all that is due."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.gate import Gate, ThreadsClock, WatchedPool
from tests.support.hand_clock import HandClock
from tests.support.play import Memory, Play, PlayedService, page
from watcher.aws.model import AfterSequence, Shard
from watcher.delivery.concurrent import HandlerPool
from watcher.errors import NoAnswerYetError, TransientError, UsageError
from watcher.observability.heartbeat import ProbeAnswers, assess
from watcher.observability.watch_stats import WatchStats
from watcher.records.record import Record
from watcher.runtime.watched_streams import WatchedStreams
from watcher.streams.checkpoint_format import Token
from watcher.streams.messages import ReaderCrashed, ReaderEnded

OTHER = "arn:aws:dynamodb:us-east-1:123456789012:table/users/stream/1"
NEW = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2"


class Probed(Play):
    """A played watch, and what its probes would be answered."""

    def __init__(self, observe: Callable[[Record], Any], *shards: str, **more: Any) -> None:
        self.last = WatchStats()
        super().__init__(observe, displays=[self], **more)
        self.reads: set[str] = set()
        """The shards that are read, as it should be, while time passes."""
        for shard in shards:
            self.service.add(shard)

    def show(self, snapshot: WatchStats) -> None:
        self.last = snapshot
        for name in self.reads:
            self.read(name)

    def close(self) -> None:
        """Nothing is open."""

    def read(self, name: str, *, answered: bool = True) -> None:
        """A read of a shard has come to its end."""
        shard_key = self.queue.shard_keys[name]
        counters = self.manager.stats.shards[shard_key].counters
        counters.attempt(self.clock.monotonic(), answered=answered)

    def goes_on(self, *names: str) -> Callable[[], None]:
        return lambda: self.reads.update(names)

    def stops(self, *names: str) -> Callable[[], None]:
        return lambda: self.reads.difference_update(names)

    @property
    def now(self) -> ProbeAnswers:
        return assess(self.last, self.heartbeat)

    def says(self, live: str = "", ready: str = "") -> Callable[[], None]:
        """A step: each says so; without a text, that all is well."""

        def step() -> None:
            said = [re.sub(r"for \d+ s", "for N s", "\n".join(lines)) for lines in self.now[:2]]
            assert said == [live, ready]

        return step


def nothing(record: Record) -> None:
    """A handler."""


NOT_YET = "shard {} of orders: not read yet"
STUCK = "shard {} of orders: no read has come to an end, for N s"
UNANSWERED = "shard {} of orders: no read was answered, for N s"


def test_it_is_not_ready_before_every_open_shard_was_read_once() -> None:
    play = Probed(nothing, "a", "b")
    ready = play.says
    assert play.now == ([], ["the watch has not begun yet"], "")
    play.run(
        *(1.0, ready(ready="\n".join(map(NOT_YET.format, "ab")))),
        *(play.goes_on("a"), 1.0, ready(ready=NOT_YET.format("b"))),
        *(lambda: play.read("b", answered=False), 1.0, ready(ready=NOT_YET.format("b"))),
        *(play.goes_on("b"), 1.0, ready()),
    )
    assert play.now == ([], ["the watch is ending"], "")


def test_a_shard_whose_worker_is_stuck_is_named_and_one_that_is_refused_is_no_reason_to_die() -> (
    None
):
    play = Probed(nothing, "a", "b")

    def is_refused() -> None:
        play.read("b", answered=False)

    play.run(
        *(play.goes_on("a", "b"), 1.0, play.stops("a"), 55.0, play.says()),
        *(7.0, play.says(STUCK.format("a"), STUCK.format("a")), play.goes_on("a")),
        *(play.stops("b"), 30.0, is_refused, 35.0, is_refused, 1.0),
        *(play.says("", UNANSWERED.format("b")), play.goes_on("b"), 1.0, play.says()),
    )


def test_an_endpoint_that_is_away_is_not_ready_though_handlers_are_slow() -> None:
    """Reads go on beside them, and so does the time for which none was answered."""
    play = Probed(lambda record: play.clock.sleep(16.0), "a", "b")
    failing = [TransientError("no way there")] * 100_000

    def is_away() -> None:
        play.stops("a", "b")()
        play.service.errors.extend(failing)

    def refused() -> None:
        for name in "ab":
            play.read(name, answered=False)

    listing = "orders: no listing was answered, for N s"
    away = "\n".join([listing, *map(UNANSWERED.format, "ab")])
    play.run(
        *(play.goes_on("a", "b"), 1.0, ("a", page(1)), ("a", page(2)), is_away),
        *[each for number in (3, 4, 5) for each in (("a", page(number)), refused)],
        play.says(),
        *[each for number in (6, 7) for each in (("a", page(number)), refused)],
        play.says(ready=away),
        *(play.service.errors.clear, ("a", page(8))),
        *(play.goes_on("a", "b"), ("a", page(9)), 7.0, play.says()),
    )


def busy_with(play: Probed, name: str, seconds: int) -> Iterator[Any]:
    """Steps: a handler takes a second for each of so many records of a shard."""
    for number in range(1, seconds + 1):
        yield name, page(number)
        yield lambda: play.clock.sleep(1.0)


def test_a_stuck_worker_is_named_also_while_another_shard_keeps_the_watch_busy() -> None:
    play = Probed(nothing, "a", "b", "c")
    waits = play.queue.full
    play.run(
        *(play.goes_on("a", "b", "c"), 1.0, lambda: waits.add(play.queue.shard_keys["c"])),
        *(play.stops("b", "c"), *busy_with(play, "a", 45), play.says()),
        *busy_with(play, "a", 10),
        play.says(STUCK.format("b"), STUCK.format("b")),
        *(waits.clear, *busy_with(play, "a", 45)),
        play.says(STUCK.format("b"), STUCK.format("b")),
        *busy_with(play, "a", 10),
        play.says("\n".join(map(STUCK.format, "bc")), "\n".join(map(STUCK.format, "bc"))),
    )


def test_a_long_pause_that_was_asked_for_is_no_trouble() -> None:
    play = Probed(nothing, "a", poll_max=300.0)
    play.run(play.goes_on("a"), 1.0, play.stops("a"), 300.0, play.says())


def test_a_listing_that_fails_is_not_ready_and_one_that_never_ends_is_not_live() -> None:
    play = Probed(nothing, "a")
    failing = [TransientError("throttled")] * 1000
    asking = [NoAnswerYetError("no")] * 100_000
    endless = "orders: no listing has come to an end, for N s"
    play.run(
        *(play.goes_on("a"), 1.0, lambda: play.service.errors.extend(failing), 60.0, play.says()),
        *(65.0, play.says(ready="orders: no listing was answered, for N s")),
        *(play.service.errors.clear, 10.0, play.says()),
        *(lambda: play.service.errors.extend(asking), 60.0, play.says()),
        *(65.0, play.says(endless, endless), play.service.errors.clear, 10.0, play.says()),
    )


def test_an_enabled_stream_without_an_open_shard_is_not_ready() -> None:
    play = Probed(nothing, "a")
    play.service.shards["a"] = Shard("a", None, "1", "9")  # closed, and no child comes
    told = "orders: it has no open shard, though its stream is enabled, for N s"
    play.run(
        *(play.goes_on("a"), 1.0, play.says(), play.stops("a")),
        *(("a", ReaderEnded(True)), 50.0, play.says(), 80.0, play.says(ready=told)),
        *(lambda: play.service.add("b", "a"), 10.0, play.goes_on("b"), 1.0, play.says()),
    )


def test_a_watch_that_can_find_no_new_tables_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Probed(nothing, "a")
    failing_since = play.clock.monotonic() + 1
    play.run(
        *(play.goes_on("a"), 1.0, play.says()),
        lambda: monkeypatch.setattr(WatchedStreams, "searches_fail_since", failing_since),
        *(30.0, play.says(), 65.0),
        play.says(ready="the region's streams can't be listed: new tables are not found"),
    )


class Refused(Memory):
    trouble = ""

    def save(self, stored: Sequence[Token]) -> None:
        if self.trouble:
            raise UsageError("--checkpoint c: No space left on device")
        super().save(stored)


def test_what_keeps_positions_from_being_saved_is_said_of_an_idle_watch_too_and_it_delivers_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store, seen, saved = Refused(), list[str](), list[bool]()
    play = Probed(lambda record: seen.append(record.sequence_number), "a", store=store)

    def refuses(trouble: str) -> Callable[[], None]:
        return lambda: vars(store).update(trouble=trouble)

    told = "the positions are not saved: --checkpoint c: No space left on device"
    play.run(
        *(play.goes_on("a"), 20.0, play.says(), refuses("the role needs dynamodb:PutItem")),
        *(2.0, play.says(ready=told), 600.0, ("a", page(1)), 2.0, play.says(ready=told)),
        *(lambda: saved.append(play.totals.saved), refuses(""), 2.0, play.says()),
        lambda: saved.append(play.totals.saved),
    )
    assert saved == [False, True]
    assert len([line for line in caplog.messages if "saved" in line]) == 2
    assert len(seen) == 1 and isinstance(store.position("a"), AfterSequence)


def test_a_handler_that_hangs_is_named_and_nobody_else_is_blamed_afterwards() -> None:
    def hangs(record: Record) -> None:
        play.clock.sleep(59.0)
        play.says()()
        play.clock.sleep(31.0)
        told = "a handler (seen) has stood for N s"
        play.says(told, told)()

    play = Probed(hangs, "a", "b")
    play.run(
        *(play.goes_on("a", "b"), 1.0, ("a", page(1)), 1.0, play.stops("a")),
        *(play.says(), 50.0, play.says()),
    )


def test_a_handler_that_is_tried_again_lives_and_is_not_ready_until_it_goes_well() -> None:
    begun: list[float] = []
    lines: list[ProbeAnswers] = []

    def fails(record: Record) -> None:
        begun.append(play.clock.monotonic())
        lines.append(play.now)
        assert begun[-1] - begun[0] > 1500, "no"

    play = Probed(fails, "a", on_error="retry")
    play.run(play.goes_on("a"), 1.0, ("a", page(1)), 1.0, play.says())
    assert not any(answer.live for answer in lines)
    assert not lines[3].ready
    assert lines[-1].ready[0].startswith("a handler (seen) is being retried, for 1")


def test_a_save_that_hangs_is_named() -> None:
    class Hangs(Memory):
        def save(self, stored: Sequence[Token]) -> None:
            if self.saves == 1:
                play.clock.sleep(61.0)
                lines.append(play.now)
            super().save(stored)

    lines: list[ProbeAnswers] = []
    play = Probed(nothing, "a", store=Hangs())
    play.run(play.goes_on("a"), 1.0, ("a", page(1)), 2.0, play.says())
    assert lines[0].live == ["a save of the positions has stood for 61 s"]


def test_another_streams_positions_are_refused_before_it_stands_by_for_them() -> None:
    class Anothers(Memory):
        def peek(self) -> list[Token]:
            return [Token(OTHER, [], [])]

        def stand_by(self, is_ending: Callable[[], bool]) -> bool:
            raise AssertionError("it may be for weeks")

    with pytest.raises(UsageError, match=f"it belongs to {OTHER}, not to"):
        Probed(nothing, "a", store=Anothers()).run()


def test_a_standby_that_could_not_take_over_is_not_ready_and_says_why() -> None:
    class Standing(Memory):
        trouble = ""

        def stand_by(self, is_ending: Callable[[], bool]) -> bool:
            for self.trouble in ("the role needs dynamodb:PutItem", ""):
                for _ in range(10):
                    play.clock.sleep(0.5)
                    assert not is_ending()
                lines.append(play.now)
            return True

    lines: list[ProbeAnswers] = []
    play = Probed(nothing, "a", store=Standing())
    play.run(play.goes_on("a"), 1.0, play.says())
    assert lines == [
        ([], ["can't stand by: the role needs dynamodb:PutItem"], ""),
        ([], [], "standing by: another watch has the lease"),
    ]


def test_one_of_several_streams_that_cant_be_read_is_not_ready() -> None:
    clock = HandClock()
    users = PlayedService(clock)
    users.add("u")
    users.add("v")
    play = Probed(nothing, "a", clock=clock, others={OTHER: users})
    play.run(
        *(play.goes_on("a", "u", "v"), 1.0, play.says(), play.stops("u", "v")),
        *(("u", ReaderCrashed("no permission", fatal=True)), 1.0),
        *(play.says(ready="users: can't be read just now"), ("u", None), 200.0),
        # Nobody asks at once why the second one was not read meanwhile.
        *(lambda: play.read("v", answered=False), play.goes_on("u"), 30.0, play.says()),
    )


def test_it_is_not_ready_while_the_next_stream_of_its_table_is_searched_for() -> None:
    def disable() -> None:
        play.service.status = "DISABLED"

    def enable() -> None:
        play.service.status, play.service.newest = "ENABLED", NEW
        play.service.shards.clear()
        play.service.add("n")

    play = Probed(nothing, "a", of_table=True)
    play.run(
        *(play.goes_on("a"), 1.0, play.says()),
        *(disable, play.stops("a"), ("a", ReaderEnded(True)), ("a", None), 20.0),
        play.says(ready="orders: its stream has ended; looking for a new one of its table"),
        *(enable, 20.0, play.goes_on("n"), 1.0, play.says()),
    )
    assert play.names == ["a", "n"]


def test_with_several_at_once_the_shard_whose_handler_hangs_is_named() -> None:
    gate = Gate()
    pool = WatchedPool(2, gate)
    play = Probed(gate, "a", "b", pool=pool, clock=ThreadsClock(pool))
    told = "shard a of orders: a handler is stuck, for N s"
    play.run(
        *(play.goes_on("b"), lambda: play.read("a"), 1.0, ("a", page(1)), gate.begins(1)),
        *(55.0, play.says(), 7.0, play.says(told, told), gate.let(-1, 1), 1.0, play.says()),
    )


def test_a_delivery_that_waits_for_the_lease_is_not_ready_meanwhile() -> None:
    class Waits(Memory):
        in_doubt = False

        def stand_by(self, is_ending: Callable[[], bool]) -> bool:
            self.is_ending = is_ending
            return True

        @property
        def raise_unless_held(self) -> Callable[[], object]:
            return self.wait

        def wait(self) -> None:
            self.in_doubt = True
            for _ in range(10):
                play.clock.sleep(0.5)
                self.is_ending()
            lines.append(play.now)
            self.in_doubt = False

    lines: list[ProbeAnswers] = []
    play = Probed(nothing, "a", store=Waits())
    play.run(play.goes_on("a"), 1.0, play.says(), ("a", page(1)), 1.0, play.says())
    assert lines == [([], ["the lease has run out, and can't be renewed: delivery waits"], "")]


def test_with_several_at_once_one_that_is_tried_again_lives() -> None:
    said: list[ProbeAnswers] = []

    def fails(record: Record) -> None:
        raise ValueError("no")

    def script() -> Iterator[Any]:
        yield from (play.goes_on("a"), 1.0, ("a", page(1)))
        while not said or "being retried" not in "".join(said[-1].ready):  # threads take their time
            yield 1.0
            said.append(play.now)

    play = Probed(fails, "a", pool=HandlerPool(1), clock=ThreadsClock(), on_error="retry:9999")
    play.follow(script())
    assert not said[-1].live
    assert said[-1].ready[0].startswith("shard a of orders: a handler is being retried, for ")
