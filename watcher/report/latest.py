"""The latest changes with their differences: of all items, or one item's whole history."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final
from xml.etree.ElementTree import Element

import msgspec

from watcher.aws.arns import account_of
from watcher.errors import WatcherError
from watcher.formatting.differences import DescribedDifference, described
from watcher.formatting.text import grouped
from watcher.formatting.values import printable_key
from watcher.records.record import Record
from watcher.report.markup import element, second
from watcher.time_machine import archives
from watcher.time_machine.callers import Answer

LATEST_OF_ALL: Final = 20
LATEST_OF_ITEM: Final = 200
_LINES: Final = 40
_CHARACTERS: Final = 300
_WORDS: Final = {"+": "added", "~": "changed", "-": "removed"}
_KINDS: Final = {"+": "insert", "~": "modify", "-": "remove"}


class LatestChanges:
    """Keeps the latest `most` changes by their time; each item's in their order."""

    def __init__(self, most: int = LATEST_OF_ALL) -> None:
        self.most = most
        self.seen = 0
        self._kept: list[tuple[float, int, int, Callable[[], Record]]] = []
        self._turn = count()

    def add(self, record: Record) -> None:
        """Takes in a change."""
        change = record.wire.dynamodb
        # Keeps a copy of the bytes: the record would keep its whole page.
        again = partial(Record.from_json, bytes(record.raw), record.shard_id, record.stream)
        self._add(change.ApproximateCreationDateTime, change.SequenceNumber, again)

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Takes in a row of an archive."""
        time = row.get("approximate_creation_time")
        number = row.get("sequence_number") or ""
        self._add(time and time.timestamp(), number, partial(archives.record_of_row, row))

    def _add(self, seconds: float | None, number: str, record: Callable[[], Record]) -> None:
        """Keeps a change by its time and sequence number; only a kept one is decoded."""
        self.seen += 1
        order = int(number) if number.isdecimal() else 0
        heapq.heappush(self._kept, (seconds or 0.0, order, next(self._turn), record))
        if len(self._kept) > self.most:
            heapq.heappop(self._kept)

    def records(self) -> Iterator[Record]:
        """Yields the kept changes that can be read, the oldest first."""
        for *_, record in sorted(self._kept, key=lambda each: each[:3]):
            with suppress(WatcherError, msgspec.DecodeError):
                yield record()


def section(
    latest: LatestChanges, item: str, who: Callable[[Record], Answer] | None = None
) -> Element:
    """Builds the page's section: an item's history, oldest first, or the latest changes of all.

    `who` tells who made a change, where that is asked for.
    """
    name = f"What happened to {item}" if item else "Latest changes"
    made = element("section", element("h2", name))
    shown = list(latest.records())
    if not item:
        shown.reverse()
    if len(shown) < latest.seen:
        text = f"The latest {len(shown):,} of {grouped(latest.seen, 'change')}."
        made.append(element("p", text, class_="quiet"))
    made.append(element("ol", *(_change(each, who) for each in shown), class_="changes"))
    return made


def _change(record: Record, who: Callable[[Record], Answer] | None) -> Element:
    created = record.wire.dynamodb.ApproximateCreationDateTime
    kind = record.event_name
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    head = element(
        "p",
        element("b", kind, class_=f"kind {kind.lower()}"),
        element("time", second(created) if created else "no time"),
        element("code", _cut(printable_key(record["dynamodb"]["Keys"]))),
        by_ttl,
    )
    caller = None
    if who is not None:
        text = who(record).text(account_of(record.stream), between=": ")
        caller = element("p", _cut(text), class_="quiet")
    return element("li", head, caller, _differences(record))


def _differences(record: Record) -> Element | None:
    try:
        lines = list(described(record))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        return element("p", f"It can't be read: {error}", class_="quiet")
    made = element("ul", *map(_line, lines[:_LINES]))
    if len(lines) > _LINES:
        made.append(element("li", f"and {len(lines) - _LINES:,} more"))
    return made if lines else None


def _line(line: DescribedDifference) -> Element:
    if not line.mark:
        return element("li", _cut(line.text))
    return element(
        "li",
        element("span", line.mark, class_=f"mark {_KINDS[line.mark]}", aria_hidden="true"),
        element("span", f"{_WORDS[line.mark]} ", class_="unseen"),
        element("code", _cut(line.path)),
        element("span", _cut(line.text), class_="value") if line.text else None,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}… ({len(text):,} characters)"
