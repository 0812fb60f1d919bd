"""A handler that is tried again, maybe for ever: when, what is said of it, and how it ends."""

import json
import logging
import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from tests.support.wire import record
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.records.record import Record
from watcher.shutdown import Overdue, Shutdown

HOUR = 3600.0


class Away:
    """A handler whose database is away until a moment, and that notes its calls."""

    def __init__(self, clock: HandClock, until: float = math.inf) -> None:
        self._clock = clock
        self.until = until
        self.called: list[float] = []
        self.stored: list[str] = []

    def handle(self, record: Record) -> None:
        self.called.append(self._clock.passed)
        if self._clock.passed < self.until:
            raise ConnectionError("no database")
        self.stored.append(record.sequence_number)


def dispatcher(
    handlers: Sequence[Handler],
    on_error: str,
    clock: HandClock,
    timeout: float = math.inf,
    during_wait: Callable[[], object] = lambda: None,
) -> Dispatcher:
    return Dispatcher(
        handlers,
        FailurePolicy.parse(on_error),
        shutdown=Shutdown(timeout, clock=clock),
        clock=clock,
        during_wait=during_wait,
    )


def test_for_ever_means_until_it_succeeds_with_a_minute_between_tries_at_most() -> None:
    clock, others = HandClock(), list[str]()
    away = Away(clock, until=8 * HOUR)
    other = Handler("other", lambda record: others.append(record.sequence_number))
    made = dispatcher([other, Handler("away", away.handle), other], "retry", clock)
    for number in (1, 2):
        made.deliver(record(number))
    numbers = [record(number).sequence_number for number in (1, 2)]
    assert away.stored == numbers
    assert others == [number for number in numbers for _ in range(2)], "none gets a record twice"
    pauses = [later - sooner for sooner, later in pairwise(away.called[:-1])]
    assert 48 <= max(pauses) <= 60 and len({round(each, 3) for each in pauses}) > 400
    assert made.failures == 0 and made.retries.counts == {"away": len(away.called) - 2}
    assert not made.retries.under_way


def test_it_is_said_at_first_and_ever_later_and_as_it_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    clock = HandClock()
    away = Away(clock, until=50 * 60)
    dispatcher([Handler("away", away.handle)], "retry", clock).deliver(record(1))
    which = f"record {record(1).sequence_number} of shard-0 (pk=a)"
    first, *later, last = caplog.messages
    assert first.startswith(f"handler away failed on {which}: ConnectionError: no database at ")
    assert first.endswith("; trying again until it succeeds")
    told = [
        re.findall(r"; still, after ([0-9]+) min .* tries: its shard waits", each) for each in later
    ]
    pauses = [int(minutes) for (minutes,) in told]
    assert len(pauses) == 3 and pauses[0] == 1 and all(b >= 4 * a for a, b in pairwise(pauses))
    assert last.startswith(f"handler away has processed {which} after 50 min")


def test_a_record_that_grows_old_is_warned_of_before_its_stream_forgets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, form = HandClock(), json.loads(bytes(record(1).raw))
    form["dynamodb"]["ApproximateCreationDateTime"] = NOON.timestamp() - 16 * HOUR
    young = Record.from_json(json.dumps(form).encode(), "shard-0")
    for each in (young, record(2)):  # one of years ago is past saving
        away = Away(clock, until=clock.passed + 3 * HOUR)
        dispatcher([Handler("away", away.handle)], "retry", clock).deliver(each)
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "is 18 h old, and handler away still fails on it" in warning.getMessage()


@pytest.mark.parametrize("policy", ["retry:90s", "retry:90s,log"])
def test_a_span_ends_with_a_last_try_and_the_record_is_given_up(policy: str) -> None:
    clock = HandClock()
    away = Away(clock)
    made = dispatcher([Handler("away", away.handle)], policy, clock)
    made.deliver(record(1))
    assert away.called[-1] == pytest.approx(90.0)
    assert made.failures == 1
    made.deliver(record(2))
    assert away.called[-1] == pytest.approx(180.0), "each record has its own"


def test_a_stop_leaves_the_record_at_once_where_the_next_try_is_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    away = Away(clock)

    def stop() -> None:
        if clock.passed > HOUR and not made.shutdown.requested:
            made.shutdown.request()
            asked.append(clock.passed)

    asked: list[float] = []
    made = dispatcher([Handler("away", away.handle)], "retry", clock, 5.0, stop)
    with pytest.raises(Overdue, match="handler away still fails on record"):
        made.deliver(record(1))
    assert clock.passed - asked[0] < 5.0
    assert made.failures == 0


def test_while_it_waits_the_loop_is_called_several_times_a_second() -> None:
    clock, calls = HandClock(), list[float]()
    away = Handler("away", Away(clock, until=HOUR).handle)
    made = dispatcher([away], "retry", clock, during_wait=lambda: calls.append(clock.passed))
    made.deliver(record(1))
    assert max(later - sooner for sooner, later in pairwise(calls)) < 0.3


def test_a_closed_standard_output_is_not_waited_for() -> None:
    clock = HandClock()

    def write(record: Record) -> None:
        raise OSError(28, "No space left on device")

    made = dispatcher([Handler("writes", write)], "retry", clock)
    with pytest.raises(Exception, match="stopped before it"):
        made.deliver(record(1))
    assert clock.passed == 0


@pytest.mark.parametrize("passed", [0.0, 30.0, 400.0])
def test_the_figures_say_how_long_it_lasts(passed: float) -> None:
    clock, found = HandClock(), list[dict[str, float]]()

    def look() -> None:
        if clock.passed >= passed and not found:
            found.append(made.retries.lasting())

    away = Handler("away", Away(clock, until=500.0).handle)
    made = dispatcher([away], "retry", clock, during_wait=look)
    made.deliver(record(1))
    assert found[0]["away"] == pytest.approx(passed, abs=0.2)
    assert made.retries.lasting() == {}
