"""Reports records that were lost before they were read, and decides which losses count."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Listing, Position, TrimHorizon
from watcher.clock import Clock
from watcher.errors import DataLossError, UsageError
from watcher.formatting.style import local_time
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import RETENTION, TrackedShard
from watcher.streams.messages import Loss

_START_TOLERANCE_SECONDS = 60.0
"""The tolerance of a start 24 hours ago: it means everything in retention."""
_YOUNG_SECONDS = 60.0
"""The time after the start in which records that leave retention are no loss."""

logger = logging.getLogger("watcher")

_PAST_RETENTION = "older than the retention of 24 hours"


class Losses:
    """Logs losses as warnings, or raises them as DataLossError if `is_error`.

    `remedy` is added to the error.
    """

    def __init__(
        self,
        *,
        is_error: bool = False,
        remedy: str = "",
        clock: Clock,
        lines: list[str] | None = None,
    ) -> None:
        self.lines = [] if lines is None else lines
        """A line for each loss, with its reason; several streams may share the list."""
        self._is_error = is_error
        self._remedy = remedy
        self._clock = clock
        self._arn = ""
        self._horizon: Position | None = None
        self._began = clock.boottime()

    def start(self, arn: str, horizon: Position | None) -> None:
        """Notes that the reading of a stream starts.

        `horizon` is the start position of shards that may have lost records before; None: all
        losses count.
        """
        self._arn = arn
        self._horizon = horizon
        self._began = self._clock.boottime()

    def warn_if_starting_late(self, listing: Listing) -> None:
        """Logs a warning if the stream began only after the start time.

        It is no loss, but the user must not mistake it for a quiet time.
        """
        start, since = self._horizon, held_since(listing, listing.time)
        if not isinstance(start, AtTime) or start.time >= since - timedelta(
            seconds=_START_TOLERANCE_SECONDS
        ):
            return
        why = "its stream was enabled then" if since == listing.created else "retention is 24 hours"
        logger.warning(
            f"{listing.table or listing.arn} holds changes from {local_time(since)} on ({why}), "
            f"and none of the time from {local_time(start.time)} up to then",
            extra={"stream": listing.arn},
        )

    def report(
        self,
        what: str,
        reason: str,
        shard: TrackedShard | None = None,
        *,
        may_raise: bool = True,
    ) -> None:
        """Reports that records are gone. Raises DataLossError, if it `may_raise`."""
        self.lines.append(f"{what}: {reason}")
        text = f"DATA LOSS: {what}: records may be gone before they were read ({reason})"
        if self._is_error and may_raise:
            raise DataLossError(text + self._remedy)
        about = {"stream": self._arn}
        logger.warning(text, extra={**about, "shard": shard.id} if shard else about)

    def report_gap(self, old: str, new: str, reason: str, *, may_raise: bool = True) -> None:
        """Reports that changes between two of a table's streams are lost. Raises DataLossError."""
        what = f"between the table's streams {old} and {new}"
        self.report(what, reason, may_raise=may_raise)

    def on_loss(self, shard: TrackedShard, message: Loss) -> None:
        """Handles a reader's message that records are gone. Raises DataLossError."""
        counts = self._counts(shard) and not shard.loss_reported
        shard.loss_reported = True
        if counts:  # before the move: if it raises, the next run has to find the loss again
            self.report(f"shard {shard.id} from {message.since}", message.reason, shard)
        if isinstance(shard.position, AtSequence | AfterSequence):
            # The remaining records are later ones; the loss is reported once.
            shard.position = TrimHorizon()

    def _counts(self, shard: TrackedShard) -> bool:
        """Returns False for records that left retention before the start, which are no loss.

        DynamoDB Local lists such shards forever; and a parent that only its child names is mostly
        gone long ago. Records that leave while the machine sleeps do so after the start.
        """
        young = self._clock.boottime() - self._began < _YOUNG_SECONDS
        return shard.expected and not (young and shard.position == self._horizon)

    def report_if_waited_past_retention(self, shard: TrackedShard, now: datetime) -> None:
        """Reports a loss if records have left a shard while it waited. Raises DataLossError."""
        if shard.has_waited_past_retention(now):
            since = shard.since
            shard.since = now  # reported once, unless it waits as long again
            what = f"shard {shard.id}, unread since {since}"
            self.report(what, "longer than the retention", shard)

    def report_if_stale(self, what: str, time: datetime | None, now: datetime) -> None:
        """Reports a loss if a listing or a token is older than retention. Raises DataLossError."""
        if time and is_stale(time, now):
            self._report_old(what, time, _PAST_RETENTION)

    def report_if_anew(self, what: str, since: datetime | None, listing: Listing) -> bool:
        """Reports a loss if a stream was created again after this time; returns True if it was.

        Raises DataLossError.
        """
        if since is None or not listing.began_anew(since):
            return False
        self._report_old(what, since, _anew_text(listing))
        return True

    def _report_old(self, what: str, time: datetime, age: str) -> None:
        self._began = -math.inf  # from now on all losses count: the machine may have slept
        self.report(f"the {what} is of {time.isoformat(timespec='seconds')}", age)

    def restarts_snapshot(
        self, on_stale: str, what: str, token: Token | None, listing: Listing
    ) -> bool:
        """Returns True if the items have to be delivered again: the stored position is too old.

        Under `fail` that raises UsageError; under `trim-horizon` it is a loss (DataLossError).
        """
        if token is None:
            return False
        is_anew = token.stream_arn == listing.arn and listing.began_anew(token.stream_since)
        time = token.stream_since if is_anew else token.saved_at
        if time is None or not (is_anew or is_stale(time, listing.time)):
            return False
        age = _anew_text(listing) if is_anew else _PAST_RETENTION
        if on_stale == "fail":
            raise UsageError(f"{listing.table}: it is {age}", what)
        if on_stale != "snapshot":
            self._report_old(what, time, age)
            return False
        text = f"{listing.table}: the {what} is {age}: handing over its items as they are now"
        logger.warning(f"{text}; removals in between are unknown")
        return True


def is_stale(time: datetime | None, now: datetime) -> bool:
    """True if records made after this time may have left the stream."""
    return time is not None and now - time > RETENTION


def held_since(listing: Listing, now: datetime) -> datetime:
    """Returns the time from which a stream holds every change: a day ago, or its enabling."""
    day = now - RETENTION
    return day if listing.created is None else max(day, listing.created)


def _anew_text(listing: Listing) -> str:
    assert listing.created is not None
    return f"older than the stream, which was created again at {local_time(listing.created)}"
