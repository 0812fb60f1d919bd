"""A table as the time machine reads it: its handle, and a scan of all its items in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.tables import UNIT_BYTES, Description, ReadPace, TablesClient
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock

_PART_BYTES: Final = 128 * 1024 * 1024
_PARTS_MAX: Final = 10_000


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


class ItemSink(Protocol):
    """An object that takes in a scan's items."""

    def on_items(self, images: Iterable[bytes | msgspec.Raw]) -> None:
        """Takes in a page of items."""


def scan_table(
    found: ItemSink,
    table: TableHandle,
    *,
    pace: ReadPace | None = None,
) -> None:
    """Scans a whole table, a large one in several segments."""
    pace = pace or ReadPace(None, table.clock)
    segments = pace.segments(table.description.size)
    scan_segments(
        found,
        lambda segment: table.tables.scan(table.name, segment, segments, on_units=pace.on_units),
        segments,
    )


def scan_segments(
    found: ItemSink, scan: Callable[[int], Iterator[list[msgspec.Raw]]], segments: int
) -> None:
    """Scans the segments side by side; each thread holds one page at a time."""
    parts = [scan(segment) for segment in range(segments)]
    calls = CallPool(most=segments)
    try:
        while parts:
            answers = calls.start([partial(next, part, None) for part in parts])
            for part, answer in zip(list(parts), answers, strict=True):
                if (page := answer.result()) is None:
                    parts.remove(part)
                else:
                    found.on_items(page)
    finally:
        calls.close(wait=False)
