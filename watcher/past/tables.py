"""The table behind a stream, as it is now."""

from __future__ import annotations

from typing import NamedTuple

from watcher.clock import CLOCK, Clock
from watcher.service.connection import Connection
from watcher.service.names import region_in
from watcher.service.tables import Description, TablesClient


class OpenTable(NamedTuple):
    """A table that can be asked and written to."""

    tables: TablesClient
    name: str
    """By which calls reach it."""
    like: Description
    clock: Clock = CLOCK


def open_table(arn: str, connection: Connection) -> OpenTable:
    """The table of this ARN. Raises StreamError where there is none."""
    tables = TablesClient(connection, region_in(arn))
    return OpenTable(tables, *tables.named(arn))
