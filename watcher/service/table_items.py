"""The items of a stream's table, page by page, for a loop with more to do."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from watcher.service.connection import Connection
from watcher.service.names import region_in
from watcher.service.tables import Key, TablesClient

# No change is handed over meanwhile.
_CALL_SECONDS = 10.0


class TableItems:
    """What is read of a table by one attempt; whoever asks tries again.

    `called` says by what calls reach the table of a stream (see `StreamsClient.table`).

    Both raise StreamError, TransientError.
    """

    def __init__(self, connection: Connection, arn: str, called: Callable[[str], str]) -> None:
        self._connection = connection
        self._arn = arn
        self._called = called
        self._client: TablesClient | None = None
        self._table = ""

    def key_names(self) -> list[str]:
        """The names of the key's attributes."""
        self._client = self._client or TablesClient(
            self._connection,
            region_in(self._arn),
            attempts=1,
            call_seconds=_CALL_SECONDS,
            patience=0.0,
        )
        self._table, description = self._client.named(self._called(self._arn))
        return [*description.types]

    def page(self, after: Key | None) -> tuple[list[msgspec.Raw], Key | None]:
        """The items behind this key, by a consistent read, and the key of the last one."""
        assert self._client is not None
        return self._client.page(self._table, after)
