"""Compares the changes that a consumer has processed, by its own list, with those of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.time_machine.archives import Archive, read_records
from watcher.time_machine.item_keys import Identity, identity

_NAMES: Final = ("sequence_number", "SequenceNumber", "event_id", "eventID")


class ProcessedLog:
    """The sequence numbers or event ids that a consumer processed, in its order.

    `lines` hold one each: alone, or in a JSON object as `sequence_number`, `event_id`, or as the
    record itself. Raises UsageError for a line without one.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.indexes: dict[str, list[int]] = {}
        for number, line in enumerate(lines, 1):
            if text := line.strip():
                self.indexes.setdefault(_id_in(text, number), []).append(number)

    def pop(self, record: Record) -> list[int]:
        """Returns the lines of a change, and forgets them."""
        return sorted(
            index
            for name in (record.sequence_number, record.wire.eventID)
            for index in self.indexes.pop(name or "", ())
        )


def archived_numbers(archive: Archive, start: datetime | None) -> Iterator[bytes]:
    """Yields the sequence numbers of an archive's changes from a time on, in their order."""
    for each in read_records(archive, start):
        yield each.record.sequence_number.encode()


def _id_in(text: bytes, number: int) -> str:
    if text[:1] != b"{":
        return text.decode(errors="replace").strip('"')
    try:
        row: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"line {number} is not JSON: {error}", "log") from None
    inner = row.get("dynamodb")
    for each in (row, inner if isinstance(inner, dict) else {}):
        for name in _NAMES:
            if isinstance(found := each.get(name), str):
                return found
    raise UsageError(f"line {number} has neither a sequence_number nor an event_id", "log")


class LoggedChange(NamedTuple):
    """A change of the stream, and the lines of the log that name it."""

    item: Identity
    number: str
    kind: str
    at: datetime | None
    lines: list[int]


class LogFault(NamedTuple):
    """A change that the consumer has missed, had more than once, or had out of order."""

    kind: str
    """`missed`, `twice`, `out_of_order`."""
    change: LoggedChange
    after: LoggedChange | None = None
    """The later change of the item that it had before."""


class LogCheck(NamedTuple):
    """The outcome."""

    changes: int
    """The number of changes that the consumer should have processed, or has."""
    faults: list[LogFault]
    unknown: int
    """The number of lines whose change the stream does not hold."""
    since: datetime | None
    """The time of the oldest change that it should have had; None where the log names none."""


def check_log(
    log: ProcessedLog, records: Iterable[Record], start: datetime | None, until: datetime
) -> LogCheck:
    """Compares a log with a stream's changes; those of one item come in their order.

    A change counts as missed if it was made from `start` (None: from the first change that the log
    names) to `until`.
    """
    changes = [
        LoggedChange(
            identity(each.wire.dynamodb.Keys),
            each.sequence_number,
            each.event_name,
            each.created_at,
            log.pop(each),
        )
        for each in records
    ]
    times = [each.at for each in changes if each.lines and each.at is not None]
    since = start or min(times, default=None)
    expected = [each for each in changes if each.lines or _is_due(each, since, until)]
    unknown = sum(map(len, log.indexes.values()))
    return LogCheck(len(expected), [*_faults(expected)], unknown, since)


def _is_due(change: LoggedChange, since: datetime | None, until: datetime) -> bool:
    if change.at is None:
        return True
    return (since is None or since <= change.at) and change.at <= until


def _faults(changes: Iterable[LoggedChange]) -> Iterator[LogFault]:
    items: dict[Identity, list[LoggedChange]] = {}
    for each in changes:
        items.setdefault(each.item, []).append(each)
    for of_item in items.values():
        had = [each for each in of_item if each.lines]
        # The change of each later one that came first.
        earliest: dict[str, LoggedChange] = {}
        first: LoggedChange | None = None
        for each in reversed(had):
            if first is not None and first.lines[0] < each.lines[0]:
                earliest[each.number] = first
            if first is None or each.lines[0] < first.lines[0]:
                first = each
        for each in of_item:
            if not each.lines:
                yield LogFault("missed", each)
                continue
            if len(each.lines) > 1:
                yield LogFault("twice", each)
            if each.number in earliest:
                yield LogFault("out_of_order", each, earliest[each.number])
