"""Collects records per shard and hands them over in batches, as Lambda's event source mapping does.

https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from watcher.record.record import Record

_RETRY_SECONDS = 0.1
_RETRY_SECONDS_MAX = 10.0
_LOOK_UP_SECONDS = 0.1


class TooOld(Exception):
    """Records are older than `max_age`."""


class NotAll(Exception):
    """A call has reported that only the first records of its batch went well."""


class _Ending(Exception):
    """The watch ends before a batch is settled."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to batch; Lambda's settings, under the command line's names."""

    size: int = 100
    window: float = 0.0
    """Seconds to wait for a full batch; 0: what a page gives."""
    retries: int = 2
    """How often a failing batch is tried again before it is given up; -1: for ever."""
    bisect: bool = False
    max_age: float | None = None


class Batches:
    """Records of each shard, in order, until a call with them has gone well or is given up.

    `call` answers how many of the first records went well (all, most often), or raises where none
    did. `on_failure` and `give_up`, which the dispatcher sets, are told of each call that failed,
    and of the records that failed for good; where they raise, the records stay unsettled.
    """

    def __init__(self, call: Callable[[Sequence[Record]], int], settings: Settings) -> None:
        self._call = call
        self._settings = settings
        self._waiting: dict[str, list[Record]] = {}
        self._since: dict[str, float] = {}
        # Shards that must not go on: the watch ends before their batch is settled.
        self._held: set[str] = set()
        self._stopping = False
        self.give_up: Callable[[Sequence[Record], BaseException], None] = _raise
        self.on_failure: Callable[[BaseException], object] = lambda error: None

    def add(self, record: Record) -> None:
        """Take one more record; a full batch is called at once."""
        waiting = self._waiting.setdefault(record.shard_id, [])
        if not waiting:
            self._since[record.shard_id] = time.monotonic()
        waiting.append(record)
        if len(waiting) >= self._settings.size:
            self.settle(record.shard_id)

    def page_end(self, shard_id: str) -> None:
        """Nothing more of the shard is at hand just now."""
        if not self._settings.window:
            self.settle(shard_id)

    def tick(self) -> None:
        """Call with those batches that have waited long enough."""
        if not self._settings.window:
            return
        due = time.monotonic() - self._settings.window
        for shard_id in [shard_id for shard_id, since in self._since.items() if since <= due]:
            self.settle(shard_id)

    def settle_all(self) -> None:
        """Call with whatever waits."""
        for shard_id in list(self._since):
            self.settle(shard_id)

    def unsettled(self, shard_id: str) -> str | None:
        """The first record of a shard that is neither processed nor given up."""
        waiting = self._waiting.get(shard_id)
        return waiting[0].sequence_number if waiting else None

    def left(self) -> dict[str, int]:
        """Shard → how many of its records are neither processed nor given up."""
        return {shard_id: len(waiting) for shard_id, waiting in self._waiting.items() if waiting}

    def stop(self) -> None:
        """The watch ends: no more retries."""
        self._stopping = True

    def settle(self, shard_id: str) -> None:
        """Call with what waits of a shard, again and in smaller parts as the settings say."""
        waiting = self._waiting.get(shard_id)
        if not waiting or shard_id in self._held:
            return
        self._held.add(shard_id)  # stays so where what follows raises
        try:
            self._settle(waiting, len(waiting))
        except _Ending:
            return
        self._held.discard(shard_id)
        del self._waiting[shard_id], self._since[shard_id]

    def _settle(self, waiting: list[Record], count: int) -> None:
        """Take the first `count` records off, as they are processed or given up."""
        failures = 0
        while count := count - self._drop_old(waiting, count):
            done, error = self._attempt(waiting[:count])
            del waiting[:done]
            count -= done
            failures = 1 if done else failures + 1
            if not count:
                return
            self.on_failure(error)
            if self._settings.bisect and count > 1 and not done:
                self._settle(waiting, count // 2)
                count -= count // 2
                failures = 0
            elif 0 <= self._settings.retries < failures:
                self.give_up(waiting[:count], error)
                del waiting[:count]
                return
            else:
                self._pause(failures)

    def _attempt(self, part: Sequence[Record]) -> tuple[int, BaseException]:
        """How many went well, and what went wrong with the next one."""
        try:
            done = self._call(part)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return 0, error
        first = "" if done == len(part) else part[done].sequence_number
        return done, NotAll(f"the first that it reported as failed is {first}")

    def _drop_old(self, waiting: list[Record], count: int) -> int:
        """Give up those of the first records that are too old; how many they were."""
        if self._settings.max_age is None:
            return 0
        oldest = time.time() - self._settings.max_age
        old = 0
        while old < count and (created := waiting[old].created_at) is not None:
            if created.timestamp() >= oldest:
                break
            old += 1
        if old:
            self.give_up(waiting[:old], TooOld(f"older than {self._settings.max_age:g} s"))
            del waiting[:old]
        return old

    def _pause(self, failures: int) -> None:
        """Wait before a retry. Raises _Ending where the watch is to end."""
        end = time.monotonic() + min(
            _RETRY_SECONDS * 2.0 ** min(failures - 1, 10), _RETRY_SECONDS_MAX
        )
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_UP_SECONDS))
        if self._stopping:
            raise _Ending


def _raise(records: Sequence[Record], error: BaseException) -> None:
    raise error
