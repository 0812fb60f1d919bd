"""Times in the past, in the forms that the time machine's users give them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from watcher.aws.model import AtTime, Latest
from watcher.errors import UsageError, blame
from watcher.records.record import Record
from watcher.streams.start_times import Moment, parse_start, parse_time


def start_time(start: Moment, option: str = "start") -> datetime | None:
    """Returns the time to read from; None for the trim horizon. Raises UsageError."""
    now = datetime.now(UTC)
    with blame(option):
        position = parse_start(start, now)
        if isinstance(position, Latest):
            raise UsageError(f"{start!r} is not in the past: give an age like 2h, or a time")
    return position.time if isinstance(position, AtTime) else None


def past_time(text: Moment, option: str) -> datetime:
    """Returns a time that has passed, or now, to the second. Raises UsageError."""
    now = datetime.now(UTC)
    with blame(option):
        return parse_time(text, now).time


def records_until(records: Iterable[Record], until: datetime | None) -> Iterable[Record]:
    """Leaves out the records made after `until`; None leaves out none."""
    if until is None:
        return records
    return (each for each in records if each.created_at is None or each.created_at <= until)
