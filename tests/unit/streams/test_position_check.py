"""Pages that show that a position is ahead of its stream, and others that do not."""

import pytest

from watcher.aws.model import Position, TrimHorizon
from watcher.errors import TransientError, TrimmedDataError
from watcher.streams.position_check import PositionCheck

END = [-1]
"""A page without a record and a next iterator."""


@pytest.mark.parametrize(
    ("at", "horizon", "expected"),
    [
        pytest.param([[9, 10]], [1], False, id="its record comes"),
        pytest.param([[7], [], [8, 9]], [1], False, id="an iterator goes back, as Alternator's"),
        pytest.param([[], [], [9]], [1], False, id="empty pages before its record"),
        pytest.param([[], END, [9]], [1], False, id="one odd answer without a next iterator"),
        pytest.param([[], TransientError("503"), [9]], [1], False, id="an error"),
        pytest.param([TrimmedDataError("gone")], [1], False, id="its record is trimmed"),
        pytest.param([[]] * 60, [1], True, id="nothing follows, and lower numbers are there"),
        pytest.param([[1, 2], *[[]] * 60], [], True, id="any position gives the first records"),
        pytest.param([END] * 20, [1], True, id="it is closed, and lacks its record"),
        pytest.param([[]] * 60, [], None, id="nothing is there yet"),
    ],
)
def test_a_position_is_ahead_of_a_stream_that_ends_below_it(
    at: list[list[int] | Exception], horizon: list[int], expected: bool | None
) -> None:
    answers = iter(at)

    def read(iterator: str) -> tuple[list[int], str | None]:
        answer = horizon if iterator == "horizon" else next(answers)
        if isinstance(answer, Exception):
            raise answer
        return ([], None) if answer is END else (answer, "at")

    def get_iterator(position: Position) -> str:
        return "horizon" if isinstance(position, TrimHorizon) else "at"

    check = PositionCheck("9")
    found = (check.step(get_iterator, read) for _ in range(16))
    assert next((each for each in found if each is not None), None) is expected
