"""Reads ranges of shards on an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache

from watcher.backoff import worth_saying
from watcher.clock import CLOCK, Clock
from watcher.errors import TransientError
from watcher.reading.losses import Losses
from watcher.reading.messages import Loss, Message, Page, Trouble
from watcher.reading.shard_reader import ShardReader
from watcher.service.connect import for_worker
from watcher.service.connection import Connection
from watcher.service.model import Service
from watcher.spark.offsets import Range
from watcher.spark.options import REMEDY, SourceOptions

logger = logging.getLogger("watcher")

# A watch never gives up; a task that failed is tried anew by Spark, and the user sees why.
_GIVE_UP_SECONDS = 300.0


class RangeReader:
    """Reads from a stream until an end that is known.

    Raises DataLossError where some records are gone (or warns), TransientError after minutes of
    trouble, StreamError.
    """

    def __init__(
        self, options: SourceOptions, arn: str, service: Service, clock: Clock = CLOCK
    ) -> None:
        self._arn = arn
        self._service = service
        self._clock = clock
        self._losses = Losses(is_error=options.fail_on_data_loss, remedy=REMEDY, clock=clock)
        self._losses.begin(arn, None)

    @classmethod
    def connected(cls, options: SourceOptions, arn: str) -> RangeReader:
        """A reader over the real service."""
        return cls(options, arn, _service(options.connection, arn))

    def read(self, between: Range) -> Iterator[Page]:
        """The records of a range, page by page."""
        last: str | None = None
        for page in self._pages(between):
            part = page if between.upto is None else page.upto(between.upto)
            if part is not None:
                yield part
                last = part.last_sequence_number
            if between.upto and int(page.last_sequence_number) >= int(between.upto):
                break
        if between.upto and last != between.upto:
            end = f"it ended at sequence number {last}" if last else "nothing is left of it"
            self._losses.say(str(between), end)

    def _pages(self, between: Range) -> Iterator[Page]:
        reader = ShardReader(
            self._service, self._arn, between.shard_id, between.start, until=between.until
        )
        trouble_since: float | None = None
        while not reader.finished:
            messages = reader.read()
            for message in messages:
                if isinstance(message, Page):
                    yield message
                elif isinstance(loss := getattr(message, "gone", message), Loss):
                    what = f"{between} from {loss.since} to what is left"
                    self._losses.say(what, loss.reason)
            trouble_since = self._in_trouble(messages, trouble_since, between)
            self._clock.sleep(reader.pause)

    def _in_trouble(
        self, messages: list[Message], since: float | None, between: Range
    ) -> float | None:
        """Since when the service has answered nothing but errors."""
        troubles = [message for message in messages if isinstance(message, Trouble)]
        if not troubles:
            return None
        if worth_saying(troubles[-1].failures):
            failures, text = troubles[-1].failures, troubles[-1].text
            logger.warning(f"{between}: {failures} failures in a row: {text}")
        now = self._clock.monotonic()
        if since is not None and now > since + _GIVE_UP_SECONDS:
            raise TransientError(f"{between} can't be read: {troubles[-1].text}")
        return since if since is not None else now


@lru_cache(maxsize=8)
def _service(connection: Connection, arn: str) -> Service:
    """One client for a worker's life: making one takes longer than reading a page."""
    return for_worker(connection, arn)
