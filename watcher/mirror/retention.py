"""How much of the replaced files and of old commits a mirror keeps, for readers of older versions.

They are kept for a week, but no more of them than `replaced_share` times the table: older ones go,
together with the commits that name them. So a mirror that changes all the time stays a few times
its table's size, however long it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class StorageLimits:
    """How much is kept for readers of older versions."""

    replaced_share: float = 2.0
    """So many times the table's bytes, at most …"""
    replaced_bytes: int = 16 * 1024 * 1024
    """… or so many, where the table is small."""
    at_least: timedelta = timedelta(minutes=5)
    """Not less than so long, whatever it takes: a reader may be in the middle of a version."""
    commits: int = 10
    """Nor fewer commits: one of the newest has the mirror's state."""
    at_most: timedelta = timedelta(weeks=1)
    """Nothing is kept for longer."""
    unfinished_after: timedelta = timedelta(hours=1)
    """A file that no commit names is then garbage: its writer was killed."""


class Commit(NamedTuple):
    """A commit, and the bytes that it made superfluous."""

    version: int
    made_at: datetime
    replaced_bytes: int
    """The files that it has removed, and what the commit itself takes."""


class Retention:
    """Decides when older versions go, and which of them."""

    def __init__(self, limits: StorageLimits) -> None:
        self.limits = limits
        self._since_tidied: int | None = None

    def count(self, replaced_bytes: int) -> None:
        """Counts what a commit has replaced, and its own size."""
        if self._since_tidied is not None:
            self._since_tidied += replaced_bytes

    def is_due(self, live_bytes: int) -> bool:
        """Returns True once half of what may be kept was replaced, and at the beginning."""
        return self._since_tidied is None or self._since_tidied > self._most(live_bytes) / 2

    def tidied(self) -> None:
        """Begins to count again."""
        self._since_tidied = 0

    def oldest(self, commits: Iterable[Commit], live_bytes: int, now: datetime) -> int | None:
        """Returns the oldest version to keep, of these commits, the newest first; None: all."""
        kept = 0
        for newer, commit in enumerate(commits):
            # The version before this commit has what the commit has removed.
            kept += commit.replaced_bytes
            age = now - commit.made_at
            is_much = kept > self._most(live_bytes) / 2 and age >= self.limits.at_least
            if (is_much or age > self.limits.at_most) and newer >= self.limits.commits:
                return commit.version
        return None

    def _most(self, live_bytes: int) -> float:
        return max(live_bytes * self.limits.replaced_share, self.limits.replaced_bytes)
