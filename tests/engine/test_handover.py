"""How far a page has come: behind what was delivered, never further."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hand_clock import HandClock
from tests.play import ARN, Seen, page
from tests.wire import FIRST
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.observer import Observer
from watcher.delivery.on_error import OnError
from watcher.engine.figures import Figures, Totals
from watcher.engine.handover import Handover
from watcher.errors import ObserverError
from watcher.reading.lineage import Tracked
from watcher.record.record import Record
from watcher.service.model import AfterSequence, TrimHorizon
from watcher.service.tally import Board


class Page:
    """A handover of one page, its shard and its clock."""

    def __init__(self, observe: Any, on_error: str = "log", **more: Any) -> None:
        self.clock = HandClock()
        self.totals = Totals()
        self.shard = Tracked("a", None, TrimHorizon())
        dispatcher = Dispatcher(
            [Observer("seen", observe)], OnError.parse(on_error), clock=self.clock
        )
        figures = Figures(1.0, Board(4), self.clock)
        self.handover = Handover(dispatcher, figures, self.totals, clock=self.clock, **more)

    def deliver(self, *numbers: int) -> list[Any]:
        """Where the position stood, each time that the delivery paused."""
        return [self.shard.position for _ in self.handover.deliver(ARN, self.shard, page(*numbers))]


def after(number: int) -> AfterSequence:
    return AfterSequence(str(FIRST + number))


def test_a_page_is_delivered_in_one_go_and_the_position_is_behind_it() -> None:
    seen = Seen()
    made = Page(seen)
    assert made.deliver(1, 2, 3) == []
    assert seen.numbers == [1, 2, 3] and made.shard.position == after(3)
    assert made.totals.records == 3 and made.totals.kinds == {"MODIFY": 3}


def test_a_slow_observer_leaves_time_for_the_rest_and_the_position_is_true_then() -> None:
    made: Page = Page(lambda record: made.clock.sleep(0.15))
    assert made.deliver(*range(6)) == [after(1), after(3), after(5)]


def test_what_a_filter_leaves_out_moves_the_position_too() -> None:
    seen = Seen()
    made = Page(seen, wanted=lambda record: record.sequence_number != str(FIRST + 2))
    made.deliver(1, 2)
    assert seen.numbers == [1] and made.shard.position == after(2)
    assert made.totals.records == 1 and made.totals.filtered == 1


def test_it_ends_at_the_number_asked_for() -> None:
    seen = Seen()
    made = Page(seen, max_records=2)
    made.deliver(1, 2, 3)
    assert seen.numbers == [1, 2] and made.shard.position == after(2)
    assert made.handover.is_complete


def test_a_failure_that_stops_leaves_the_position_before_it() -> None:
    def fail(record: Record) -> None:
        if record.sequence_number == str(FIRST + 2):
            raise ValueError("two")

    made = Page(fail, "stop")
    with pytest.raises(ObserverError):
        made.deliver(1, 2, 3)
    assert made.shard.position == after(1)


def test_between_two_pages_there_is_nothing_to_move() -> None:
    made = Page(Seen())
    made.deliver(1)
    made.shard.position = TrimHorizon()
    made.handover.move()
    assert made.shard.position == TrimHorizon()
