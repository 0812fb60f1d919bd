"""THE loop: list shards, start a process for each, deliver their records, save the checkpoint."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from multiprocessing.process import BaseProcess

import msgspec

from watcher import forks
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.stdout import OutputClosed
from watcher.engine.figures import Display, Figures, Totals
from watcher.engine.shared_queue import Queue
from watcher.engine.stores import CheckpointFile
from watcher.engine.worker import Work, run
from watcher.errors import (
    CredentialsError,
    DataLossError,
    ServiceError,
    StreamError,
    StreamGoneError,
    TransientError,
    UsageError,
    WatcherError,
)
from watcher.reading import token as checkpoints
from watcher.reading.lineage import RETENTION, Lineage, Status, Tracked
from watcher.reading.messages import Failed, Finished, Loss, Message, Page, Started, Trouble
from watcher.reading.shard_reader import CLOCKS_APART
from watcher.reading.token import Token
from watcher.reading.unlisted import Unlisted
from watcher.record import page as pages
from watcher.record.record import Record
from watcher.service.client import StreamsClient
from watcher.service.connect import for_loop, for_worker, patiently
from watcher.service.connection import Connection
from watcher.service.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    TrimHorizon,
    opened_at,
    table_of,
)

logger = logging.getLogger("watcher")

_YOUNG_SECONDS = 60.0
_LISTING_SECONDS = 5.0
# After a shard's end its child is a moment away, or a listing that lags hides it.
_CHILD_SECONDS = 0.25
_SAVE_SECONDS = 1.0
_TICK_SECONDS = 0.2
# A listing may lag by seconds: so long an end "up to now" waits for a finished shard's child.
_CHILD_GRACE_SECONDS = 5.0
# From a stream's disabling to the next one's enabling (another view type takes both).
_NEW_STREAM_SECONDS = 60.0
_LISTING_TROUBLE_SECONDS = 1.0
# So old a stored token may get while all is idle.
_SAVE_IDLE_SECONDS = 300.0
_RESTART_SECONDS = 0.1
_RESTART_SECONDS_MAX = 10.0
# A process that lived so long did not die of what killed the ones before.
_LONG_LIFE_SECONDS = 60.0
_END_SECONDS = 2.0
_DEATHS_AT_BIRTH = 3
# From here on a shard's trouble is worth a line on the terminal.
_TROUBLES_BEFORE_WARNING = 4


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch: what `watch()` and the command line let the user choose."""

    start: Position = Latest()
    follow: bool = True
    max_records: int | None = None
    fail_on_data_loss: bool = False
    idle_pause: float = 1.0
    wanted: Callable[[Record], bool] | None = None
    """Whether a record goes to the observers at all; None: every one."""


class _Worker(msgspec.Struct):
    process: BaseProcess
    since: float
    started: bool = False


class Manager:
    """Watches one stream until it is told to stop, or until there is nothing more to come.

    With `of_table` the watch is of the stream's table: where the stream ends and the table has a
    new one, it goes on there.
    """

    def __init__(
        self,
        streams: StreamsClient,
        connection: Connection,
        arn: str,
        dispatcher: Dispatcher,
        settings: Settings,
        checkpoint: CheckpointFile | None = None,
        of_table: bool = False,
        displays: Sequence[Display] = (),
    ) -> None:
        self.totals = Totals()
        self._streams = streams
        self._connection = connection
        self._arn = arn
        self._dispatcher = dispatcher
        dispatcher.before_retry = self._save_before_waiting
        self._settings = settings
        self._checkpoint = checkpoint
        self._of_table = of_table
        self._displays = displays
        self._display_due = 0.0
        self._tally = streams.tally
        self._figures = Figures(self._tally, settings.idle_pause)
        self._processes = forks.processes()
        # Never used in this process: a socket that is open can't be shared with a fork.
        self._workers_streams: StreamsClient | None = None
        self._queue = Queue()
        self._workers: dict[str, _Worker] = {}
        self._deaths: Counter[str] = Counter()
        self._restart_due: dict[str, float] = {}
        self._caught_up: set[str] = set()
        self._loss_said: set[str] = set()  # of shards that have sent nothing since
        self._lineage = Lineage(settings.start)
        self._listing: Listing | None = None
        self._until: datetime | None = None
        self._listed_at = 0.0
        self._listing_due = 0.0
        self._listing_pause = _CHILD_SECONDS
        self._listing_failures = 0
        self._unlisted = Unlisted()
        self._saved_at = 0.0
        self._save_due = 0.0
        self._grace_end = 0.0
        self._stream_ended_at: float | None = None
        self._new_stream_due = 0.0
        self._began = time.monotonic()
        self._began_at: datetime | None = None  # by the service's clock
        self._resumed = False
        self._unsaved = False
        self._save_error: UsageError | None = None
        self._news = False
        self._announced = False
        self._stopping = False
        self._stream_is_gone = False

    def stop(self) -> None:
        """End the watch soon: deliver what was read, save the checkpoint. Safe in a handler."""
        self._stopping = True
        self.totals.stopped = True
        self._dispatcher.stop()
        self._queue.wake()

    def run(self) -> Totals:
        """Watch. Raises StreamError, ObserverError, DataLossError, UsageError (checkpoint)."""
        try:
            self._begin()
            while not self._stopping and not self._is_done():
                self._keep_house()
                self._receive(_TICK_SECONDS)
            if not self._limit_is_reached():
                self._stop_workers()
            self._dispatcher.settle()
        except OutputClosed:
            pass
        finally:
            self._end()
        if self._save_error is not None:
            raise WatcherError(f"{self._save_error}; the positions of this run are not saved")
        return self.totals

    # The beginning and the end

    def _begin(self) -> None:
        token = self._checkpoint.load() if self._checkpoint else None
        if token:
            self._resume(token)
        try:
            patiently(self._list)
        except StreamGoneError as error:
            if not self._resumed or (new := self._new_stream()) is None:
                raise
            self._move_on_to(new, str(error))
            patiently(self._list)
        assert self._listing is not None
        self._began_at = self._listing.time - CLOCKS_APART
        if token:
            self._check_age(token.saved_at)
        if not self._settings.follow:
            self._until = self._figures.until = self._listing.time + CLOCKS_APART
        if not self._listing.shards:
            logger.info("The stream has no shards yet", extra=self._about())
        # From here on a listing must not keep the delivery waiting: it will be asked for again.
        self._streams = for_loop(self._connection, self._arn, self._tally)
        if self._processes.get_start_method() == "fork":
            self._workers_streams = for_worker(self._connection, self._arn)
        if self._checkpoint:
            # Said now if it can't be written, not after the first thousand records.
            self._checkpoint.save(self._token())

    def _resume(self, token: Token) -> None:
        assert self._checkpoint is not None
        if token.stream_arn != self._arn:
            if not self._of_table or table_of(token.stream_arn) != table_of(self._arn):
                raise UsageError(
                    f"checkpoint {self._checkpoint.path} is of {token.stream_arn}, not of "
                    f"{self._arn}; choose another file, or name that stream (or its table)"
                )
            # What is left of it comes first; it ends, and the watch goes on to the new one.
            self._arn = token.stream_arn
        self._lineage = Lineage(self._settings.start, checkpoints.resume(token))
        self._resumed = True
        logger.info(f"Resuming from {self._checkpoint.path}", extra=self._about())

    def _check_age(self, saved_at: datetime | None) -> None:
        """A checkpoint older than retention has lost what it stood for, said or not by a shard."""
        assert self._listing is not None
        if saved_at and self._listing.time - saved_at > RETENTION:
            saved = saved_at.isoformat(timespec="seconds")
            self._lost(f"the checkpoint is of {saved}", "older than the retention of 24 hours")

    def _is_done(self) -> bool:
        if self._limit_is_reached():
            return True
        if self._workers or self._restart_due or self._lineage.ready():
            return False
        assert self._listing is not None
        ended = self._stream_is_gone or self._listing.status == "DISABLED"
        if self._settings.follow and not ended:
            return False
        if self._listed_at < self._grace_end and not self._stream_is_gone:
            self._listing_due = min(self._listing_due, self._grace_end)
            return False
        return self._is_over() if ended else True

    def _is_over(self) -> bool:
        """Whether an ended stream was the last; if not, the watch moves on to the next."""
        if self._stream_ended_at is None:
            self._stream_ended_at = time.monotonic()
            if self._of_table and self._settings.follow:
                text = f"The stream is {self._end_word}; looking for a new one of its table"
                logger.info(text, extra=self._about())
        elif time.monotonic() < self._new_stream_due:
            return False
        self._new_stream_due = time.monotonic() + _LISTING_SECONDS
        new = self._new_stream()
        if new and self._of_table:
            self._move_on_to(new, f"stream {self._arn} is {self._end_word}")
            return False
        waiting = time.monotonic() - self._stream_ended_at < _NEW_STREAM_SECONDS
        if self._of_table and self._settings.follow and waiting:
            return False
        logger.info(f"The stream is {self._end_word}: nothing more will come", extra=self._about())
        if new:
            logger.info(f"Its table has a new one: python -m watcher {new} --from trim-horizon")
        return True

    @property
    def _end_word(self) -> str:
        return "gone" if self._stream_is_gone else "disabled"

    def _new_stream(self) -> str | None:
        """The ARN of another, newer stream of the table; None if there is none."""
        try:
            newest = self._streams.latest_stream(table_of(self._arn).rpartition("/")[2])
        except (ServiceError, StreamError) as error:
            logger.debug(f"No new stream: {error}")
            return None
        return newest if newest != self._arn else None

    def _move_on_to(self, arn: str, reason: str) -> None:
        """From a table's old stream to its new one, from its beginning."""
        logger.info(f"Going on with the table's new stream: {arn}")
        old, self._arn = self._arn, arn
        self._lineage = Lineage(TrimHorizon(), [])
        self._resumed = True
        self._unsaved = True
        self._stream_is_gone = False
        self._stream_ended_at = None
        self._grace_end = self._listing_due = 0.0
        self._listing = (
            None
            if self._listing is None
            else msgspec.structs.replace(self._listing, status="ENABLED", shards=[])
        )
        self._lost(f"between the table's streams {old} and {arn}", reason)

    def _limit_is_reached(self) -> bool:
        limit = self._settings.max_records
        return limit is not None and self.totals.records >= limit

    def _stop_workers(self) -> None:
        """Stop the reading, and deliver what was read."""
        self._stopping = True
        for worker in self._workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        while self._workers and time.monotonic() < deadline:
            if self._receive(_TICK_SECONDS):
                deadline = time.monotonic() + _END_SECONDS

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
        self._queue.close()
        for worker in self._workers.values():
            worker.process.join()
        try:
            self._dispatcher.close()
        finally:
            self.totals.failures = self._dispatcher.failures
            if self._displays and self._listing is not None:
                self._display()
            if self._unsaved:
                self._save()

    # Housekeeping: whatever is due, done between two records or two pages

    def _keep_house(self) -> None:
        self._dispatcher.tick()
        now = time.monotonic()
        if not self._stopping:
            if now >= self._listing_due:
                self._list_again()
            self._start_ready()
        if self._unsaved and now >= self._save_due:
            self._save()
        if self._displays and now >= self._display_due:
            self._display()

    def _display(self) -> None:
        self._display_due = time.monotonic() + _TICK_SECONDS
        assert self._listing is not None
        service_time = self._listing.time.timestamp() + time.monotonic() - self._listed_at
        snapshot = self._figures.snapshot(
            self.totals, self._lineage, self._dispatcher, service_time
        )
        for display in self._displays:
            display.show(snapshot)

    def _list(self) -> None:
        began = time.monotonic()
        listing = self._streams.listing(self._arn)
        self._dispatcher.begin(self._arn)
        self._listing = listing
        self._listed_at = began
        self._listing_failures = 0
        self._lineage.update(listing.shards)
        self._lineage.stamp(listing.time)
        # A process may still have its end to say.
        self._lineage.forget(listing.shards, keep=self._workers)
        self._news = True
        # DescribeStream allows 10 calls a second, shared with everybody else.
        self._listing_due = time.monotonic() + _LISTING_SECONDS + listing.pages / 5
        if began - self._saved_at > _SAVE_IDLE_SECONDS:
            self._unsaved = True

    def _list_again(self) -> None:
        """A listing in mid-watch: its troubles pass, or the stream has ended."""
        self._save_before_waiting()
        try:
            self._list()
        except StreamGoneError:
            # The shards' processes find out for themselves, and say what is lost.
            self._stream_is_gone = True
            self._listing_due = time.monotonic() + _LISTING_SECONDS
        except TransientError as error:
            self._listing_trouble(error)
        except CredentialsError as error:
            self._listing_trouble(error)
            with contextlib.suppress(CredentialsError):  # new ones may have come
                self._streams = for_loop(self._connection, self._arn, self._tally)

    def _listing_trouble(self, error: WatcherError) -> None:
        self._listing_failures += 1
        pause = min(_LISTING_TROUBLE_SECONDS * self._listing_failures, _LISTING_SECONDS)
        self._listing_due = time.monotonic() + pause
        if self._listing_failures > 1 and self._listing_failures.bit_count() == 1:
            logger.warning(f"Can't list shards, trying again: {error}", extra=self._about())

    def _look_for_children(self, shard_id: str) -> None:
        """A finished shard's children need no waiting for the next listing."""
        self._save_before_waiting()
        try:
            self._lineage.update(self._streams.children(self._arn, shard_id))
        except (ServiceError, StreamError) as error:
            logger.debug(f"No children of {shard_id} listed: {error}")
        assert self._listing is not None
        self._lineage.stamp(self._listing.time)
        self._news = True
        children = self._lineage.children(shard_id)
        if children:
            self._listing_pause = _CHILD_SECONDS
        else:
            # Often the child is a moment late; not at all where throughput was lowered.
            self._listing_due = min(self._listing_due, time.monotonic() + self._listing_pause)
            self._listing_pause = min(self._listing_pause * 2, _LISTING_SECONDS)
        if not children or any(self._is_young(child) for child in children):
            self._grace_end = time.monotonic() + _CHILD_GRACE_SECONDS

    def _is_young(self, shard: Tracked) -> bool:
        """Whether a sibling of it may still be missing in the last listing."""
        opened = opened_at(shard.id)
        assert self._listing is not None
        grace = timedelta(seconds=_CHILD_GRACE_SECONDS)
        return opened is None or opened + grace > self._listing.time

    def _start_ready(self) -> None:
        now = time.monotonic()
        while self._news or now >= self._unlisted.due:
            self._news = False
            self._unlisted.due = math.inf
            for shard in self._lineage.ready():
                if self._unlisted.may_begin(self._streams, self._arn, shard):
                    text = f"Starting watcher for shard: {shard.id}"
                    logger.info(text, extra=self._about(shard))
                    self.totals.shards += 1
                    self._start(shard)
                elif shard.status is Status.FINISHED:
                    self._news = True  # its children's turn
            if self._unlisted.due < math.inf and not self._news:
                self._listing_due = min(self._listing_due, self._unlisted.due)
        for shard_id in [name for name, due in self._restart_due.items() if due <= now]:
            del self._restart_due[shard_id]
            self.totals.restarts += 1
            self._start(self._lineage.shards[shard_id])

    def _start(self, shard: Tracked) -> None:
        shard.status = Status.RUNNING
        try:
            self._workers[shard.id] = _Worker(self._new_process(shard), time.monotonic())
        except OSError as error:  # too many processes, or open files
            text = f"Can't start a process for shard {shard.id}: {error.strerror}"
            logger.warning(text, extra=self._about(shard))
            self._start_later(shard.id)

    def _new_process(self, shard: Tracked) -> BaseProcess:
        work = Work(
            connection=self._connection,
            arn=self._arn,
            shard_id=shard.id,
            position=shard.position,
            until=self._until,
            idle_pause=self._settings.idle_pause,
        )
        writer = self._queue.writer(shard.id)
        try:
            process: BaseProcess = self._processes.Process(  # type: ignore[attr-defined]
                target=run,
                args=(work, writer, self._figures.tally(shard.id), self._workers_streams),
                name=f"watcher {shard.id}",
                daemon=True,
            )
            # Else the first garbage collection in a child copies every page that it looks at.
            gc.freeze()
            process.start()
        except OSError:
            self._queue.drop(shard.id)
            raise
        finally:
            gc.unfreeze()
            writer.close()
        return process

    def _start_later(self, shard_id: str) -> None:
        """Start a shard's process again, the later the more often it died at once."""
        self._deaths[shard_id] += 1
        pause = _RESTART_SECONDS * 2.0 ** min(self._deaths[shard_id] - 1, 10)
        self._restart_due[shard_id] = time.monotonic() + min(pause, _RESTART_SECONDS_MAX)

    # What the workers say

    def _receive(self, timeout: float) -> bool:
        """Handle one message, if one comes within `timeout` seconds."""
        received = self._queue.receive(timeout)
        if received is None:
            return False
        shard = self._lineage.shards[received[0]]
        self._handle(shard, received[1])
        return True

    def _handle(self, shard: Tracked, message: Message | None) -> None:
        match message:
            case Page():
                self._deaths.pop(shard.id, None)
                self._loss_said.discard(shard.id)
                self._deliver(shard, message)
            case Started(moment):
                self._started(shard, moment)
            case Finished():
                self._finished(shard, message)
            case Loss(_, since, reason):
                counts = self._counts_as_loss(shard) and shard.id not in self._loss_said
                self._loss_said.add(shard.id)
                if counts:  # first: where it ends the watch, the next one has to find it again
                    self._lost(f"shard {shard.id} from {since}", reason, shard)
                if isinstance(shard.position, AtSequence | AfterSequence):
                    # What there still is comes later: once said is enough.
                    shard.position = TrimHorizon()
                    self._unsaved = True
            case Trouble(text, failures):
                if failures >= _TROUBLES_BEFORE_WARNING and failures.bit_count() == 1:
                    text = f"Shard {shard.id}: {failures} failures in a row: {text}"
                    logger.warning(text, extra=self._about(shard))
            case Failed(text, fatal):
                if fatal:
                    raise StreamError(text)
                logger.debug(text, extra=self._about(shard))
                last_line = text.strip().splitlines()[-1]
                logger.warning(f"Shard {shard.id}: {last_line}", extra=self._about(shard))
            case None:
                self._worker_ended(shard)

    def _deliver(self, shard: Tracked, page: Page) -> None:
        """Hand a page's records to the observers; the housekeeping does not wait for slow ones."""
        deliver, wanted = self._dispatcher.deliver, self._settings.wanted
        totals, kinds = self.totals, self.totals.kinds
        limit = math.inf if self._settings.max_records is None else self._settings.max_records
        record: Record | None = None
        tick = time.monotonic() + _TICK_SECONDS

        def save_before_retry() -> None:
            if record is not None:
                self._moved(shard, record)
            self._save_before_waiting()

        self._dispatcher.before_retry = save_before_retry
        try:
            for following in pages.records(page.body, shard.id, page.first, page.last):
                if wanted is None or wanted(following):
                    deliver(following)
                    record = following
                    kinds[record.event_name] += 1
                    totals.records += 1
                    if totals.records >= limit:
                        break
                else:
                    record = following
                    totals.filtered += 1
                if time.monotonic() >= tick:
                    self._moved(shard, record)
                    self._keep_house()
                    tick = time.monotonic() + _TICK_SECONDS
            self._dispatcher.page_end(shard.id)
        finally:
            self._dispatcher.before_retry = self._save_before_waiting
            if record is not None:
                self._moved(shard, record)

    def _moved(self, shard: Tracked, record: Record) -> None:
        """Delivered is what has left us: not what still waits to be printed."""
        self._dispatcher.flush()
        shard.position = AfterSequence(record.sequence_number)
        self._figures.moved(record, self.totals)
        self._unsaved = True

    def _started(self, shard: Tracked, moment: datetime) -> None:
        if shard.has_outwaited(moment):
            since = shard.since
            shard.since = moment  # said once is enough, unless it waits as long again
            what = f"shard {shard.id}, unread since {since}"
            self._lost(what, "longer than the retention", shard)
        if isinstance(shard.position, Latest):
            # A restart, or a resume, of a shard that stayed idle goes on here, not at a new LATEST.
            shard.position = AtTime(moment)
            self._unsaved = True
        self._workers[shard.id].started = True
        started = all(worker.started for worker in self._workers.values())
        if started and not self._restart_due and not self._announced:
            self._announced = True
            assert self._listing is not None
            count = len(self._workers)
            logger.info(
                f"Watching {count} shard{'s' * (count != 1)} of {self._listing.table or self._arn}",
                extra=self._about(),
            )

    def _finished(self, shard: Tracked, message: Finished) -> None:
        self._unsaved = True
        if not message.closed:
            self._caught_up.add(shard.id)
            return
        if message.gone and self._is_listed_open(shard.id):
            # Its process ends, and is started again: nothing else would read what comes. Unless
            # it is the stream that is gone.
            self._listing_due = 0.0
            return
        self._dispatcher.settle(shard.id)
        if self._dispatcher.unsettled(shard.id):  # the watch ends before its children's turn
            return
        shard.status = Status.FINISHED
        self._loss_said.discard(shard.id)
        logger.info(f"Finished shard: {shard.id}", extra=self._about(shard))
        self._news = True
        if not self._stopping:
            self._look_for_children(shard.id)

    def _is_listed_open(self, shard_id: str) -> bool:
        """Whether the service says two things of a shard: open, and not to be read."""
        if self._stream_is_gone or self._lineage.children(shard_id):
            return False
        assert self._listing is not None
        return any(row.id == shard_id and row.end is None for row in self._listing.shards)

    def _counts_as_loss(self, shard: Tracked) -> bool:
        """Not what was out of retention already when the watch began at the horizon.

        DynamoDB Local lists such shards for ever; and a parent that only its child named is most
        often gone since long.
        """
        young = time.monotonic() - self._began < _YOUNG_SECONDS
        old_already = young and shard.position == self._settings.start and not self._resumed
        return shard.expected and not old_already

    def _lost(self, what: str, reason: str, shard: Tracked | None = None) -> None:
        self.totals.losses += 1
        text = f"DATA LOSS: {what}: records may be gone before they were read ({reason})"
        if self._settings.fail_on_data_loss:
            raise DataLossError(text)
        logger.warning(text, extra=self._about(shard))

    def _worker_ended(self, shard: Tracked) -> None:
        worker = self._workers.pop(shard.id)
        worker.process.join()
        for_good = shard.status is Status.FINISHED or shard.id in self._caught_up
        self._figures.process_ended(shard.id, for_good=for_good)
        if for_good or self._stopping:
            return
        if isinstance(shard.position, Latest):
            # It has promised nothing yet, but "latest" is the moment when the watch began.
            assert self._began_at is not None
            shard.position = AtTime(self._began_at)
        if time.monotonic() - worker.since > _LONG_LIFE_SECONDS:
            self._deaths.pop(shard.id, None)
        self._start_later(shard.id)
        at_birth = not worker.started and worker.process.exitcode == 1 and not self._announced
        if at_birth and self._deaths[shard.id] >= _DEATHS_AT_BIRTH:
            raise WatcherError(
                "the shards' processes end as they start; a program with threads, or not on Linux, "
                "has to call watch() under `if __name__ == '__main__':`"
            )
        logger.warning(
            f"The process of shard {shard.id} ended ({_exit(worker.process)}); "
            "starting it again where delivery stands",
            extra=self._about(shard),
        )

    def _about(self, shard: Tracked | None = None) -> dict[str, str]:
        """What a log line is about, for programs that read it."""
        about = {"stream": self._arn}
        return about if shard is None else {**about, "shard": shard.id}

    # The checkpoint

    def _token(self) -> Token:
        assert self._listing is not None
        token = checkpoints.make(self._arn, self._lineage, self._listing.time, self._began_at)
        for shard in token.shards:
            if number := self._dispatcher.unsettled(shard.shard_id):
                shard.hold(number)
                self._unsaved = True  # once it is settled, without a further record
        return token

    def _save_before_waiting(self) -> None:
        """What was delivered must not grow old unsaved while the service takes its time."""
        if self._unsaved and time.monotonic() - self._saved_at > _TICK_SECONDS:
            self._save()

    def _save(self) -> None:
        """Save what was delivered, never more. A full disk is no reason to stop the watch."""
        self._unsaved = False
        self._saved_at = time.monotonic()
        self._save_due = self._saved_at + _SAVE_SECONDS
        if self._checkpoint is None:
            return
        try:
            self._checkpoint.save(self._token())
            self._save_error = None
        except UsageError as error:
            if self._save_error is None:
                logger.error(f"{error}; the watch goes on, its positions are not saved")
            self._save_error = error


def _exit(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit status {code}"
