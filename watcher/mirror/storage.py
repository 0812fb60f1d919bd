"""The replaced files and old commits that a mirror's folder holds beside its newest version.

Both are kept for readers of older versions, a week long, but no more of them than `replaced_share`
times the table: what is older goes, together with the commits that tell of it. So a mirror that
changes all the time stays a few times its table's size, however long it runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..*parquet")


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
    unfinished_after: timedelta = timedelta(hours=1)
    """A file that no commit names is then nobody's: its writer was killed."""


class _Remove(msgspec.Struct):
    path: str
    size: int | None = None


class _CommitInfo(msgspec.Struct):
    timestamp: int = 0


class _Action(msgspec.Struct):
    remove: _Remove | None = None
    commitInfo: _CommitInfo | None = None


_action: Final = msgspec.json.Decoder(_Action)


class Storage:
    """The folder of one table; it looks for what can go each time that some more was replaced."""

    def __init__(self, folder: str, limits: StorageLimits) -> None:
        self._folder = Path(folder)
        self._log = self._folder / "_delta_log"
        self._limits = limits
        self._since_tidied: int | None = None

    def count_commit(self, version: int, replaced_bytes: int) -> None:
        """Counts what a commit has replaced, and its own size."""
        if self._since_tidied is not None:
            self._since_tidied += replaced_bytes + self._commit(version).stat().st_size

    def is_due(self, live_bytes: int) -> bool:
        """Returns True once half of what may be kept was replaced, and at the beginning."""
        return self._since_tidied is None or self._since_tidied > self._most(live_bytes) / 2

    def tidy(
        self, table: DeltaTable, live: Collection[str], live_bytes: int, now: datetime
    ) -> None:
        """Removes what only versions need that are too old; then the log's part of them."""
        table.create_checkpoint()  # what reads the log from here on needs no commit before
        self._since_tidied = 0
        oldest, needed, replaced = self._oldest_version(live, live_bytes, now)
        abandoned = (now - self._limits.unfinished_after).timestamp()
        for path in self._folder.glob("*.parquet"):
            if path.name in needed:
                continue
            if path.name in replaced or path.stat().st_mtime < abandoned:
                path.unlink(missing_ok=True)
        # The log last: a kill in between leaves the names of what is still to go.
        checkpoints = self._versions(_CHECKPOINT)
        base = max((each for each in checkpoints if each <= oldest), default=0)
        for pattern in (_COMMIT, _CHECKPOINT):
            for version in self._versions(pattern):
                if version < base:
                    for path in self._log.glob(f"{version:020}.*"):
                        path.unlink(missing_ok=True)

    def _oldest_version(
        self, live: Collection[str], live_bytes: int, now: datetime
    ) -> tuple[int, set[str], set[str]]:
        """Returns the oldest version to keep, the files that it and later ones have, and others."""
        needed, replaced = set(live), set[str]()
        kept_bytes, most = 0, self._most(live_bytes)
        versions = self._versions(_COMMIT)
        oldest, is_over = versions[0], False
        for version in reversed(versions):
            text = self._commit(version).read_bytes()
            actions = [_action.decode(line) for line in text.splitlines() if line]
            removed = [each.remove for each in actions if each.remove is not None]
            if not is_over:
                # The version before this commit has what the commit has removed.
                kept_bytes += len(text) + sum(each.size or 0 for each in removed)
                made = max((a.commitInfo.timestamp for a in actions if a.commitInfo), default=0)
                age = now.timestamp() - made / 1000
                is_much = kept_bytes > most / 2 and age >= self._limits.at_least.total_seconds()
                is_old = age > self._limits.at_most.total_seconds()
                if (is_much or is_old) and versions[-1] - version >= self._limits.commits:
                    oldest, is_over = version, True
            (replaced if is_over else needed).update(each.path for each in removed)
        return oldest, needed, replaced - needed

    def _most(self, live_bytes: int) -> float:
        return max(live_bytes * self._limits.replaced_share, self._limits.replaced_bytes)

    def _commit(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _versions(self, pattern: re.Pattern[str]) -> list[int]:
        found = (pattern.fullmatch(path.name) for path in self._log.iterdir())
        return sorted({int(each[1]) for each in found if each})
