"""A table's items, read page by page while they are changed; and what was told of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.simulation.ledger import Ledger
from tests.simulator.model import Table
from tests.simulator.tables import hash_of
from watcher.aws.tables import SEGMENT_BYTES, Description
from watcher.errors import TransientError

REMOVE_EVERY = 5  # every fifth change of an item removes it


class SimulatedItems:
    """What a scan answers: consistent, a few items a page, and now and then not at all."""

    def __init__(
        self, table: Table, page: int, wait: Callable[[], None], fails: Callable[[], bool]
    ) -> None:
        self._table = table
        self._page = page
        self._wait = wait
        self._fails = fails

    in_threads = False

    def describe(self) -> Description:
        count = len(self._table.names())
        # Some tables are so large that they are scanned in segments.
        size = (self._page - 1) * SEGMENT_BYTES
        keys = [{"AttributeName": "pk", "KeyType": "HASH"}]
        attributes = [{"AttributeName": "pk", "AttributeType": "S"}]
        made = datetime.fromtimestamp(0, UTC)
        return Description(keys, attributes, size, made, "arn now", items=count)

    def page(self, after: Any, segment: int, segments: int) -> tuple[list[msgspec.Raw], Any, float]:
        self._wait()
        if self._fails():
            raise TransientError("throttled", throttled=True)
        last = "" if after is None else after["pk"]["S"]
        names = self._table.names()
        left = sorted(each for each in names if each > last and hash_of(each) % segments == segment)
        items = [msgspec.Raw(self._table.image_of(name).encode()) for name in left[: self._page]]
        self._wait()
        more = len(left) > self._page
        return items, {"pk": {"S": left[self._page - 1]}} if more else None, 1.0


class Told:
    """The last state of each item that a handler was told, held against what there is."""

    def __init__(self, ledger: Ledger, table: Table) -> None:
        self._ledger = ledger
        self._table = table
        self._last: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    def begin(self) -> None:
        self._last.clear()
        self._newest.clear()

    def change(self, key: str, version: int) -> None:
        self._last[key] = version
        self._newest[key] = max(version, self._newest.get(key, 0))

    def item(self, key: str, version: int) -> None:
        self._ledger.checked["items told"] += 1
        if version < (before := self._newest.get(key, 0)):
            self._ledger.complain("stale", f"{key} told as {version}, after its change {before}")
        self._last[key] = version

    def check(self) -> None:
        """Whoever keeps the last state that was told of each key has the table."""
        self._ledger.checked["items held against the table"] += len(self._table.names())
        for key in self.missing():
            told, there = self._last.get(key, "nothing"), self._table.versions[key]
            self._ledger.complain("gap", f"the last of {key} that was told is {told}, not {there}")

    def missing(self) -> list[str]:
        """The items whose last state was not told, or not as the last one."""
        versions = self._table.versions
        return [
            key
            for key in sorted({*self._last, *self._table.names()})
            if self._last.get(key) != versions[key] and not self._ledger.unwanted(key)
        ]
