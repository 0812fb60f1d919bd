"""The end of an open shard: told by LATEST, and by more than one answer of it."""

from datetime import timedelta

import pytest

from tests.spark.played import PlayedStream, number
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from tests.support.times import NOON
from watcher.streams.end_detector import EndDetector
from watcher.streams.read_rate import PageFetcher


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    made = PlayedStream(clock)
    made.write("a", range(10))
    return made


def end(clock: HandClock) -> EndDetector:
    made = EndDetector(ARN, "a", NOON + timedelta(seconds=3), clock=clock, reads=PageFetcher(clock))
    made.on_iterator(NOON)
    return made


def reads(made: EndDetector, empty_pages: int) -> None:
    for _ in range(empty_pages):
        made.on_page(is_empty=True)


def test_an_idle_shard_ends_as_soon_as_a_write_would_have_reached_it(
    clock: HandClock, stream: PlayedStream
) -> None:
    """Whatever its age: 36 empty pages are a quiet day's."""
    began, made, pages = clock.monotonic(), end(clock), 0
    while not made.at_end(int(number(9)), has_records=False, service=stream):
        clock.sleep(made.delay)
        made.on_page(is_empty=True)
        pages += 1
    assert pages == 36 and stream.reads == ["a"], "one read at LATEST"
    assert 2 <= clock.monotonic() - began < 3


def test_no_number_of_empty_pages_is_an_end_but_a_time_of_them(
    clock: HandClock, stream: PlayedStream
) -> None:
    made = end(clock)
    clock.sleep(60)
    made.probe_latest(int(number(9)), stream)
    reads(made, 1000)
    clock.sleep(0.9)
    assert made.is_open and not made.is_left_open
    clock.sleep(0.1)
    assert made.is_left_open


def test_a_new_iterator_has_all_the_empty_pages_before_it_again(
    clock: HandClock, stream: PlayedStream
) -> None:
    made = end(clock)
    reads(made, 35)
    clock.sleep(60)
    made.probe_latest(int(number(9)), stream)
    for _ in range(2):
        made.on_iterator(NOON)
        reads(made, 34)
        assert not made.is_left_open
    reads(made, 2)
    assert made.is_left_open
    made.on_iterator(NOON)
    assert not made.is_left_open
    reads(made, 15)
    assert made.is_left_open, (
        "where each of them is refused soon, there is an end to it all the same"
    )


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_it_is_enough_that_one_clock_goes_on(clock: HandClock, minutes: int) -> None:
    made = end(clock)
    made.on_iterator(NOON + timedelta(minutes=minutes))
    assert made.is_due == (minutes > 0)
    clock.sleep(6)
    assert made.is_due


def test_the_latest_of_three_answers_counts(clock: HandClock, stream: PlayedStream) -> None:
    made = end(clock)
    clock.sleep(6)
    made.probe_latest(int(number(5)), stream)
    assert made.number is None
    stream.write("a", range(20, 30))
    records, firsts = stream.get_records, iter([5, 20, 15])

    def from_others(iterator: str, limit: int | None = None) -> bytes:
        return records(f"a {next(firsts)}", limit)

    stream.get_records = from_others  # type: ignore[method-assign]
    clock.sleep(1)
    made.probe_latest(int(number(5)), stream)
    assert made.number is None, "one knows no LATEST: all are asked for anew"
    firsts = iter([20, 6, 22])
    clock.sleep(1)
    made.probe_latest(int(number(5)), stream)
    assert made.number == int(number(22))
