"""The latest changes as differences: of all items, or one item's whole life."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final
from xml.etree.ElementTree import Element

import msgspec

from watcher.errors import WatcherError
from watcher.formatting.differences import DescribedDifference, described
from watcher.formatting.text import grouped, printable_key
from watcher.records.record import Record
from watcher.report.markup import element, second
from watcher.time_machine import archives

LATEST: Final = 20
CHOSEN: Final = 200
_LINES: Final = 40
_CHARACTERS: Final = 300
_WORDS: Final = {"+": "added", "~": "changed", "-": "removed"}
_KINDS: Final = {"+": "insert", "~": "modify", "-": "remove"}


class LatestChanges:
    """The latest changes by their time, at most so many; each item's in their order."""

    def __init__(self, most: int = LATEST) -> None:
        self.most = most
        self.seen = 0
        self._kept: list[tuple[float, int, int, Callable[[], Record]]] = []
        self._turn = count()

    def take(self, record: Record) -> None:
        """Take in a change."""
        change = record.wire.dynamodb
        # Not the record itself, which would keep its page.
        again = partial(Record.from_json, bytes(record.raw), record.shard_id, record.stream)
        self._add(change.ApproximateCreationDateTime, change.SequenceNumber, again)

    def take_row(self, row: Mapping[str, Any]) -> None:
        """Take in a row of an archive."""
        time = row.get("approximate_creation_time")
        number = row.get("sequence_number") or ""
        self._add(time and time.timestamp(), number, partial(archives.record_of_row, row))

    def _add(self, seconds: float | None, number: str, record: Callable[[], Record]) -> None:
        """By its time and sequence number; it is looked at only if it is kept."""
        self.seen += 1
        place = int(number) if number.isdecimal() else 0
        heapq.heappush(self._kept, (seconds or 0.0, place, next(self._turn), record))
        if len(self._kept) > self.most:
            heapq.heappop(self._kept)

    def records(self) -> Iterator[Record]:
        """Them, the oldest first; but those that can't be read."""
        for *_, record in sorted(self._kept, key=lambda each: each[:3]):
            with suppress(WatcherError, msgspec.DecodeError):
                yield record()


def section(latest: LatestChanges, item: str) -> Element:
    """The part of the page: an item's life, oldest first, or all items' latest changes."""
    name = f"What happened to {item}" if item else "Latest changes"
    made = element("section", element("h2", name))
    shown = list(latest.records())
    if not item:
        shown.reverse()
    if len(shown) < latest.seen:
        text = f"The latest {len(shown):,} of {grouped(latest.seen, 'change')}."
        made.append(element("p", text, class_="quiet"))
    made.append(element("ol", *map(_change, shown), class_="changes"))
    return made


def _change(record: Record) -> Element:
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
    return element("li", head, _differences(record))


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
