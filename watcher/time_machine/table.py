"""A table as the time machine reads it: its handle, and a scan of all its items in parallel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import msgspec

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.tables import UNIT_BYTES, Description, ReadPace, TablesClient
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock

LONGEST_SCAN: Final = timedelta(hours=12)
"""The longest scan to expect: changes that stay in the stream so long are read after it."""


class TableHandle(NamedTuple):
    """A table, and the client that reads and writes it."""

    tables: TablesClient
    name: str
    """The name that the client's calls use."""
    description: Description
    clock: Clock = CLOCK

    @property
    def read_units(self) -> int:
        """An estimate of the read units that a scan takes."""
        return max(1, -(-self.description.size // UNIT_BYTES))


def open_table(arn: str, connection: AwsConfig) -> TableHandle:
    """Opens the table of this ARN. Raises StreamError where there is none."""
    tables = TablesClient(connection, region_in(arn))
    name, description = tables.named(arn)
    return TableHandle(tables, name, description)


def scan_table(
    table: TableHandle,
    on_items: Callable[[list[msgspec.Raw]], object],
    pace: ReadPace | None = None,
) -> None:
    """Scans a whole table, a large one in several segments, side by side.

    `on_items` takes each page; each thread holds one at a time.
    """
    pace = pace or ReadPace(None, table.clock)
    segments = pace.segments(table.description.size)
    scans = [
        table.tables.scan(table.name, each, segments, on_units=pace.on_units)
        for each in range(segments)
    ]
    calls = CallPool(most=segments)
    try:
        while scans:
            answers = calls.start([partial(next, scan, None) for scan in scans])
            for scan, answer in zip(list(scans), answers, strict=True):
                if (page := answer.result()) is None:
                    scans.remove(scan)
                else:
                    on_items(page)
    finally:
        calls.close(wait=False)
