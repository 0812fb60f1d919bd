"""The pull interface: `next(stream)` returns one record, or None; `for` waits for the next one."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self, TypeAlias

from watcher.aws.connect import Clients
from watcher.aws.model import Position, Service
from watcher.aws.tables import TableItems
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.declared import takes_fields
from watcher.errors import UsageError, refuse_other_than_text
from watcher.options import ReadOptions, start_position
from watcher.pull.merged_shards import MergedShards
from watcher.pull.shard_pool import PullOptions
from watcher.pull.table_snapshot import Items
from watcher.records.record import Record
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token, TokenJson
from watcher.streams.losses import Losses
from watcher.streams.start_times import Moment

_AWAIT_STEP_SECONDS = 0.1
"""The delay between a waiting task's checks for due reads."""

logger = logging.getLogger("watcher")

# The number of records that a task gets before other tasks have a turn.
_IN_A_ROW = 100


Start: TypeAlias = Moment | dict[str, Any]


def _position_of(start: Start) -> Position | None:
    """Returns the start position; None for a token. Raises UsageError."""
    if isinstance(start, dict) or (isinstance(start, str) and start.lstrip().startswith("{")):
        return None
    return start_position(start)


def _close_unused(created: asyncio.Future[Any]) -> None:
    if not created.cancelled() and created.exception() is None:
        created.result().close()


@dataclass(frozen=True)
class StreamOptions(ReadOptions):
    """The parameters of `Stream`."""

    stream: str
    start: Start = "latest"

    def __post_init__(self) -> None:
        """Checks every value, before any call of the service."""
        super().__post_init__()
        refuse_other_than_text(stream=self.stream)
        _position_of(self.start)


class Stream:
    """A table's changes, pulled one by one, its shards merged by creation time.

    `stream` is a stream or a table, by its ARN or its name. `start` is `"latest"`,
    `"trim_horizon"`, a datetime (aware, or in local time), a timedelta (an age), or a token, as a
    dict or its JSON. The other parameters are those of `watch()` (`on_stale` is for a token); a
    record that is filtered out moves the token, and counts in `filtered`. Raises StreamError where
    the stream can't be used, or is disabled, read to its end and replaced by another one of its
    table (which the error names); UsageError for a bad start or filter, and after `close`. Not for
    use by several threads at once.

    `next` reads before it returns None, each shard at most four times a second (less often where
    throttled), so the caller's pace decides the cost. `for` and `async for` wait for a record, and
    read an idle shard as often as `watch` does.
    """

    @takes_fields(StreamOptions)
    def __init__(self, options: StreamOptions) -> None:
        clients, calls = Clients(options.connection), CallPool()
        # Also closes if the caller never does, or if no stream is found.
        self._close: weakref.finalize[..., Any] = weakref.finalize(self, _close_all, calls, clients)
        arn = clients.resolved(options.stream)
        service, items = clients.client_for(arn), None
        if options.snapshot or options.on_stale == "snapshot":
            items = TableItems(options.connection, arn, service.table)
        self._begin(options, service, arn, items=items, calls=calls)

    def _begin(
        self,
        options: StreamOptions,
        service: Service,
        arn: str,
        *,
        items: Items | None,
        calls: CallPool,
        clock: Clock = CLOCK,
    ) -> None:
        """Begins to read the stream from a service, and the `items` of its table."""
        self.arn = arn
        """The stream's ARN."""
        self.losses: list[str] = []
        """One line for each loss of records before they were read: the shard and the position."""
        self._options = options
        self._record_filter, self._redaction = options.record_filter, options.redaction
        self._service, self._items = service, items
        self._calls, self._clock = calls, clock
        self._filtered = 0
        self._pool = CallPool(most=1)
        self._step: Future[Any] | None = None
        """The read that tasks wait for; it goes on if they are cancelled."""
        self._token: TokenJson = {}
        self._stepped_at = 0.0
        self._step_found = False
        self._in_a_row = 0
        self._reader = self._reader_at(options.start)

    def close(self) -> None:
        """Closes the connections and ends the threads; the token can still be read."""
        self._close()

    @classmethod
    @takes_fields(StreamOptions)
    async def open(cls, options: StreamOptions) -> Self:
        """Creates a stream, with the constructor's parameters, without blocking the event loop."""
        given = {each.name: getattr(options, each.name) for each in fields(options)}
        created = asyncio.ensure_future(asyncio.to_thread(lambda: cls(**given)))
        try:
            return await asyncio.shield(created)
        except asyncio.CancelledError:
            created.add_done_callback(_close_unused)
            raise

    async def aclose(self) -> None:
        """Closes the stream, as `close` does, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def move_to(self, start: Start) -> None:
        """Continues at another position: a `start` as the constructor takes it.

        A token's shards that are gone are dropped, and their children begin at their trim horizon;
        records lost that way are listed in `losses` (or raised, with `fail_on_data_loss`).
        """
        self._check_idle()
        reader = self._reader_at(start)
        self._filtered = self.filtered  # that of the reader, which ends here, too
        self._reader = reader

    @property
    def filtered(self) -> int:
        """The number of records that the filters left out."""
        return self._filtered + self._reader.left_out

    def __iter__(self) -> Iterator[Record]:
        """Yields each record; waits for the next one, as `async for` does. Never ends by itself."""
        while True:
            self._check_idle()
            if (record := self._next_read()) is not None:
                yield record
            elif (seconds := self._seconds_to_step()) > 0:
                self._clock.sleep(seconds)
            else:
                self._reader.poll()
                self._note_step()

    def __next__(self) -> Record | None:
        """Returns the next record; None when there is none now. Never ends by itself."""
        self._check_idle()
        while (record := self._next()) is not None:
            if (shown := self._shown(record)) is not None:
                return shown
        return None

    def _shown(self, record: Record) -> Record | None:
        """Returns a record as the caller gets it; None for one that the filters reject."""
        if self._record_filter is None or self._record_filter(record):
            return record if self._redaction is None else self._redaction(record)
        self._filtered += 1
        return None

    def _check_idle(self) -> None:
        """Raises UsageError after `close`; waits for a step that a cancelled task has left."""
        self._check_open()
        if self._step is not None:
            futures.wait([self._step])

    def _check_open(self) -> None:
        if not self._close.alive:
            raise UsageError("the stream is closed: create another one from its token")

    def _next(self) -> Record | None:
        if self._record_filter is None:
            return self._reader.take()
        filtered = -1
        while filtered < self.filtered:  # more may follow the filtered ones
            filtered = self.filtered
            if (record := self._reader.take()) is not None:
                return record
        return None

    # For tasks

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """Waits for the next record, and returns it. Never ends by itself.

        A task that is cancelled while it waits loses no record, and moves no token.
        """
        while True:
            self._check_open()
            if self._in_a_row >= _IN_A_ROW:
                self._in_a_row = 0
                await asyncio.sleep(0)
            elif not self._is_stepping and (record := self._next_read()) is not None:
                self._in_a_row += 1
                return record
            else:
                self._in_a_row = 0
                await self._wait()

    @property
    def _is_stepping(self) -> bool:
        return self._step is not None and not self._step.done()

    async def _wait(self) -> None:
        """Waits for one read of the due shards, or for a moment where none is due."""
        if not self._is_stepping:
            if (seconds := self._seconds_to_step()) > 0:
                await asyncio.sleep(seconds)
                return
            self._token = self._token_now()
        if self._step is None:
            (self._step,) = self._pool.start([self._reader.poll], few=0)
        step = self._step
        try:
            await asyncio.wrap_future(step)
        finally:
            if step.done() and self._step is step:
                self._step = None
        self._note_step()

    def _seconds_to_step(self) -> float:
        """Returns how long to wait before the next step; 0 or less: it is due."""
        if self._reader.next_at is not None or self._step_found:
            return 0.0
        return self._stepped_at + _AWAIT_STEP_SECONDS - self._clock.monotonic()

    def _note_step(self) -> None:
        self._stepped_at = self._clock.monotonic()
        self._step_found = self._reader.next_at is not None  # more may follow at once

    def _next_read(self) -> Record | None:
        """Returns the next buffered record; None where a read has to come first."""
        while self._reader.next_at is not None:
            if (shown := self._shown(self._reader.pop())) is not None:
                return shown
        return None

    def _reader_at(self, start: Start) -> MergedShards:
        """Returns a reader from a start. Raises as the constructor."""
        position: Position | Token | None = _position_of(start)
        if position is None:
            assert not isinstance(start, datetime | timedelta)
            stored = {each.stream_arn: each for each in checkpoint_format.all_from_json(start)}
            if self.arn not in stored:
                named = ", ".join(stored)
                raise UsageError(f"the token belongs to {named}, not to {self.arn}")
            position = stored[self.arn]
        options, test = self._options, self._record_filter
        losses = Losses(is_error=options.fail_on_data_loss, clock=self._clock, lines=self.losses)
        created = MergedShards(
            self._service,
            self.arn,
            position,
            losses=losses,
            calls=self._calls,
            clock=self._clock,
            options=PullOptions(
                poll_max_seconds=options.poll_max_seconds,
                on_stale=options.on_stale,
                read_limit=options.read_limit,
                page_filter=None if test is None else test.matching_indexes,
            ),
            items=self._items,
            only_restart=not options.snapshot,
            redaction=self._redaction,
        )
        if test is not None:
            test.refuse_view(created.listing.view_type)
        losses.warn_if_starting_late(created.listing)
        return created

    @property
    def token(self) -> TokenJson:
        """The position, as a dict for JSON, which bloop's `Engine.stream` also reads."""
        return self._token if self._is_stepping else self._token_now()

    def _token_now(self) -> TokenJson:
        return checkpoint_format.all_to_dict([self._reader.token])

    def heartbeat(self) -> None:
        """Reads the shards without buffered records, so that their iterators stay valid.

        For callers that pull seldom, as an iterator lives 15 minutes. An expired one loses nothing:
        a new one continues at the last position.
        """
        self._check_idle()
        self._reader.read_all()


def _close_all(calls: CallPool, clients: Clients) -> None:
    calls.close(wait=False)
    clients.close()
