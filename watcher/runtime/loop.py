"""THE loop: list streams, start shards, receive, deliver, save the checkpoint, reap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from watcher.clock import Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.output import OutputClosed
from watcher.delivery.progress import Progress
from watcher.delivery.protocol import Delivery
from watcher.errors import NoAnswerYetError, StreamError
from watcher.formatting.text import counted
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.observability.watch_stats import Display, Totals
from watcher.options import WatchOptions
from watcher.pull.stream_successor import StreamEnd
from watcher.runtime.health import HealthChecker, lease_state
from watcher.runtime.stats import StatsCollector
from watcher.runtime.table_snapshots import TableSnapshots
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.shutdown import Overdue, Shutdown
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.stores.protocol import Store
from watcher.streams.coordinator import ReadAgain, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.messages import (
    IteratorGranted,
    Loss,
    Message,
    Page,
    ReaderCrashed,
    ReaderEnded,
)
from watcher.streams.timing import TIMING

logger = logging.getLogger("watcher")

# The longest wait for a message, by which a listing or a save may be late.
_TICK_SECONDS = 0.2
# The delay between display updates: five a second look alive, and cost little.
_DISPLAY_SECONDS = 0.2


@dataclass(kw_only=True, eq=False)
class Manager:
    """Watches streams until a stop is requested, or all that was asked for is read.

    Each collaborator keeps its own state; `watcher.build` composes them.
    """

    options: WatchOptions
    streams: WatchedStreams
    workers: Workers
    dispatcher: Dispatcher
    delivery: Delivery
    progress: Progress
    snapshots: TableSnapshots
    saver: CheckpointSaver
    store: Store | None
    stats: StatsCollector
    displays: Sequence[Display]
    health: HealthChecker
    shutdown: Shutdown
    heartbeat: Heartbeat
    totals: Totals
    clock: Clock
    _display_due: float = 0.0
    _is_hopeless: bool = False
    _thread: threading.Thread = field(default_factory=threading.current_thread)

    def stop(self) -> None:
        """Requests the stop: the record in hand is the last one. Safe in a signal handler."""
        self.shutdown.request()
        self.heartbeat.stop()
        self.workers.queue.wake()

    def run(self) -> Totals:
        """Lists, starts, receives, delivers, saves and reaps, until the end. Returns the totals.

        Raises StreamError, HandlerError, DataLossError, UsageError (checkpoint).
        """
        try:
            self._prepare()
            while not (self.shutdown.must_stop() or self._is_done()):
                self.heartbeat.beat()
                self._list_new_streams()
                self._start_shards()
                self._receive()
                self._deliver()
                self._save()
                self._reap()
            # Records that were read and not delivered will be read again.
            self.workers.stop()
            self.delivery.drain()
        except OutputClosed:
            pass  # whatever read our output has ended: so does the watch, quietly
        except Overdue as error:
            logger.warning(str(error))
        finally:
            self._end()
        self.saver.raise_error()
        self.streams.raise_error(self.totals)
        if reason := self._unread_reason:
            raise StreamError(reason)
        return self.totals

    # The six steps, and their conditions

    def _list_new_streams(self) -> None:
        """Adds streams that join; starts each as soon as its first listing has succeeded."""
        self.streams.join_discovered()
        for stream in self.streams.to_start():
            if self.shutdown.must_stop():
                return
            with self.shutdown.asking_service():
                if not self._start_stream(stream):
                    continue  # it is listed in the background
            self.streams.on_first_answer(stream)
            if stream.has_started:
                with self.shutdown.may_interrupt():
                    self._refresh(stream)
                self.saver.save_first()
            self.streams.log_if_all_reading(stream, self.workers)

    def _start_shards(self) -> None:
        """Lists shards again where that is due, and starts those that may be read.

        Shards whose worker has died are started again.
        """
        for stream in self.streams:
            self._refresh(stream)
        for shard_key in self.workers.to_restart():
            its_stream = self.streams.get(shard_key.stream)
            if its_stream is not None and not self.streams.is_paused(its_stream):
                self._start_shard(its_stream, its_stream.shard(shard_key))

    def _receive(self) -> None:
        """Takes a page of a table's items, and a message of a worker.

        Behind slow handlers it takes all messages that are there, of workers that are not held up:
        a shard's end, and so its children, wait for no other shard's records.
        """
        is_behind = bool(self.delivery.full)
        self._receive_items()
        received = self._take_message()
        self.snapshots.note_changes(received)
        while received and is_behind:
            received = self._take_message()

    def _take_message(self) -> bool:
        """Handles the next message of a worker; returns False where there is none."""
        full = self.delivery.full
        seconds = 0.0 if full else self.snapshots.wait_seconds(_TICK_SECONDS)
        received = self.workers.receive(seconds, full)
        if received is None:
            return False
        shard_key, message = received
        if isinstance(message, ReaderEnded | None):
            self.delivery.submit_end(shard_key, message)
        elif (stream := self.streams.get(shard_key.stream)) is not None:  # else it was removed
            self._on_message(stream, stream.shard(shard_key), message)
        return True

    def _receive_items(self) -> None:
        """Submits a page of items; handlers process all of it before the next change."""
        with self.shutdown.may_interrupt(), self.heartbeat.during(Phase.READING_ITEMS):
            found = self.snapshots.next(self.streams, self.delivery)
        if found is not None:
            snapshot, page = found
            self.delivery.submit(snapshot.shard_key, snapshot.shard, page, then_drain=True)
            self.saver.mark_dirty()  # the place in the items, also behind an empty page

    def _deliver(self) -> None:
        """Delivers records for a moment, and handles the ends of shards behind them."""
        for shard_key, message in self.delivery.deliver():
            if (stream := self.streams.get(shard_key.stream)) is not None:
                if message is None:
                    self._on_reading_ended(stream, stream.shard(shard_key))
                else:
                    self._on_message(stream, stream.shard(shard_key), message)

    def _save(self) -> None:
        """Saves the checkpoint and updates the displays, where that is due."""
        self.saver.save_if_due()
        self._display()

    def _reap(self) -> None:
        """Removes streams that have ended, or continues with the table's new stream."""
        if self.shutdown.must_stop():
            return
        for stream in self.streams:
            match stream.find_end():
                case StreamEnd(successor=str() as successor):
                    self._move_on(stream, successor)
                case StreamEnd():
                    self.streams.remove(stream)

    def _is_done(self) -> bool:
        """True once nothing more can come, or nothing can be read."""
        self._is_hopeless = self.streams.are_refused_for(TIMING.hopeless_seconds, self.stats)
        if self.delivery.is_complete or self._is_hopeless:
            return True
        return not self.streams and (self.options.is_bounded or not self.streams.may_join)

    @property
    def _unread_reason(self) -> str:
        """Why no read has succeeded, or no more of them; "" where that is not so."""
        if self.stats.has_read(self.totals):
            return f"nothing more could be read: {self.streams.rest_text}" * self._is_hopeless
        return self.streams.last_refusal and f"nothing could be read: {self.streams.last_refusal}"

    # The beginning and the end

    def _prepare(self) -> None:
        """Waits for the checkpoint's lease, resumes, and makes the first listings."""
        if self.store is not None:
            with self.heartbeat.during(Phase.STANDING_BY):
                self.streams.check_checkpoint(self.store.peek(), self.store.name)
                if self.store.stand_by(self._show_and_check_stop):
                    self.streams.resume(self.store.load(), self.store.name)
        with self.shutdown.asking_service():
            tail = self.streams.start_tail(self.options, self._beat_and_check_stop)
            if tail is not None:
                self.progress.limit_to(tail.found, tail.is_within)
        self._list_new_streams()
        self.heartbeat.enter(Phase.WATCHING)
        self._reap()

    def _beat_and_check_stop(self) -> bool:
        """Shows a sign of life between a repeated call's attempts; returns True once to stop."""
        self.heartbeat.try_again()
        return self.shutdown.must_stop()

    def _show_and_check_stop(self) -> bool:
        """Updates the displays, too, during the wait for a lease; returns True once to stop."""
        self._display()
        return self._beat_and_check_stop()

    def _end(self) -> None:
        self.totals.stopped = self.shutdown.requested
        if self.totals.stopped and (left := self.stats.queued):
            what = f"{counted(left, 'record')} left unread"
            logger.info(f"Stopping: {what}; with a checkpoint, the next watch begins there")
        self.workers.kill()
        with ExitStack() as last:  # each of these, in the reverse order, whichever fails
            last.callback(self._display, at_once=True)
            last.callback(self.saver.save_last)
            last.callback(self._count_failures)
            self.delivery.close()

    def _count_failures(self) -> None:
        self.totals.failures = self.dispatcher.failures
        self.totals.dead_letters = self.dispatcher.given_up.dead_letter_count
        self.totals.unhandled = self.dispatcher.unhandled

    # Streams

    def _start_stream(self, stream: WatchedStream) -> bool:
        """Makes a stream's first listing; returns False where its answer is still to come."""
        arn = stream.arn
        self.heartbeat.beat()
        try:
            stream.start()
        except NoAnswerYetError:
            return False
        except StreamError as error:
            self.streams.on_error(stream, error)
        else:
            self.streams.on_recovered(stream)
        finally:
            self._note_move(stream, arn)
        return True

    def _move_on(self, stream: WatchedStream, successor: str) -> None:
        arn = stream.arn
        try:
            stream.move_on(successor)
        finally:
            self._note_move(stream, arn)

    def _note_move(self, stream: WatchedStream, arn: str) -> None:
        """Notes that the table's next stream has replaced the one with this ARN."""
        if stream.arn != arn:
            self.streams.on_moved(stream, arn)
            self.saver.mark_dirty()

    def _refresh(self, stream: WatchedStream) -> None:
        """Lists a stream's shards where that is due, and starts those that may be read."""
        if self.streams.is_paused(stream):
            return
        listing = stream.coordinator.listing
        if stream.is_due:
            self.saver.save_before_waiting()
        try:
            stream.refresh()
        except StreamError as error:
            return self.streams.on_error(stream, error)
        if stream.coordinator.listing is not listing:
            self.streams.on_listed(stream, self.stats)
            for shard_key in stream.take_newly_closed():
                self.workers.on_shard_closed(shard_key)
        ready = stream.take_ready_shards()
        for shard in ready:
            self._start_shard(stream, shard)
        self.totals.shards += len(ready)

    # Shards and their workers

    def _start_shard(self, stream: WatchedStream, shard: TrackedShard) -> None:
        self.workers.start(stream.assignment(shard), self.stats.counters(stream.shard_key(shard)))

    def _on_message(self, stream: WatchedStream, shard: TrackedShard, message: Message) -> None:
        """Handles a worker's message about a shard, as the coordinator interprets it."""
        shard_key = stream.shard_key(shard)
        try:
            meaning = stream.coordinator.on_message(shard, message)
        except StreamError as error:
            return self.streams.on_error(stream, error, reading=True)
        match meaning:
            case Page():
                self.workers.on_page(shard_key)
                self.delivery.submit(shard_key, shard, meaning)
            case IteratorGranted():
                self.saver.mark_dirty()
                self.workers.on_started(shard_key)
                self.streams.on_reader_started(stream)
                self.streams.log_if_all_reading(stream, self.workers)
            case Loss() | ShardEnd.LEFT_OPEN:
                self.saver.mark_dirty()
            case ShardEnd.CLOSED:
                self.saver.mark_dirty()
                self._finish(stream, shard)
            case ReadAgain(seconds):
                self.workers.on_read_again(shard_key, seconds)
            case ReaderCrashed():
                self.streams.on_reader_crashed(stream, shard, meaning)

    def _finish(self, stream: WatchedStream, shard: TrackedShard) -> None:
        shard_key = stream.shard_key(shard)
        self.dispatcher.drain(shard_key)
        if self.dispatcher.first_pending(shard_key):  # the watch ends before its children's turn
            return
        stream.coordinator.finish(shard)
        about = stream.coordinator.about(shard)
        logger.log(stream.shard_level, f"Finished shard: {shard.id}", extra=about)

    def _on_reading_ended(self, stream: WatchedStream, shard: TrackedShard) -> None:
        """Handles the end of a shard's reader; the records that it sent are delivered by now."""
        shard_key = stream.shard_key(shard)
        given_up = stream.retry.failures and self.options.is_bounded
        for_good = given_up or shard.status in (ShardStatus.FINISHED, ShardStatus.LEFT_OPEN)
        self.workers.on_ended(shard_key, restart=not (for_good or self.shutdown.requested))
        self.stats.reading_ended(shard_key, for_good=for_good)
        if for_good or self.shutdown.requested:
            stream.assigned.discard(shard.id)
        else:
            stream.coordinator.restart(shard)

    # The checkpoint, and the figures

    def save_before_retry(self) -> None:
        """Saves the positions of delivered records, which can't wait for a handler's retries."""
        self.heartbeat.try_again()
        self.delivery.move_positions()
        self.saver.mark_dirty()
        self.saver.save_before_waiting()
        self._display()

    def go_on_beside_handlers(self) -> None:
        """Does what is due during the wait for a retry or the last records: a save, displays."""
        self.heartbeat.try_again()
        self.health.excuse_loop()
        self.saver.save_if_due()
        self._display()

    def _display(self, *, at_once: bool = False) -> None:
        """Passes the figures to the displays, if an update is due."""
        self.totals.losses, self.totals.restarts = self.streams.loss_count, self.workers.deaths
        self.totals.saved = self.saver.error is None
        now = self.clock.monotonic()
        if not self.displays or not (at_once or now >= self._display_due):
            return
        if threading.current_thread() is not self._thread:  # a handler's, which awaits the lease
            return
        self._display_due = now + _DISPLAY_SECONDS
        stands_by = self.heartbeat.phase is Phase.STANDING_BY
        stats = self.stats.collect(
            self.totals,
            self.streams.stats(),
            self.dispatcher,
            self.health.check(),
            lease_state(self.store, stands_by=stands_by),
        )
        for display in self.displays:
            display.show(stats)
