"""Which records go on: whatever the service repeats, each number does once, and in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Position, TrimHorizon
from watcher.errors import TransientError
from watcher.records.wire import WireChange, WireRecord
from watcher.streams.deduplicator import Deduplicator, sorted_places

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def record(number: int | str, created: datetime = NOON, event: str = "") -> WireRecord:
    text = str(number)
    return WireRecord(WireChange(text, created.timestamp()), eventID=event or text)


def through(sieve: Deduplicator, *page: int | str) -> list[int]:
    return gone_on(sieve, [record(number) for number in page])


def gone_on(sieve: Deduplicator, page: list[WireRecord]) -> list[int]:
    parts = sieve.through(page)
    if parts is None:
        page = [page[place] for place in sorted_places(page)]
        parts = sieve.through(page)
        assert parts is not None
    assert all(first < last for first, last in parts)
    return [int(each.dynamodb.SequenceNumber) for part in parts for each in page[slice(*part)]]


@pytest.mark.parametrize(
    ("position", "expected"),
    [(TrimHorizon(), [4, 5, 6]), (AfterSequence("0005"), [6]), (AtSequence("5"), [5, 6])],
)
def test_what_is_not_beyond_the_position_has_come_before(
    position: Position, expected: list[int]
) -> None:
    assert through(Deduplicator(position), 4, 5, 6) == expected


def test_a_reader_takes_nothing_from_before_its_first_record() -> None:
    sieve = Deduplicator(AtTime(NOON))
    assert through(sieve, 5, 7) == [5, 7]
    assert through(sieve, 4, 5, 6, 7) == [6]


@given(st.permutations(range(12)), st.sampled_from([1, 10**19, 10**58]), st.data())
def test_each_record_goes_on_once_in_whatever_order_the_service_gives_them(
    numbers: list[int], scale: int, data: st.DataObject
) -> None:
    sieve = Deduplicator(TrimHorizon())
    seen: list[int] = []
    while numbers:
        cut = data.draw(st.integers(1, len(numbers)))
        repeats = data.draw(st.sets(st.sampled_from(seen or numbers[:1])))
        width = data.draw(st.sampled_from([1, 21, 60]))  # zeros before it, now and then
        given = [str(each * scale).zfill(width) for each in (*numbers[:cut], *repeats)]
        seen += [each // scale for each in through(sieve, *given)]
        numbers = numbers[cut:]
    assert sorted(seen) == [*range(12)]


def test_a_late_number_further_back_than_what_is_remembered_counts_as_seen() -> None:
    sieve = Deduplicator(TrimHorizon())
    through(sieve, *range(0, 2000, 2))
    assert sieve.late == 0
    assert through(sieve, *range(2000, 3000)) == [*range(2000, 3000)]
    assert through(sieve, 1, 1997, 1999) == [1999]
    assert sieve.late == 1
    assert through(sieve, 3000, 3001) == [3000, 3001]
    assert sieve.late == 0


def test_two_changes_of_a_page_may_share_a_number() -> None:
    page = [record(1, event="x"), record(1, event="y"), record(1, event="y"), record(2)]
    assert gone_on(Deduplicator(TrimHorizon()), page) == [1, 1, 2]


def test_pages_that_lead_no_further_are_counted() -> None:
    sieve = Deduplicator(AfterSequence("9"))
    stuck = []
    for page in ([1, 2], [3, 4], [3, 4], [3, 4], [9], [10]):
        through(sieve, *page)
        stuck.append(sieve.repeats_in_a_row)
    assert stuck == [0, 0, 1, 2, 0, 0]


def test_one_record_stamped_late_does_not_hide_those_behind_it() -> None:
    sieve = Deduplicator(TrimHorizon(), end=NOON)
    page = [record(number, NOON + timedelta(hours=number == 2)) for number in range(5)]
    assert gone_on(sieve, page) == [0, 1, 3, 4]
    assert not sieve.is_past_end


def test_a_thousand_records_in_a_row_that_are_later_are_the_end() -> None:
    sieve = Deduplicator(TrimHorizon(), end=NOON)
    later = NOON + timedelta(seconds=1)
    assert gone_on(sieve, [record(number, later) for number in range(999)]) == []
    assert not sieve.is_past_end
    gone_on(sieve, [record(1000, later)])
    assert sieve.is_past_end


def test_what_was_held_back_as_too_old_is_no_repeat_for_a_new_iterator() -> None:
    sieve = Deduplicator(TrimHorizon())
    sieve.skip_before = (NOON + timedelta(seconds=1)).timestamp()
    assert through(sieve, 1, 2) == []
    sieve.rewind()
    assert through(sieve, 1, 2) == []
    assert sieve.repeated == 0


@pytest.mark.parametrize("page", [["x1"], ["9" * 5000], ["1", "9" * 5000], ["9" * 5000] * 2])
def test_a_number_that_is_none_or_has_thousands_of_digits_is_a_broken_answer_of_one_short_line(
    page: list[str],
) -> None:
    with pytest.raises(TransientError, match=r"sequence number") as caught:
        through(Deduplicator(TrimHorizon()), *page)
    assert len(str(caught.value)) < 200
