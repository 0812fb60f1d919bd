"""How far a page has come: behind what was delivered, never further."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, Seen, page
from tests.support.wire import FIRST
from watcher.aws.model import AfterSequence, Position, ShardKey, TrimHorizon
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.delivery.progress import Progress
from watcher.delivery.sequential import SequentialDelivery
from watcher.errors import HandlerError
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Totals
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import ReaderEnded


class Page:
    """The delivery of one page, its shard and its clock."""

    def __init__(
        self,
        observe: Any,
        on_error: str = "log",
        *,
        together: Any = None,
        more: Sequence[Handler] = (),
        **limits: Any,
    ) -> None:
        self.clock = HandClock()
        self.totals = Totals()
        self.shard = TrackedShard("a", None, TrimHorizon())
        observer = Handler("seen", observe)
        observer.handle_page = together
        dispatcher = Dispatcher([observer, *more], FailurePolicy.parse(on_error), clock=self.clock)
        self.shutdown = dispatcher.shutdown
        self.dirty: list[Position] = []
        """Where the position stood, each time that there was something to save."""
        progress = Progress(
            totals=self.totals, moved=lambda *_: self.dirty.append(self.shard.position), **limits
        )
        self.delivery = SequentialDelivery(
            dispatcher=dispatcher,
            progress=progress,
            heartbeat=Heartbeat(clock=self.clock),
            clock=self.clock,
        )

    def deliver(self, *numbers: int) -> list[Any]:
        """Where the position stood, each time that the loop had its turn in the middle of it."""
        stood = []
        self.delivery.submit(ShardKey(ARN, "a"), self.shard, page(*numbers))
        self.delivery.deliver()
        while self.delivery.full:
            stood.append(self.shard.position)
            self.delivery.deliver()
        return stood


def after(number: int) -> AfterSequence:
    return AfterSequence(str(FIRST + number))


def test_a_page_is_delivered_in_one_go_and_the_position_is_behind_it() -> None:
    seen = Seen()
    made = Page(seen)
    assert made.deliver(1, 2, 3) == []
    assert seen.numbers == [1, 2, 3] and made.shard.position == after(3)
    assert made.totals.records == 3 and made.totals.kinds == {"MODIFY": 3}
    assert made.dirty == [after(3)]
    made.delivery.move_positions()
    assert made.dirty == [after(3)], "between two pages there is nothing to move"


def test_a_slow_observer_leaves_time_for_the_rest_and_the_position_is_true_then() -> None:
    made: Page = Page(lambda record: made.clock.sleep(0.15))
    assert made.deliver(*range(6)) == [after(1), after(3), after(5)]


def test_what_a_filter_leaves_out_moves_the_position_too() -> None:
    seen = Seen()
    made = Page(seen, wire_filter=lambda wire: wire.dynamodb.SequenceNumber != str(FIRST + 2))
    made.deliver(1, 2)
    assert seen.numbers == [1] and made.shard.position == after(2)
    assert made.totals.records == 1 and made.totals.filtered == 1


def test_a_filter_that_lets_nothing_through_says_so_once_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names: Any = {"wire_filter": lambda wire: False, "names": {"totl", "pk"}}
    made = Page(Seen(), **names)
    names["clock"] = made.clock
    made = Page(Seen(), **names)
    made.delivery.submit(
        ShardKey(ARN, "a"), made.shard, msgspec.structs.replace(page(1, 2), names=["pk", "total"])
    )
    for seconds in (0.0, 29.0, 2.0, 60.0):
        names["clock"].sleep(seconds)
        made.delivery.deliver()
    assert caplog.messages == ["0 of 2 changes matched; none has totl (total?)"]


def test_a_failure_that_stops_leaves_the_position_before_it() -> None:
    def fail(record: Record) -> None:
        if record.sequence_number == str(FIRST + 2):
            raise ValueError("two")

    made = Page(fail, "stop")
    with pytest.raises(HandlerError):
        made.deliver(1, 2, 3)
    assert made.shard.position == after(1)


def test_a_shards_end_is_given_back_behind_its_records() -> None:
    made: Page = Page(lambda record: made.clock.sleep(0.15))
    shard, end = ShardKey(ARN, "a"), ReaderEnded(True)
    made.delivery.submit(shard, made.shard, page(1, 2, 3))
    made.delivery.submit_end(shard, end)
    made.delivery.submit_end(shard, None)
    assert not made.delivery.deliver() and made.delivery.is_delivering(shard)
    assert [*made.delivery.deliver()] == [(shard, end), (shard, None)]
    assert not made.delivery.is_delivering(shard) and not made.delivery.deliver()


def test_shards_take_turns_but_items_come_first_and_in_one_go() -> None:
    seen = Seen()

    def slow(record: Record) -> None:
        made.clock.sleep(0.2)
        seen(record)

    made = Page(slow)
    a, b, items = (ShardKey(ARN, name) for name in ("a", "b", "items"))
    made.delivery.submit(a, TrackedShard("a", None, TrimHorizon()), page(1, 2, 3))
    made.delivery.submit(b, TrackedShard("b", None, TrimHorizon()), page(11, 12))
    made.delivery.deliver()
    made.delivery.deliver()
    assert made.delivery.reserve(items) and made.delivery.has_changes_beside(items)
    made.delivery.submit(items, made.shard, page(21, 22), then_drain=True)
    assert made.delivery.full == {a, b, items}
    while made.delivery.full:
        made.delivery.deliver()
    assert seen.numbers == [1, 11, 21, 22, 2, 12, 3]


# Handlers that take records together


class Together:
    """Takes records together, and notes how many at once; each takes so long."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.numbers: list[int] = []
        self.at_once: list[int] = []
        self.seconds = seconds
        self.clock: HandClock | None = None

    def __call__(self, page: RecordPage) -> bool:
        self.numbers += [int(wire.dynamodb.SequenceNumber) - FIRST for wire in page.wire_records]
        self.at_once.append(len(page))
        if self.clock is not None:
            self.clock.sleep(self.seconds * len(page))
        return True


def test_a_page_goes_to_one_that_takes_records_together() -> None:
    together = Together()
    made = Page(None, together=together)
    made.deliver(*range(3000))
    assert together.numbers == list(range(3000)) and made.shard.position == after(2999)
    assert made.totals.records == 3000 and made.totals.kinds == {"MODIFY": 3000}
    assert together.at_once == [16, 32, 64, 128, 256, 512, 1024, 968]


def test_one_that_is_slow_gets_few_together_so_that_the_rest_can_have_its_turn() -> None:
    together = Together(0.01)
    made = Page(None, together=together)
    together.clock = made.clock
    assert len(made.deliver(*range(300))) > 10
    assert together.numbers == list(range(300)) and max(together.at_once[2:]) <= 4


def test_together_it_ends_at_the_number_asked_for() -> None:
    seen, together = Seen(), Together()
    made = Page(seen, together=together, max_records=20)
    made.deliver(*range(40))
    assert together.numbers == list(range(16)) and seen.numbers == [16, 17, 18, 19]
    assert made.shard.position == after(19) and made.delivery.is_complete


@pytest.mark.parametrize("how", ["raises", "refuses"])
def test_what_is_not_taken_together_is_delivered_one_by_one(how: str) -> None:
    def take(page: RecordPage) -> bool:
        if how == "raises":
            raise ValueError("not together")
        return False

    def fail(record: Record) -> None:
        if record.sequence_number == str(FIRST + 2):
            raise ValueError("two")

    made = Page(fail, "stop", together=take)
    with pytest.raises(HandlerError, match=f"failed on record {FIRST + 2}"):
        made.deliver(1, 2, 3)
    assert made.shard.position == after(1) and made.totals.records == 1


def test_what_is_taken_together_as_the_end_begins_is_the_last() -> None:
    together = Together()

    def take(page: RecordPage) -> bool:
        if together.numbers:
            made.shutdown.request()
        return together(page)

    made = Page(None, together=take)
    made.deliver(*range(100))
    assert together.at_once == [16, 32]
    assert made.shard.position == after(47)


def test_the_record_in_hand_as_the_end_begins_is_the_last_for_each_observer() -> None:
    others = Seen()

    def take(record: Record) -> None:
        if record.sequence_number == str(FIRST + 2):
            made.shutdown.request()

    made = Page(take, more=[Handler("others", others)])
    made.deliver(1, 2, 3, 4)
    assert others.numbers == [1, 2]
    assert made.shard.position == after(2)


def test_where_that_is_the_last_of_its_page_the_position_is_behind_the_page() -> None:
    def take(record: Record) -> None:
        made.shutdown.request()

    made = Page(take, wire_filter=lambda wire: wire.dynamodb.SequenceNumber == str(FIRST + 1))
    made.deliver(1)
    assert made.shard.position == after(1)


def test_nothing_is_taken_once_the_end_has_begun() -> None:
    together, seen = Together(), Seen()
    for made in Page(None, together=together), Page(seen):
        made.shutdown.request()
        made.deliver(1, 2)
        assert made.shard.position == TrimHorizon()
    assert together.numbers == seen.numbers == []
