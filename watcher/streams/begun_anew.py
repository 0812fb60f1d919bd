"""Finds out whether a position is ahead of its stream, because that has started from scratch.

An emulator that starts again may keep its stream's ARN and creation time, and count from 1 again:
nothing follows the position, or only records that seem to be repeats. Such a stream holds lower
numbers and not the position's record, which AT_SEQUENCE_NUMBER returns everywhere else: also where
an iterator goes back a little (Alternator's), which then comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from watcher.aws.model import AtSequence, Position, TrimHorizon
from watcher.errors import ServiceError, StreamError, TrimmedDataError

_HORIZON_PAGES = 3
"""The number of pages from the trim horizon that are to show a lower number."""
_QUIET_PAGES = 36
"""The number of empty pages in a row that no record follows; see `end_detector`."""
_PAGES = 200
"""The number of pages in all after which the question stays open."""

REASON = "the stream has started from scratch, as an emulator may: its numbers are lower now"

Read = Callable[[Position], Iterator[list[int]]]
"""Reads a shard from a position on: yields the sequence numbers of each page."""


def is_ahead(number: str, read: Read) -> bool | None:
    """Returns True if the shard's numbers end below this one, of a record; None: not certain.

    Where nothing is amiss, it reads one page.
    """
    try:
        return _is_ahead(number, read)
    except TrimmedDataError:
        return False  # older than the retention: the shard goes on from numbers that it knows
    except (ServiceError, StreamError):
        return None


def _is_ahead(number: str, read: Read) -> bool | None:
    wanted, quiet, has_lower = int(number), 0, False
    for count, numbers in enumerate(islice(read(AtSequence(number)), _PAGES)):
        if any(each >= wanted for each in numbers):
            return False
        if not count:
            oldest = islice(read(TrimHorizon()), _HORIZON_PAGES)
            has_lower = bool(numbers) or any(each < wanted for page in oldest for each in page)
        quiet = 0 if numbers else quiet + 1
        if not has_lower or quiet == _QUIET_PAGES:
            return has_lower or None
    return None
