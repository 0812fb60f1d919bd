"""The time machine's limits and tolerances, each with its unit and its reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec


class TimeMachineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of reading the past and of writing it back."""

    scan_time: timedelta = timedelta(hours=12)
    """The longest scan to expect: changes that stay in the stream so long are read after it."""
    coarsest_stamp: timedelta = timedelta(minutes=1)
    """The steps of DynamoDB Local's times; the service's are seconds."""
    created_together: timedelta = timedelta(seconds=5)
    """The difference between the times of creation of a table and a stream made with it."""
    sorting_bytes: int = 8 * 1024 * 1024
    """The lines that are sorted in memory, before they go to a temporary file."""
    max_differences: int = 10_000
    """The items that differ that are held in memory, each with its cause."""
    max_difference_bytes: int = 16 * 1024 * 1024
    """The most bytes of those items."""
    writes_at_once: int = 25
    """The items that are written before the next ones are read."""
    write_threads: int = 8
    """The writes under way at once: enough for the default rate at 50 ms a write."""
    clock_error: timedelta = timedelta(seconds=10)
    """The largest difference between this machine's clock and the stream's."""
    log_delay: timedelta = timedelta(minutes=15)
    """The delay of CloudTrail's log files: about 5 minutes, as a rule at most 15."""
    latest_log: timedelta = timedelta(minutes=30)
    """A call is looked for in the log files that are delivered so long after it."""
    log_bytes: int = 512 * 1024 * 1024
    """The most that a log file may unpack to: CloudTrail's are of some megabytes."""
    log_threads: int = 4
    """The threads that read and unpack log files: S3 takes its time for each."""


LIMITS: Final = TimeMachineLimits()
