"""The log of a Delta table: deletes what only old versions need, then the log's part of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from deltalake import DeltaTable

from watcher.mirror.folder import Folder
from watcher.mirror.retention import Commit, Retention

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..*parquet")


class _Remove(msgspec.Struct):
    path: str
    size: int | None = None


class _CommitInfo(msgspec.Struct):
    timestamp: int = 0


class _Action(msgspec.Struct):
    remove: _Remove | None = None
    commitInfo: _CommitInfo | None = None


_action: Final = msgspec.json.Decoder(_Action)


class DeltaLog:
    """The folder of one table, and what `retention` keeps in it."""

    def __init__(self, folder: Folder, retention: Retention) -> None:
        self._folder = folder
        self._log = folder.inner("_delta_log")
        self._retention = retention

    def count(self, version: int, replaced_bytes: int) -> None:
        """Counts what a commit has replaced, and its own size."""
        self._retention.count(replaced_bytes + self._log.size(f"{version:020}.json"))

    def tidy(
        self, table: DeltaTable, live: Collection[str], live_bytes: int, now: datetime
    ) -> None:
        """Deletes the files that only too old versions need, and these versions' log."""
        table.create_checkpoint()  # what reads the log from here on needs no commit before
        self._retention.tidied()
        names = [info.base_name for info in self._log.files()]
        versions = _versions(_COMMIT, names)
        removed: dict[int, set[str]] = {}
        commits = self._commits(versions, removed)
        oldest = self._retention.oldest(commits, live_bytes, now)
        if oldest is None:
            oldest = versions[0]
        for version in versions:
            if version not in removed:
                removed[version] = self._read(version)[1]
        needed = set(live).union(*(paths for each, paths in removed.items() if each > oldest))
        replaced = set[str]().union(*(paths for each, paths in removed.items() if each <= oldest))
        abandoned = now - self._retention.limits.unfinished_after
        for info in self._folder.files():
            name = info.base_name
            if name in needed or not name.endswith(".parquet"):
                continue
            if name in replaced or info.mtime < abandoned:
                self._folder.delete(name)
        # The log last: a kill in between leaves the names of what is still to go.
        base = max((each for each in _versions(_CHECKPOINT, names) if each <= oldest), default=0)
        for name in names:
            for pattern in (_COMMIT, _CHECKPOINT):
                if (found := pattern.fullmatch(name)) and int(found[1]) < base:
                    self._log.delete(name)

    def _commits(self, versions: list[int], removed: dict[int, set[str]]) -> Iterator[Commit]:
        """Yields the commits, the newest first, and notes the files that each has removed."""
        for version in reversed(versions):
            commit, removed[version] = self._read(version)
            yield commit

    def _read(self, version: int) -> tuple[Commit, set[str]]:
        text = self._log.read(f"{version:020}.json")
        actions = [_action.decode(line) for line in text.splitlines() if line]
        removed = [each.remove for each in actions if each.remove is not None]
        made = max((each.commitInfo.timestamp for each in actions if each.commitInfo), default=0)
        size = len(text) + sum(each.size or 0 for each in removed)
        commit = Commit(version, datetime.fromtimestamp(made / 1000, UTC), size)
        return commit, {each.path for each in removed}


def _versions(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    found = (pattern.fullmatch(name) for name in names)
    return sorted({int(each[1]) for each in found if each})
