"""Collects records per shard and hands them over in batches, as Lambda's event source mapping does.

https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.handler import Failure, Handler
from watcher.errors import UsageError
from watcher.records.record import Record

_LARGEST_BATCH = 10_000  # Lambda's own


class NotAll(Exception):
    """A call has reported that only the first records of its batch succeeded."""


class _Batch(msgspec.Struct):
    """A shard's records that are neither processed nor given up, in their order."""

    since: float
    records: list[Record] = []
    held: bool = False
    """True from the first failed call on: only `go_on` continues the batch."""


class Batches(Handler):
    """Keeps each shard's records, in order, until a call with them succeeds or is given up.

    `call` returns the number of successful records at the batch's start (usually all), or raises
    where none succeeded. Several threads may use it, if each shard belongs to one thread.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[Sequence[Record]], int],
        size: int = 100,
        window: float = 0.0,
        clock: Clock = CLOCK,
    ) -> None:
        """Waits `window` seconds for a full batch; with 0, a batch ends with its page.

        Raises UsageError.
        """
        if not 1 <= size <= _LARGEST_BATCH:
            raise UsageError(f"give 1 to {_LARGEST_BATCH}", "batch_size", size)
        if not 0 <= window < math.inf:
            raise UsageError("give 0 or more seconds", "batch_window", f"{window:g}")
        super().__init__(name, self._add)
        self.call = call
        """Hands records over; see the class."""
        self._size = size
        self._window = window
        self._clock = clock
        self._batches: dict[ShardKey, _Batch] = {}

    def _add(self, record: Record) -> None:
        batch = self._batches.get(record.shard_key)
        if batch is None:
            batch = self._batches[record.shard_key] = _Batch(self._clock.monotonic())
        batch.records.append(record)
        if len(batch.records) >= self._size:
            self.drain(record.shard_key)

    def page_end(self, shard_key: ShardKey) -> None:
        """Hands over the shard's batch, unless there is a window."""
        if not self._window:
            self.drain(shard_key)

    def tick(self, shard_key: ShardKey | None = None) -> None:
        """Calls the handler with each batch whose window has passed."""
        if self._window:
            due = self._clock.monotonic() - self._window
            for each, batch in list(self._batches.items()):
                if batch.since <= due and shard_key in (None, each):
                    self.drain(each)

    def drain(self, shard_key: ShardKey | None = None) -> None:
        """Calls the handler with the waiting records of a shard, or of all."""
        for each in list(self._batches) if shard_key is None else [shard_key]:
            if each in self._batches and not self._batches[each].held:
                self._run(each)

    def first_pending(self, shard_key: ShardKey) -> str | None:
        """Returns the number of a shard's first record that is not processed or given up."""
        batch = self._batches.get(shard_key)
        # A slice: another thread may empty the list meanwhile.
        first = batch.records[:1] if batch else ()
        return first[0].sequence_number if first else None

    def waiting(self) -> dict[ShardKey, int]:
        """Returns the number of records of each shard that are not processed or given up."""
        return {shard_key: len(batch.records) for shard_key, batch in list(self._batches.items())}

    def go_on(self, failure: Failure, *, given_up: bool) -> None:
        """Calls the handler with the same records again, or, given up, with the next ones."""
        shard_key = failure.records[0].shard_key
        if given_up:
            del self._batches[shard_key].records[: len(failure.records)]
        self._run(shard_key)

    def _run(self, shard_key: ShardKey) -> None:
        """Calls the handler with the whole batch. Raises Failure."""
        batch = self._batches[shard_key]
        batch.held = True
        if records := batch.records[:]:
            done, error = self._attempt(records)
            del batch.records[:done]
            if done < len(records):
                raise Failure(records[done:], error)
        del self._batches[shard_key]

    def _attempt(self, records: Sequence[Record]) -> tuple[int, BaseException]:
        """Returns the number of successful records, and the error of the next one."""
        try:
            done = self.call(records)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return 0, error
        first = "" if done == len(records) else records[done].sequence_number
        return done, NotAll(f"the first that it reported as failed is {first}")
