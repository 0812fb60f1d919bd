"""Pages that show that a position is ahead of its stream, and others that do not."""

from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from tests.support.wire import FIRST, body, created
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.clock import CLOCK
from watcher.errors import TransientError, TrimmedDataError
from watcher.streams import checkpoint_format
from watcher.streams.lineage import Lineage, TrackedShard
from watcher.streams.messages import ReaderEnded
from watcher.streams.position_check import PositionCheck
from watcher.streams.read_rate import PageFetcher
from watcher.streams.shard_reader import ShardReader

END = [-1]
"""A page without a record and a next iterator."""


@pytest.mark.parametrize(
    ("at", "horizon", "expected"),
    [
        pytest.param([[9, 10]], [1], False, id="its record comes"),
        pytest.param([[7], [], [8, 9]], [1], False, id="an iterator goes back, as Alternator's"),
        pytest.param([[], [], [9]], [1], False, id="empty pages before its record"),
        pytest.param([*[[]] * 36, [9]], [1], False, id="the empty pages of a quiet day"),
        pytest.param([[], END, END, END, [9]], [1], False, id="odd ends of a shard that is open"),
        pytest.param([[], TransientError("503"), [9]], [1], False, id="an error"),
        pytest.param([TrimmedDataError("gone")], [1], False, id="its record is trimmed"),
        pytest.param([[]] * 80, [1], True, id="nothing follows, and lower numbers are there"),
        pytest.param([[1, 2], *[[]] * 80], [], True, id="any position gives the first records"),
        pytest.param([END] * 80, [1], True, id="it is closed, and lacks its record"),
        pytest.param([[]] * 80, [], None, id="nothing is there yet"),
        pytest.param([[12], [12]], [1], True, id="later numbers have overtaken it"),
        pytest.param([[12], [9, 12]], [1], False, id="its record comes out of turn"),
        pytest.param([[12], [12]], [11], False, id="its record has left, as all before it"),
    ],
)
def test_a_position_is_ahead_of_a_stream_that_lacks_its_record(
    at: list[list[int] | Exception], horizon: list[int], expected: bool | None
) -> None:
    answers = iter(at)

    def get_records(iterator: str, limit: int | None = None) -> bytes:
        answer = horizon if iterator == "horizon" else next(answers)
        if isinstance(answer, Exception):
            raise answer
        return b'{"Records": []}' if answer is END else body(answer)

    def get_iterator(arn: str, shard_id: str, position: Any) -> tuple[str, None]:
        return "horizon" if isinstance(position, TrimHorizon) else "at", None

    service = Mock(get_records=get_records, get_iterator=get_iterator)
    check = PositionCheck("arn", "shard", PageFetcher(CLOCK))
    check.doubt(AfterSequence(str(FIRST + 9)))
    is_ahead = any(check.step(service) for _ in range(60))
    is_open = check.on_page(has_news=False)
    assert (None if is_open else is_ahead) is expected


def test_nothing_waits_for_ever_where_no_look_succeeds_and_reads_fail_again_and_again() -> None:
    """Each failure began the wait anew: of thirty records three came in 40 seconds."""
    service = Mock(get_iterator=Mock(side_effect=TransientError("503")))
    check = PositionCheck("arn", "shard", PageFetcher(CLOCK))
    waits = []
    for number in range(200):
        if number % 5 == 0:
            check.doubt(AfterSequence(str(FIRST + 9)), is_broken=True)
        check.step(service)
        waits.append(check.is_pending)
    assert not all(waits)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_checkpoint_tells_its_record_from_a_later_one_of_its_number(is_same: bool) -> None:
    """A record of another life was taken for it, and those before were left out in silence."""
    shard = TrackedShard("shard", None, TrimHorizon())
    shard.move_behind(str(FIRST + 9), created(9) - (not is_same))
    lineage = Lineage(TrimHorizon(), [shard])
    (resumed,) = checkpoint_format.resume(checkpoint_format.make("arn", lineage, NOON), NOON)
    service = Mock(
        get_records=Mock(return_value=body([9])), get_iterator=Mock(return_value=("at", NOON))
    )
    reader = ShardReader(
        "arn", "shard", resumed.position, created=resumed.created, clock=HandClock()
    )
    ended = [each.anew for each in reader.attempt(service) if isinstance(each, ReaderEnded)]
    assert len(ended) == (not is_same)
