"""The interface that the dispatcher uses for every handler, and its form for a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from watcher.aws.model import ShardKey
from watcher.delivery.callables import check_answer
from watcher.errors import error_text
from watcher.records.page import RecordPage
from watcher.records.record import Record


class Failure(Exception):
    """Raised by a handler's method that failed on records of one shard.

    They stay pending, and the handler pauses their shard, until `go_on` retries or skips them.
    """

    def __init__(self, records: Sequence[Record], error: BaseException) -> None:
        super().__init__(error_text(error))
        self.records = records
        self.error = error


class Handler:
    """A callable that gets every record, and the name that messages use for it.

    A handler that processes records later than `handle` returns (in batches) overrides the methods
    below. They may raise Failure; any other error of `handle` is a failure on its one record.
    """

    handle: Callable[[Record], object]
    """Processes, or accepts, one record."""
    close: Callable[[], object]
    """Called once, behind the last record."""
    flush_buffers: Callable[[], object]
    """Writes out the handler's buffers; `flush` calls it."""
    handle_page: Callable[[RecordPage], bool] | None = None
    """A shortcut: handles several records of a shard in one call.

    Where it returns False, or raises before it has written any of them, `handle` gets each record.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Record], object],
        close: Callable[[], object] | None = None,
        flush: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self.handle = handle
        self.close = close or _nothing
        self.flush_buffers = flush or _nothing

    def page_end(self, shard_key: ShardKey) -> None:
        """Called after the last record of a shard's page."""

    def tick(self, shard_key: ShardKey | None = None) -> None:
        """Called periodically, so that batch windows end."""

    def drain(self, shard_key: ShardKey | None = None) -> None:
        """Processes all records that it holds of a shard (or of all) without further waiting."""

    def flush(self) -> None:
        """Writes out all that it buffers; a checkpoint is saved only after that.

        Raises the write's error, which is no failure of a record.
        """
        check_answer(self.flush_buffers())

    def first_pending(self, shard_key: ShardKey) -> str | None:
        """Returns the sequence number of a shard's first unprocessed record, or None.

        A checkpoint stays before it.
        """
        return None

    def waiting(self) -> Mapping[ShardKey, int]:
        """Returns the number of unprocessed records of each shard."""
        return {}

    def go_on(self, failure: Failure, *, given_up: bool) -> None:
        """Goes on after a failure: with the next records if given up, else with a retry."""
        if not given_up:
            for record in failure.records:
                check_answer(self.handle(record.as_it_came()))


def _nothing(*arguments: object) -> None:
    pass
