"""Pages that show that a position is ahead of its stream, and others that do not."""

from collections.abc import Iterator

import pytest

from watcher.aws.model import Position, TrimHorizon
from watcher.errors import TransientError, TrimmedDataError
from watcher.streams.begun_anew import is_ahead

EMPTY: list[list[int]] = [[]] * 40


@pytest.mark.parametrize(
    ("at", "horizon", "expected"),
    [
        pytest.param([[9, 10]], [[1]], False, id="its record comes"),
        pytest.param([[7], [], [8, 9]], [[1]], False, id="an iterator goes back, as Alternator's"),
        pytest.param([[], [], [9]], [[1]], False, id="empty pages before its record"),
        pytest.param(TrimmedDataError("gone"), [[1]], False, id="its record is trimmed"),
        pytest.param(EMPTY, [[], [1]], True, id="nothing follows, and lower numbers are there"),
        pytest.param([[1, 2], *EMPTY], [], True, id="any position gives the first records"),
        pytest.param(EMPTY, EMPTY, None, id="nothing is there yet"),
        pytest.param([[]], [[1]], None, id="an answer without a next iterator"),
        pytest.param(TransientError("503"), [[1]], None, id="an error"),
    ],
)
def test_a_position_is_ahead_of_a_stream_that_ends_below_it(
    at: list[list[int]] | Exception, horizon: list[list[int]], expected: bool | None
) -> None:
    def read(position: Position) -> Iterator[list[int]]:
        pages = horizon if isinstance(position, TrimHorizon) else at
        if isinstance(pages, Exception):
            raise pages
        yield from pages

    assert is_ahead("9", read) is expected
