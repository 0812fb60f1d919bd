"""What a program takes, sampled while it runs, and whether it takes more and more."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import children, memory_of

# What comes before is no steady state yet; a shorter time says nothing of memory.
_WARM_UP = 0.25
_LEAST_HOURS = 0.1
_MOST_POINTS = 200


class Sample(NamedTuple):
    """A moment; memory is in MB, without what is mapped from files (Python itself, libraries)."""

    hours: float
    manager: float
    """The manager's memory."""
    processes: float
    """The memory of all its processes, and its own: what they share is counted once."""
    alive: int
    """How many processes there are."""
    descriptors: int
    """The manager's."""
    threads: int


LIMITS = {
    "manager": (3.0, 0.05),
    "processes": (25.0, 0.20),  # it swings: a process that a kill or a rotation starts has less
    "alive": (2.0, 0.0),
    "descriptors": (4.0, 0.0),
    "threads": (1.0, 0.0),
}
"""By how much a figure may rise over the time judged, and its share: the larger one of the two."""


class Growth(NamedTuple):
    """How a figure went."""

    name: str
    median: float
    an_hour: float
    rise: float
    """Over all the time judged."""
    too_much: bool


def sample(process: int, hours: float) -> Sample:
    """What a program takes now. Raises OSError where it has ended."""
    folder, others = Path(f"/proc/{process}"), children(process)
    return Sample(
        hours,
        memory_of(process, "Anonymous"),
        sum(memory_of(each, "Pss_Anon") for each in (process, *others)),
        1 + len(others),
        len(list((folder / "fd").iterdir())),
        len(list((folder / "task").iterdir())),
    )


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """Each figure's way, by the median of the slopes between all pairs of points (Theil, Sen)."""
    if not samples or samples[-1].hours < _LEAST_HOURS:
        return []
    judged = [each for each in samples if each.hours >= _WARM_UP * samples[-1].hours]
    judged = judged[:: -(-len(judged) // _MOST_POINTS)]
    found = []
    for name, (least, share) in LIMITS.items():
        points = [(each.hours, float(getattr(each, name))) for each in judged]
        slope = statistics.median(
            (late[1] - early[1]) / (late[0] - early[0])
            for index, early in enumerate(points)
            for late in points[index + 1 :]
        )
        median = statistics.median(value for _, value in points)
        rise = slope * (points[-1][0] - points[0][0])
        found.append(Growth(name, median, slope, rise, rise > max(least, share * median)))
    return found
