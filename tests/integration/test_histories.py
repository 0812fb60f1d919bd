"""What can happen to a stream, once through each engine: all of them deliver and say the same.

Each history is written down once. A shard's records are numbers; 0 to 9 are there at the beginning.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import EXPIRED, PlayedStream
from tests.support.engines import ENGINES, UP_TO_NOW, Outcome, Timeline, spark_batch
from watcher.errors import (
    CredentialsError,
    DataLossError,
    ExpiredIteratorError,
    TransientError,
    UnexpectedAnswerError,
)

Engine = Callable[[PlayedStream, Timeline, float], Outcome]


@dataclass(frozen=True)
class History:
    """What happens, what has to come of it, and by when."""

    name: str
    happens: Callable[[PlayedStream, Timeline], None]
    records: int
    """All numbers below it are delivered, each once, in order."""
    gone: tuple[int, ...] = ()
    """But for these, which are lost, and said to be."""
    seconds: float = 30.0

    def __str__(self) -> str:
        return self.name


def a_split(stream: PlayedStream, clock: Timeline) -> None:
    clock.at(2, lambda: stream.write("b", range(10, 20), parent="a"))
    clock.at(2, lambda: stream.write("c", range(20, 30), parent="a"))


def a_listing_that_lags(stream: PlayedStream, clock: Timeline) -> None:
    """Both children are shown late, the second one long after the first."""
    a_split(stream, clock)
    clock.at(2, lambda: stream.hidden.update("bc"))
    clock.at(4, lambda: stream.hidden.discard("b"))
    clock.at(6.5, lambda: stream.hidden.discard("c"))


def an_expired_token(stream: PlayedStream, clock: Timeline) -> None:
    """Listings fail in mid-stream (at the beginning they are an error), reads also in a batch."""
    clock.at(2, lambda: stream.errors.extend([CredentialsError(EXPIRED)] * 2))
    clock.at(2, lambda: stream.read_errors.extend([CredentialsError(EXPIRED)] * 3))
    clock.at(3, lambda: stream.write("a", range(10, 20)))
    clock.at(20, stream.errors.clear)


def troubles(stream: PlayedStream, clock: Timeline) -> None:
    throttled = TransientError("slow down", throttled=True)
    clock.at(1, lambda: stream.read_errors.extend([throttled, TransientError("500")] * 3))
    clock.at(1, lambda: stream.errors.extend([TransientError("reset")] * 3))
    clock.at(25, stream.errors.clear)  # the client tries a first listing again
    a_split(stream, clock)


def odd_answers(stream: PlayedStream, clock: Timeline) -> None:
    """A proxy says what it likes, once and again, to whatever it is asked; a batch is read then."""

    def say(times: int) -> None:
        stream.read_errors[:] = [UnexpectedAnswerError("<html>")] * times

    for moment, times in (2, 2), (4, 5), (11, 9), (29.9, 2):
        clock.at(moment, lambda times=times: say(times))  # type: ignore[misc]
    clock.at(2, lambda: stream.errors.extend([UnexpectedAnswerError("<html>")] * 5))
    clock.at(25, stream.errors.clear)
    a_split(stream, clock)


def a_hidden_parent(stream: PlayedStream, clock: Timeline) -> None:
    """Its child is listed first, and has to wait for it."""
    stream.write("b", range(10, 20), parent="a")
    stream.hidden.add("a")
    clock.at(3, stream.hidden.clear)


def a_gone_parent(stream: PlayedStream, clock: Timeline) -> None:
    stream.parents["a"] = "gone"


def a_trim(stream: PlayedStream, clock: Timeline) -> None:
    """Reading fails for so long that what is written meanwhile leaves retention."""

    def fail() -> None:
        stream.read_errors.extend([TransientError("500"), ExpiredIteratorError("too old")])
        stream.write("a", range(10, 30))
        stream.trimmed = 19

    clock.at(70, fail)


def a_listed_parent_that_is_gone(stream: PlayedStream, clock: Timeline) -> None:
    """DynamoDB Local lists shards that are out of retention for ever."""
    stream.records_of = {"old": [], **stream.records_of}
    stream.parents["a"] = "old"
    stream.closed.add("old")
    stream.refused.add("old")


def a_stream_that_is_disabled(stream: PlayedStream, clock: Timeline) -> None:
    """All shards are closed, and have no children; what is there is still to be read."""
    clock.at(2, lambda: stream.write("a", range(10, 20)))
    clock.at(2, lambda: stream.closed.add("a"))


def an_iterator_that_goes_back(stream: PlayedStream, clock: Timeline) -> None:
    """Every other read of each shard repeats what came just before."""
    a_split(stream, clock)
    records, calls = stream.get_records, Counter[str]()

    def back(iterator: str, limit: int | None = None) -> bytes:
        shard_id, first = iterator.split()
        calls[shard_id] += 1
        if calls[shard_id] % 2 == 0:
            first = str(max(0, int(first) - 4))
        return records(f"{shard_id} {first}", limit)

    stream.page_size = 3
    stream.get_records = back  # type: ignore[method-assign]


def empty_at_first(stream: PlayedStream, shard_id: str, pages: int) -> None:
    """So many pages of a shard are empty though records follow."""
    records, left = stream.get_records, pages

    def empty(iterator: str, limit: int | None = None) -> bytes:
        nonlocal left
        name, first = iterator.split()
        if name == shard_id and left and int(first) <= max(stream.records_of[name]):
            left -= 1
            return json.dumps({"Records": [], "NextShardIterator": iterator}).encode()
        return records(iterator, limit)

    stream.get_records = empty  # type: ignore[method-assign]


def a_closed_shard_of_empty_pages(stream: PlayedStream, clock: Timeline) -> None:
    """It ends where its iterator does, not where it seems to be empty."""
    a_split(stream, clock)
    stream.closed.add("a")
    empty_at_first(stream, "a", 400)


HISTORIES = [
    History("a split", a_split, 30),
    History("an iterator that goes back", an_iterator_that_goes_back, 30),
    History("a closed shard of empty pages", a_closed_shard_of_empty_pages, 30),
    History("a listing that lags", a_listing_that_lags, 30),
    History("an expired token", an_expired_token, 20),
    History("troubles", troubles, 30),
    History("odd answers", odd_answers, 30),
    History("a hidden parent", a_hidden_parent, 20),
    History("a gone parent", a_gone_parent, 10, seconds=70),
    History("a trim", a_trim, 30, gone=tuple(range(10, 20)), seconds=120),
    History("a listed parent that is gone", a_listed_parent_that_is_gone, 10),
    History("a stream that is disabled", a_stream_that_is_disabled, 20),
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_every_engine_makes_the_same_of_a_history(history: History, engine: Engine) -> None:
    clock = Timeline()
    stream = PlayedStream(clock)
    stream.write("a", range(10))
    history.happens(stream, clock)

    if engine is spark_batch and history.happens is a_listed_parent_that_is_gone:
        # It can't be told from a shard that vanished after the listing, under the batch.
        with pytest.raises(DataLossError):
            engine(stream, clock, history.seconds)
        return

    outcome = engine(stream, clock, history.seconds)

    expected = [number for number in range(history.records) if number not in history.gone]
    losses = len(history.gone) > 0
    if engine is spark_batch:  # it begins when what it can't have is gone already
        expected, losses = [each for each in expected if each > stream.trimmed], False
    assert sorted(outcome.numbers) == expected, "lost, or delivered twice"
    assert outcome.losses == losses
    for shard_id, numbers in stream.records_of.items():
        own = [number for number in outcome.numbers if number in numbers]
        assert own == sorted(own), "out of order"
        if engine is not spark_batch and (parent := stream.parents.get(shard_id)):
            before = stream.records_of.get(parent, [])
            positions = [outcome.numbers.index(each) for each in before if each in expected]
            assert not own or max(positions, default=-1) < outcome.numbers.index(own[0])


@pytest.mark.parametrize("engine", UP_TO_NOW, ids=lambda engine: engine.__name__)
def test_up_to_now_has_a_child_that_no_listing_shows_as_the_reading_begins(
    engine: Callable[[PlayedStream, Timeline], Outcome],
) -> None:
    """Its parent looks open, and has ended; nor is the child's child listed."""
    clock = Timeline()
    stream = PlayedStream(clock)
    stream.write("a", range(10))
    stream.write("b", range(10, 20), parent="a")
    stream.write("c", range(20, 30), parent="b")
    stream.hidden |= {"b", "c"}
    stream.looks_open |= {"a", "b"}
    clock.at(4, stream.hidden.clear)
    clock.at(4, stream.looks_open.clear)
    assert engine(stream, clock).numbers == list(range(30))


@pytest.mark.parametrize("pages", [11, 30])
@pytest.mark.parametrize("engine", UP_TO_NOW, ids=lambda engine: engine.__name__)
def test_up_to_now_no_number_of_empty_pages_is_the_end_of_an_open_shard(
    engine: Callable[[PlayedStream, Timeline], Outcome], pages: int
) -> None:
    """It is left where some time brings nothing else."""
    clock = Timeline()
    stream = PlayedStream(clock)
    stream.write("a", range(10))
    empty_at_first(stream, "a", pages)
    assert engine(stream, clock).numbers == list(range(10))
    assert clock.passed < (12 if engine is spark_batch else 5)
