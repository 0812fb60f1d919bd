"""Fetches the records that a Lambda function has failed on: ranges of shards, from the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, timedelta
from typing import NamedTuple

import msgspec

from watcher.aws.model import AfterSequence, AtSequence, Service, ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.failed_batches import FailedBatch
from watcher.errors import DataLossError, ServiceError, StreamError, UnexpectedAnswerError
from watcher.formatting.style import shown_time
from watcher.formatting.text import grouped, printable
from watcher.pull.ranges import Range, RangeReader
from watcher.records.record import Record
from watcher.streams.lineage import RETENTION
from watcher.streams.losses import Losses
from watcher.time_machine.archives import Archive, archived_record, row_number

logger = logging.getLogger("watcher")

_ARCHIVED_AT_ONCE = 10_000
"""An archive's days are read once for ranges of so many records: memory holds these."""
_DAY = timedelta(days=1)


class HeldBatch(NamedTuple):
    """A failed batch, and the message that names it."""

    batch: FailedBatch
    handle: str = ""
    """The message's receipt handle; "" where it is in no queue."""


class _ShardProgress(msgspec.Struct):
    """The part of a shard that this run has handed over."""

    upto: str = "-1"
    """The sequence number of the last record given out, as the service wrote it."""
    unhandled_upto: int = -1
    """The furthest end of the ranges of which some records were not handled."""


class Redrive:
    """The records of failed batches: iterating gives each once, those of an item in their order.

    `handled` is called behind each range: it returns whether all records given out were dealt with.
    `done` is called then with its message, which may be deleted. A range whose first records are
    neither in the stream nor in the `archive` is not given out; a warning names it.
    Iterating raises StreamError.
    """

    def __init__(
        self,
        held: Iterable[HeldBatch],
        connect: Callable[[str], Service],
        *,
        handled: Callable[[], bool],
        done: Callable[[HeldBatch], object],
        archive: Archive | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        # The numbers of an item's changes rise, also from a shard to its children.
        self._held = sorted(
            held, key=lambda each: (each.batch.stream, int(each.batch.first), int(each.batch.last))
        )
        self._connect = connect
        self._handled = handled
        self._done = done
        self._clock = clock
        self._archived = None if archive is None else _ArchivedRanges(archive)
        self._readers: dict[str, RangeReader] = {}
        self._shards: dict[ShardKey, _ShardProgress] = {}
        self._is_whole = True
        self._passed = 0
        self.records = 0
        """The number of records handed out."""
        self.filtered = 0
        """The number of these that filters dropped; the caller counts them."""
        self.unreadable = 0
        """The number of messages that name no range; the caller counts them."""
        self.begun = 0
        """The number of ranges begun."""
        self.done = 0
        """The number of ranges whose records were all handled."""
        self.lost = 0
        """The number of ranges that have left the stream."""

    @property
    def batches(self) -> Sequence[FailedBatch]:
        """The failed batches, in the order in which they are read."""
        return [each.batch for each in self._held]

    def keep(self) -> None:
        """The record given out last is not handled: its message has to stay."""
        self._is_whole = False

    def pass_over(self) -> None:
        """The record given out last was none of the function's, as its mapping has a filter."""
        self._passed += 1

    def __iter__(self) -> Iterator[Record]:
        for index, each in enumerate(self._held):
            progress = self._shards.setdefault(each.batch.shard_key, _ShardProgress())
            self.begun += 1
            self._is_whole, self._passed, before = True, 0, self.records
            reason = ""
            try:
                for record in self._records(index, progress):
                    self.records += 1
                    yield record
                    progress.upto = record.sequence_number
            except (DataLossError, UnexpectedAnswerError) as error:
                reason = str(error)
            delivered = self.records - before - self._passed
            # The mapping's own filter leaves what the function had; another one may leave less.
            is_enough = not self._passed or delivered >= each.batch.size > 0
            self._finish(each, progress, is_enough, reason)

    def _finish(
        self, each: HeldBatch, progress: _ShardProgress, is_enough: bool, reason: str
    ) -> None:
        batch = each.batch
        if not (self._handled() and self._is_whole and is_enough):
            progress.unhandled_upto = int(batch.last)
        if reason:
            self.lost += 1
            made = "" if batch.since is None else f" of {shown_time(batch.since.astimezone())}"
            what = f"{batch} ({grouped(batch.size, 'record')}{made})"
            logger.warning(f"GONE: {printable(what)}: {printable(reason)}")
        elif progress.unhandled_upto < int(batch.first):
            self.done += 1
            self._done(each)

    def _records(self, index: int, progress: _ShardProgress) -> Iterator[Record]:
        """Yields a range's records that are new. Raises DataLossError where some are gone."""
        batch = self._held[index].batch
        if int(batch.last) <= int(progress.upto):
            return
        try:
            yield from self._from_stream(batch, progress.upto)
        except DataLossError:
            if self._archived is None:
                text = "the stream no longer holds all of it; an archive may"
                raise DataLossError(text) from None
        except ServiceError as error:
            raise StreamError(str(error)) from error
        else:
            return
        yield from self._archived.records(batch, int(progress.upto), self._older(index))

    def _from_stream(self, batch: FailedBatch, upto: str) -> Iterator[Record]:
        begins_before = int(batch.first) <= int(upto)
        start = AfterSequence(upto) if begins_before else AtSequence(batch.first)
        between = Range(batch.shard_id, start, batch.last, closed=False, known=False)
        if batch.stream not in self._readers:
            losses = Losses(is_error=True, clock=self._clock)
            self._readers[batch.stream] = RangeReader(
                batch.stream, self._connect(batch.stream), losses, self._clock
            )
        is_first = not begins_before
        for page in self._readers[batch.stream].read(between):
            for record in page.opened(batch.shard_key):
                if is_first and int(record.sequence_number) != int(batch.first):
                    raise DataLossError(f"{between}: it begins later")
                is_first = False
                yield record

    def _older(self, index: int) -> list[FailedBatch]:
        """Returns the next ranges that are hardly in the stream, either."""
        horizon = self._clock.now() - RETENTION
        found: list[FailedBatch] = []
        records = self._held[index].batch.size
        for each in self._held[index + 1 :]:
            records += each.batch.size
            if (
                each.batch.since is None
                or each.batch.since > horizon
                or records > _ARCHIVED_AT_ONCE
            ):
                break
            found.append(each.batch)
        return found


class _ArchivedRanges:
    """Ranges of shards out of an archive, several in one reading of its days."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._found: dict[FailedBatch, list[Record]] = {}
        self._is_exact = True

    def records(
        self, batch: FailedBatch, upto: int, following: Iterable[FailedBatch]
    ) -> Iterator[Record]:
        """Yields a range's records behind `upto`. Raises DataLossError where some are missing."""
        if batch not in self._found:
            self._found = self._read([batch, *following])
        found = self._found.pop(batch)
        numbers = [int(each.sequence_number) for each in found]
        ends = {int(batch.first), int(batch.last)}
        if not ends <= {*numbers} or len(found) < batch.size:
            raise DataLossError("neither the stream nor the archive holds all of it")
        yield from (each for each in found if int(each.sequence_number) > upto)

    def _read(self, batches: Sequence[FailedBatch]) -> dict[FailedBatch, list[Record]]:
        found: dict[FailedBatch, dict[int, Record]] = {each: {} for each in batches}
        of_shard: dict[str, list[FailedBatch]] = {}
        for each in found:
            of_shard.setdefault(each.shard_id, []).append(each)
        for rows in self._archive.days(_days(batches)):
            for row in rows:
                for batch in of_shard.get(row.get("shard_id") or "", ()):
                    number = int(row_number(row))
                    if int(batch.first) <= number <= int(batch.last):
                        archived = archived_record(row)
                        self._warn_if_inexact(archived.exact)
                        raw = archived.record.raw
                        found[batch][number] = Record.from_json(
                            bytes(raw), batch.shard_key.shard_id, batch.shard_key.stream
                        )
        return {batch: [rows[key] for key in sorted(rows)] for batch, rows in found.items()}

    def _warn_if_inexact(self, exact: bool) -> None:
        if self._is_exact and not exact:
            self._is_exact = False
            logger.warning(
                "The archive's images are plain JSON: sets come as lists, binary values as text"
            )


def _days(batches: Sequence[FailedBatch]) -> tuple[date, date] | None:
    """Returns the days that ranges are of, with one more on both sides: clocks differ."""
    times = [time for each in batches for time in (each.since, each.until or each.since)]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    first, last = min(known) - _DAY, max(known) + _DAY
    return first.astimezone(UTC).date(), last.astimezone(UTC).date()
