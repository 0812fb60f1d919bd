"""Times in the past, in the forms that the time machine's users give them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from watcher.aws.model import AtTime, Latest
from watcher.errors import UsageError, blame
from watcher.records.record import Record
from watcher.streams.position import at_time, parse_start, parse_time


def start_time(start: str | datetime, option: str = "start") -> datetime | None:
    """Returns the time to read from; None for the trim horizon. Raises UsageError."""
    now = datetime.now(UTC)
    with blame(option):
        position = at_time(start, now) if isinstance(start, datetime) else parse_start(start, now)
        if isinstance(position, Latest):
            raise UsageError(f"{start!r} is not in the past: give an age like 2h, or a time")
    return position.time if isinstance(position, AtTime) else None


def past_time(text: str | datetime, option: str) -> datetime:
    """Returns a time that has passed, or now, to the second. Raises UsageError."""
    now = datetime.now(UTC)
    with blame(option):
        found = at_time(text, now) if isinstance(text, datetime) else parse_time(text, now)
    return found.time


def records_until(records: Iterable[Record], until: datetime | None) -> Iterable[Record]:
    """Leaves out the records made after `until`; None leaves out none."""
    if until is None:
        return records
    return (each for each in records if each.created_at is None or each.created_at <= until)
