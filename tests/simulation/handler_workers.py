"""Handler workers in virtual time: parts of pages that end where a seed says, in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.simulation.scheduler import Killed
from watcher.aws.model import ShardKey
from watcher.clock import Clock
from watcher.delivery.failures import SentError
from watcher.delivery.handler import Handler
from watcher.delivery.handler_process import Answer, progress_of
from watcher.delivery.handler_workers import HandlerWorkers
from watcher.delivery.timing import HANDLER_WORKER_TIMING
from watcher.records.page import RecordPage


class SimulatedHandlerWorkers(HandlerWorkers):
    """The manager sees what real ones answer: parts, failures, and now and then nothing done.

    Their death is one of these: with a record in hand a failure, without one nothing done.
    """

    takes_pages = True

    def __init__(self, handlers: Sequence[Handler], rng: random.Random, clock: Clock) -> None:
        self.handlers = list(handlers)
        self._rng = rng
        self._clock = clock

    def deliver(
        self,
        page: RecordPage,
        begin: int,
        upto: int,
        *,
        is_fenced: bool = False,
        is_timed: bool = False,
        on_wait: Callable[[int], object] = lambda index: None,
    ) -> Answer:
        """See `HandlerWorkers`."""
        most = self._rng.choice((0, 1, 3, 100))
        done = begin
        until = self._clock.monotonic() + HANDLER_WORKER_TIMING.part_seconds
        for record in page[begin : min(upto, begin + most)]:
            if self._rng.random() < 0.1:
                on_wait(done)
            for place, handler in enumerate(self.handlers):
                try:
                    handler.handle(record)
                except Killed:
                    raise
                except Exception as error:
                    failed = place, SentError.of(error)
                    return progress_of(page, begin, done)._replace(failed=failed)
            done += 1
            if self._clock.monotonic() >= until:
                break
        return progress_of(page, begin, done)

    def forget(self, shard_key: ShardKey) -> None:
        """See `HandlerWorkers`."""

    def interrupt(self) -> None:
        """See `HandlerWorkers`."""
