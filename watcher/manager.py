"""THE loop: list shards, start a process for each, deliver their records, save the checkpoint."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

import msgspec

from watcher import checkpoint as checkpoints
from watcher import page as pages
from watcher.checkpoint import CheckpointFile, Token
from watcher.dispatcher import Dispatcher, OutputClosed
from watcher.errors import (
    DataLossError,
    ServiceError,
    StreamError,
    TransientError,
    UsageError,
    WatcherError,
)
from watcher.lineage import Lineage, Status, Tracked
from watcher.messages import Failed, Finished, Loss, Message, Page, Started, Trouble
from watcher.position import AfterSequence, AtTime, Latest, Position
from watcher.queue import Queue
from watcher.record import Record
from watcher.streams import Connection, Listing, Streams
from watcher.worker import Work, run

logger = logging.getLogger("watcher")

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
_RETENTION = timedelta(hours=24)
_YOUNG_SECONDS = 60.0
_LISTING_SECONDS = 5.0
# After a shard's end its child is a moment away, or a listing that lags hides it.
_CHILD_SECONDS = 0.25
_SAVE_SECONDS = 1.0
_TICK_SECONDS = 0.2
# A listing may lag by seconds: so long an end "up to now" waits for a finished shard's child.
_CHILD_GRACE_SECONDS = 5.0
_RESTART_SECONDS = 0.1
_RESTART_SECONDS_MAX = 10.0
_END_SECONDS = 2.0
# From here on a shard's trouble is worth a line on the terminal.
_TROUBLES_BEFORE_WARNING = 5


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch: what `watch()` and the command line let the user choose."""

    start: Position = Latest()
    follow: bool = True
    max_records: int | None = None
    fail_on_data_loss: bool = False
    idle_pause: float = 1.0


class Totals(msgspec.Struct):
    """What a watch has done."""

    records: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    shards: int = 0
    restarts: int = 0
    losses: int = 0
    failures: int = 0


class _Worker(msgspec.Struct):
    process: BaseProcess
    started: bool = False


class Manager:
    """Watches one stream until it is told to stop, or until there is nothing more to come."""

    def __init__(
        self,
        streams: Streams,
        connection: Connection,
        arn: str,
        dispatcher: Dispatcher,
        settings: Settings,
        checkpoint: CheckpointFile | None = None,
    ) -> None:
        self.totals = Totals()
        self._streams = streams
        self._connection = connection
        self._arn = arn
        self._dispatcher = dispatcher
        self._settings = settings
        self._checkpoint = checkpoint
        self._processes = _processes()
        # Never used in this process: a socket that is open can't be shared with a fork.
        self._workers_streams: Streams | None = None
        self._queue = Queue()
        self._workers: dict[str, _Worker] = {}
        self._deaths: Counter[str] = Counter()
        self._restart_due: dict[str, float] = {}
        self._caught_up: set[str] = set()
        self._lineage = Lineage(settings.start)
        self._listing: Listing | None = None
        self._until: datetime | None = None
        self._listing_due = 0.0
        self._listing_pause = _CHILD_SECONDS
        self._save_due = 0.0
        self._grace_end = 0.0
        self._began = time.monotonic()
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
        self._queue.wake()

    def run(self) -> Totals:
        """Watch. Raises StreamError, ObserverError, DataLossError, UsageError (checkpoint)."""
        try:
            self._begin()
            while not self._stopping and not self._is_done():
                self._keep_house()
                self._receive(_TICK_SECONDS)
            self._stop_workers()
        except OutputClosed:
            pass
        finally:
            self._end()
        if self._save_error is not None:
            raise WatcherError(f"{self._save_error}; the positions of this run are not saved")
        return self.totals

    # The beginning and the end

    def _begin(self) -> None:
        if self._checkpoint and (token := self._checkpoint.load()):
            self._resume(token)
        try:
            self._list()
        except TransientError as error:
            raise StreamError(f"can't reach the stream: {error}") from error
        assert self._listing is not None
        if not self._settings.follow:
            self._until = self._listing.time
        if not self._listing.shards:
            logger.info("The stream has no shards yet")
        if self._processes.get_start_method() == "fork":
            self._workers_streams = Streams(self._connection, self._arn.split(":")[3])
        if self._checkpoint:
            # Said now if it can't be written, not after the first thousand records.
            self._checkpoint.save(self._token())

    def _resume(self, token: Token) -> None:
        assert self._checkpoint is not None
        if token.stream_arn != self._arn:
            raise UsageError(
                f"checkpoint {self._checkpoint.path} is of {token.stream_arn}, not of {self._arn}; "
                "choose another file, or name that stream"
            )
        self._lineage = Lineage(self._settings.start, checkpoints.resume(token))
        self._resumed = True
        logger.info(f"Resuming from {self._checkpoint.path}")
        if token.saved_at and datetime.now(UTC) - token.saved_at > _RETENTION:
            saved = token.saved_at.isoformat(timespec="seconds")
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
        if ended and not self._lineage.unfinished:
            logger.info("The stream is disabled: nothing more will come")
            return True
        return time.monotonic() >= self._grace_end

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
        self._dispatcher.close()
        self.totals.failures = self._dispatcher.failures
        if self._unsaved:
            self._save()

    # Housekeeping: whatever is due, done between two records or two pages

    def _keep_house(self) -> None:
        now = time.monotonic()
        if now >= self._listing_due:
            self._list_again()
        self._start_ready()
        if self._unsaved and now >= self._save_due:
            self._save()

    def _list(self) -> None:
        listing = self._streams.listing(self._arn)
        self._listing = listing
        self._lineage.update(listing.shards)
        self._lineage.forget(listing.shards)
        self._news = True
        # DescribeStream allows 10 calls a second, shared with everybody else.
        self._listing_due = time.monotonic() + _LISTING_SECONDS + listing.pages / 5

    def _list_again(self) -> None:
        """A listing in mid-watch: its troubles pass, or the stream has ended."""
        try:
            self._list()
        except TransientError as error:
            logger.warning(f"Can't list shards, trying again: {error}")
            self._listing_due = time.monotonic() + _LISTING_SECONDS
        except StreamError:
            if self._lineage.unfinished:
                raise
            self._stream_is_gone = True
            self._listing_due = time.monotonic() + _LISTING_SECONDS

    def _look_for_children(self, shard_id: str) -> None:
        """A finished shard's children need no waiting for the next listing."""
        try:
            self._lineage.update(self._streams.children(self._arn, shard_id))
        except (ServiceError, StreamError) as error:
            logger.debug(f"No children of {shard_id} listed: {error}")
        self._news = True
        if self._lineage.children(shard_id):
            self._listing_pause = _CHILD_SECONDS
        else:
            # Often the child is a moment late; not at all where throughput was lowered.
            self._listing_due = min(self._listing_due, time.monotonic() + self._listing_pause)
            self._listing_pause = min(self._listing_pause * 2, _LISTING_SECONDS)
            self._grace_end = time.monotonic() + _CHILD_GRACE_SECONDS

    def _start_ready(self) -> None:
        if self._news:
            self._news = False
            for shard in self._lineage.ready():
                logger.info(f"Starting watcher for shard: {shard.id}")
                self.totals.shards += 1
                self._start(shard)
        now = time.monotonic()
        for shard_id in [name for name, due in self._restart_due.items() if due <= now]:
            del self._restart_due[shard_id]
            self.totals.restarts += 1
            self._start(self._lineage.shards[shard_id])

    def _start(self, shard: Tracked) -> None:
        shard.status = Status.RUNNING
        writer = self._queue.writer(shard.id)
        forked = self._workers_streams is not None
        work = Work(
            connection=self._connection,
            arn=self._arn,
            shard_id=shard.id,
            position=shard.position,
            until=self._until,
            idle_pause=self._settings.idle_pause,
        )
        inherited = self._queue.descriptors() if forked else []
        process = self._processes.Process(  # type: ignore[attr-defined]
            target=run,
            args=(work, writer, self._workers_streams, inherited),
            name=f"watcher {shard.id}",
            daemon=True,
        )
        process.start()
        writer.close()
        self._workers[shard.id] = _Worker(process)

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
                self._deliver(shard, message)
            case Started(moment):
                self._started(shard, moment)
            case Finished():
                self._finished(shard, message)
            case Loss(_, since, reason):
                if self._counts_as_loss(shard):
                    self._lost(f"shard {shard.id} from {since}", reason)
            case Trouble(text, failures):
                if failures >= _TROUBLES_BEFORE_WARNING and failures.bit_count() == 1:
                    logger.warning(f"Shard {shard.id}: {failures} failures in a row: {text}")
            case Failed(text, fatal):
                if fatal:
                    raise StreamError(text)
                logger.debug(text)
                logger.warning(f"Shard {shard.id}: {text.strip().splitlines()[-1]}")
            case None:
                self._worker_ended(shard)

    def _deliver(self, shard: Tracked, page: Page) -> None:
        """Hand a page's records to the observers; the housekeeping does not wait for slow ones."""
        last = page.last
        if self._settings.max_records is not None:
            last = min(last, page.first + self._settings.max_records - self.totals.records)
        deliver, kinds = self._dispatcher.deliver, self.totals.kinds
        record: Record | None = None
        tick = time.monotonic() + _TICK_SECONDS
        try:
            for following in pages.records(page.body, shard.id, page.first, last):
                deliver(following)
                record = following
                kinds[record.event_name] += 1
                self.totals.records += 1
                if time.monotonic() >= tick:
                    self._moved(shard, record)
                    self._dispatcher.flush()
                    if not self._stopping:
                        self._keep_house()
                    tick = time.monotonic() + _TICK_SECONDS
        finally:
            if record is not None:
                self._moved(shard, record)
        self._dispatcher.flush()

    def _moved(self, shard: Tracked, record: Record) -> None:
        shard.position = AfterSequence(record.sequence_number)
        self._unsaved = True

    def _started(self, shard: Tracked, moment: datetime) -> None:
        if isinstance(shard.position, Latest):
            # A restart, or a resume, of a shard that stayed idle goes on here, not at a new LATEST.
            shard.position = AtTime(moment)
            self._unsaved = True
        self._workers[shard.id].started = True
        if not self._announced and all(worker.started for worker in self._workers.values()):
            self._announced = True
            assert self._listing is not None
            count = len(self._workers)
            logger.info(
                f"Watching {count} shard{'s' * (count != 1)} of {self._listing.table or self._arn}"
            )

    def _finished(self, shard: Tracked, message: Finished) -> None:
        self._unsaved = True
        if not message.closed:
            self._caught_up.add(shard.id)
            return
        shard.status = Status.FINISHED
        if not message.gone or shard.expected:
            logger.info(f"Finished shard: {shard.id}")
        self._news = True
        if not self._stopping:
            self._look_for_children(shard.id)

    def _counts_as_loss(self, shard: Tracked) -> bool:
        """Not what was out of retention already when the watch began at the horizon.

        DynamoDB Local lists such shards for ever; and a parent that only its child named is most
        often gone since long.
        """
        young = time.monotonic() - self._began < _YOUNG_SECONDS
        old_already = young and shard.position == self._settings.start and not self._resumed
        return shard.expected and not old_already

    def _lost(self, what: str, reason: str) -> None:
        self.totals.losses += 1
        text = f"DATA LOSS: {what}: records may be gone before they were read ({reason})"
        if self._settings.fail_on_data_loss:
            raise DataLossError(text)
        logger.warning(text)

    def _worker_ended(self, shard: Tracked) -> None:
        process = self._workers.pop(shard.id).process
        process.join()
        if shard.status is Status.FINISHED or shard.id in self._caught_up or self._stopping:
            return
        self._deaths[shard.id] += 1
        deaths = self._deaths[shard.id]
        pause = min(_RESTART_SECONDS * 2.0 ** (deaths - 1), _RESTART_SECONDS_MAX)
        self._restart_due[shard.id] = time.monotonic() + pause
        logger.warning(
            f"The process of shard {shard.id} ended ({_exit(process)}); "
            "starting it again where delivery stands"
        )

    # The checkpoint

    def _token(self) -> Token:
        assert self._listing is not None
        return checkpoints.make(self._arn, self._lineage, self._listing.time)

    def _save(self) -> None:
        """Save what was delivered, never more. A full disk is no reason to stop the watch."""
        self._unsaved = False
        self._save_due = time.monotonic() + _SAVE_SECONDS
        if self._checkpoint is None:
            return
        try:
            self._checkpoint.save(self._token())
            self._save_error = None
        except UsageError as error:
            if self._save_error is None:
                logger.error(f"{error}; the watch goes on, its positions are not saved")
            self._save_error = error


def _processes() -> BaseContext:
    """fork on Linux: 9 MB and some milliseconds a shard less than a process that starts anew.

    Elsewhere the platform's own choice: macOS's libraries do not survive a fork.
    """
    return multiprocessing.get_context("fork" if sys.platform == "linux" else None)


def _exit(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit status {code}"
