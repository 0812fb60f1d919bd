"""The protocol that every handler keeps, and its form for a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watcher.aws.model import ShardKey
from watcher.delivery.callables import check_answer
from watcher.errors import error_text
from watcher.observability.watch_stats import Durations
from watcher.records.page import RecordPage
from watcher.records.record import Record


class Failure(Exception):
    """A handler has failed on records of one shard: raised by what it was asked to do.

    They stay pending, and the handler lets their shard rest, until it is told to go on with them
    or without them (`resume`).
    """

    def __init__(
        self,
        records: Sequence[Record],
        error: BaseException,
        retry_in: float | None = None,
        *,
        is_final: bool = False,
    ) -> None:
        super().__init__(error_text(error))
        self.records = records
        self.error = error
        self.retry_in = retry_in
        """After so many seconds they are worth another try; None: that is for the policy to say."""
        self.is_final = is_final
        """True where no further try can go well."""


class Handler:
    """A callable that gets every record, under the name that messages call it by.

    One that does not settle each record as it comes overrides what is below. Its methods may raise
    Failure; what `handle` raises beside it is a failure on that one record.
    """

    handle: Callable[[Record], Any]
    """Take one more record."""
    begin: Callable[[str], Any]
    """Records of the stream with this ARN are to come; of others, too, in a watch of several."""
    close: Callable[[], Any]
    """No more records come."""
    flush_buffers: Callable[[], Any]
    """Writes out what the handler buffers; `flush` calls it."""
    finish: Callable[[object], object]
    """Awaits a coroutine that the handler returned; refuses a generator."""
    handle_page: Callable[[RecordPage], bool] | None = None
    """A shortcut: take records of a shard together.

    Where it answers False, or raises before any of them is out, each of them goes to `handle`.
    """
    durations: Durations | None = None
    """How long its calls took; None: nobody asks."""
    times_itself = False
    """True for one that keeps `durations` itself, since `handle` is not where its work is done."""

    def __init__(
        self,
        name: str,
        handle: Callable[[Record], Any],
        close: Callable[[], Any] | None = None,
        begin: Callable[[str], Any] | None = None,
        flush: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name
        self.handle = handle
        self.close = close or _nothing
        self.begin = begin or _nothing
        self.finish = check_answer
        self.flush_buffers = flush or _nothing

    def page_end(self, shard_key: ShardKey) -> None:
        """Called after the last record at hand of a shard."""

    def tick(self, shard_key: ShardKey | None = None) -> None:
        """Called periodically, so that batch windows run out."""

    def drain(self, shard_key: ShardKey | None = None) -> None:
        """Let what was taken of a shard (or of all) wait no longer."""

    def flush(self) -> None:
        """Bring out what was taken and is kept back; a checkpoint passes nothing before that.

        Raises what is wrong with that, which is none of the records' fault.
        """
        self.finish(self.flush_buffers())

    def first_pending(self, shard_key: ShardKey) -> str | None:
        """The sequence number of a shard's first record that is not settled yet, if there is one.

        A checkpoint stays before it.
        """
        return None

    def waiting(self) -> Mapping[ShardKey, int]:
        """Shard → how many of its records are not settled yet."""
        return {}

    def resume(self, failure: Failure, *, given_up: bool) -> None:
        """Go on after a failure: without its records, or with another try of them."""
        if not given_up:
            for record in failure.records:
                self.finish(self.handle(record.as_it_came()))


def _nothing(*arguments: object) -> None:
    pass
