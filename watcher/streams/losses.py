"""Reports records that were gone before they were read, and tells which losses count."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Listing, Position, TrimHorizon
from watcher.clock import Clock
from watcher.errors import DataLossError, UsageError
from watcher.formatting.style import time_text
from watcher.streams.lineage import RETENTION, TrackedShard
from watcher.streams.messages import Loss
from watcher.streams.timing import TIMING, Timing

logger = logging.getLogger("watcher")


class Losses:
    """Says losses as warnings, or raises them as DataLossError where `is_error`.

    `remedy` is added to the error.
    """

    def __init__(
        self,
        *,
        is_error: bool = False,
        remedy: str = "",
        clock: Clock,
        lines: list[str] | None = None,
        timing: Timing = TIMING,
    ) -> None:
        self._timing = timing
        self.lines = [] if lines is None else lines
        """One for each: what, and why; several streams may have them together."""
        self._is_error = is_error
        self._remedy = remedy
        self._clock = clock
        self._arn = ""
        self._horizon: Position | None = None
        self._began = clock.boottime()

    def start(self, arn: str, horizon: Position | None) -> None:
        """Takes in that the reading of a stream starts.

        `horizon` is where shards begin that may have lost records before; None: all losses count.
        """
        self._arn = arn
        self._horizon = horizon
        self._began = self._clock.boottime()

    def warn_if_starting_late(self, listing: Listing) -> None:
        """Logs a warning if the stream does not reach back to the start of the reading.

        It is no loss; but who looks on is not to take it for a quiet time.
        """
        start, since = self._horizon, held_since(listing, listing.time)
        if not isinstance(start, AtTime) or start.time >= since - timedelta(
            seconds=self._timing.start_tolerance_seconds
        ):
            return
        why = "its stream was enabled then" if since == listing.created else "retention is 24 hours"
        logger.warning(
            f"{listing.table or listing.arn} holds changes from {_text(since)} on ({why}), and "
            f"none of the time from {_text(start.time)} up to then",
            extra={"stream": listing.arn},
        )

    def report(self, what: str, reason: str, shard: TrackedShard | None = None) -> None:
        """Reports that records are gone. Raises DataLossError."""
        self.lines.append(f"{what}: {reason}")
        text = f"DATA LOSS: {what}: records may be gone before they were read ({reason})"
        if self._is_error:
            raise DataLossError(text + self._remedy)
        about = {"stream": self._arn}
        logger.warning(text, extra={**about, "shard": shard.id} if shard else about)

    def on_loss(self, shard: TrackedShard, message: Loss) -> None:
        """A shard's reader says that records are gone. Raises DataLossError."""
        counts = self._counts(shard) and not shard.loss_reported
        shard.loss_reported = True
        if counts:  # first: where it ends the reading, the next one has to find it again
            self.report(f"shard {shard.id} from {message.since}", message.reason, shard)
        if isinstance(shard.position, AtSequence | AfterSequence):
            # What there still is comes later: once said is enough.
            shard.position = TrimHorizon()

    def _counts(self, shard: TrackedShard) -> bool:
        """False for records that had left retention before the reading began: no loss of ours.

        DynamoDB Local lists such shards for ever; and a parent that only its child named is most
        often gone since long. What leaves while the machine sleeps leaves after the beginning.
        """
        young = self._clock.boottime() - self._began < self._timing.young_seconds
        return shard.expected and not (young and shard.position == self._horizon)

    def report_if_waited_past_retention(self, shard: TrackedShard, now: datetime) -> None:
        """Reports a loss if records have left a shard while it waited. Raises DataLossError."""
        if shard.has_waited_past_retention(now):
            since = shard.since
            shard.since = now  # said once is enough, unless it waits as long again
            what = f"shard {shard.id}, unread since {since}"
            self.report(what, "longer than the retention", shard)

    def report_if_stale(self, what: str, time: datetime | None, now: datetime) -> None:
        """Reports a loss if a listing or a token is older than retention. Raises DataLossError."""
        if time and is_stale(time, now):
            self._began = -math.inf  # the machine has slept: what was there at first counts now
            of = time.isoformat(timespec="seconds")
            self.report(f"the {what} is of {of}", "older than the retention of 24 hours")

    def restarts_snapshot(
        self, on_stale: str, what: str, time: datetime | None, listing: Listing
    ) -> bool:
        """Returns True if the items have to be delivered again, as the stored position is too old.

        Under `fail` that raises UsageError, under `trim-horizon` it is a loss: DataLossError.
        """
        if not is_stale(time, listing.time):
            return False
        if on_stale == "fail":
            raise UsageError(f"{listing.table}: it is older than the stream's 24 hours", what)
        if on_stale != "snapshot":
            self.report_if_stale(what, time, listing.time)
            return False
        text = f"{listing.table}: the {what} is older than 24 hours: handing over its items as"
        logger.warning(f"{text} they are now; what was removed since is not told")
        return True


def is_stale(time: datetime | None, now: datetime) -> bool:
    """True if what was made after this time may have left the stream."""
    return time is not None and now - time > RETENTION


def held_since(listing: Listing, now: datetime) -> datetime:
    """Returns the time from which on a stream holds every change: a day ago, or its beginning."""
    day = now - RETENTION
    return day if listing.created is None else max(day, listing.created)


def _text(time: datetime) -> str:
    return time_text(time.astimezone())
