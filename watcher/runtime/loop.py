"""THE loop: list shards, start a process for each, deliver their records, save the checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.concurrent import ConcurrentDelivery, HandlerPool
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.handler import Handler
from watcher.delivery.output import OutputClosed
from watcher.delivery.sequential import SequentialDelivery
from watcher.delivery.shutdown import Overdue, Shutdown
from watcher.errors import NoAnswerYetError, StreamError
from watcher.formatting.text import counted
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.observability.watch_stats import Display, Totals, WatchStats
from watcher.options import WatchOptions
from watcher.runtime.health import Checks, Parts
from watcher.runtime.stats import DisplayThrottle, StatsCollector
from watcher.runtime.table_snapshots import TableSnapshots
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.stores.checkpoint_saver import CheckpointSaver, Store
from watcher.streams.coordinator import ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.messages import (
    Failed,
    Message,
    Notice,
    Page,
    Retrying,
    Started,
)

logger = logging.getLogger("watcher")

_TICK_SECONDS = 0.2
_HOPELESS_SECONDS = 60.0


class Manager:
    """Watches streams until it is told to stop, or until there is nothing more to come."""

    def __init__(
        self,
        streams: WatchedStreams,
        observers: Sequence[Handler],
        settings: WatchOptions,
        *,
        workers: Workers,
        store: Store | None = None,
        displays: Sequence[Display] = (),
        clock: Clock = CLOCK,
        hands: HandlerPool | None = None,
        pulse: Heartbeat | None = None,
    ) -> None:
        self.totals = Totals()
        self.streams = streams
        self.settings = settings
        self.workers = workers
        self.store = store
        self.displays = DisplayThrottle(displays, clock)
        self.clock = clock
        self.heartbeat = pulse or Heartbeat(clock=clock)
        self.snapshots = TableSnapshots(clock)
        self.saver = CheckpointSaver(
            store, partial(streams.tokens, self._unsettled), clock, self.heartbeat
        )
        self.shutdown = Shutdown(
            settings.stop_timeout, stop_requested=settings.stop_requested, clock=clock
        )
        check = None if store is None else store.check
        failing = settings.failure_policy, self.shutdown, clock, self._before_retry, check
        self.dispatcher = Dispatcher(observers, *failing, in_threads=hands is not None)
        self.stats = StatsCollector(settings.poll_max_seconds, workers.board, clock, settings.price)
        limits = settings.on_wire, settings.max_records
        given = self.dispatcher, self.stats, self.totals, *limits, clock, self.heartbeat
        lanes = hands and ConcurrentDelivery(hands, workers, self.saver.mark_dirty, *given)
        self.delivery = lanes or SequentialDelivery(*given)
        parts = streams, self.stats, workers, self.delivery, self.saver, store, self.shutdown
        self.health = Checks(Parts(*parts), settings.poll_max_seconds, clock)

    def stop(self) -> None:
        """End the watch: the record in hand is the last one. Safe in a signal handler."""
        self.shutdown.request()
        self.heartbeat.end()
        self.workers.queue.wake()

    def run(self) -> Totals:
        """Watch. Raises StreamError, HandlerError, DataLossError, UsageError (checkpoint)."""
        try:
            self._begin()
            while not (self.shutdown.poll() or self._is_done()):
                self._keep_house()
                self._take_items()
                self.snapshots.changes_come = self._receive(self.snapshots.pause(_TICK_SECONDS))
            # What was read by now and is not in hand can be read again.
            self.workers.stop()
            self.delivery.rest()
            self.dispatcher.drain()
        except OutputClosed:
            pass
        except Overdue:
            logger.warning("Broken off: an observer, or a write, took longer than --stop-timeout")
        finally:
            self._end()
        self.saver.raise_error()
        self.streams.raise_error(self.totals)
        if reason := self._why_unread():
            raise StreamError(f"nothing could be read: {reason}")
        return self.totals

    def _keep_house(self) -> None:
        """Whatever is due; also between two records where observers are slow."""
        self.heartbeat.beat()
        self.delivery.tick()
        if not self.shutdown.poll():
            self.streams.let_join()
            self._begin_streams()
            for stream in self.streams:
                self._attend(stream)
            self._restart_shards()
        self.saver.save_if_due()
        self._display()

    def _take_items(self) -> None:
        """A page of a table's items; no change is taken before all of it is settled."""
        with self.shutdown.may_interrupt(), self.heartbeat.during(Phase.READING_ITEMS):
            found = self.snapshots.next(self.streams, self.delivery)
        if found is not None:
            stream, snapshot, page = found
            self._deliver(stream, snapshot.shard, page)
            self.delivery.settle(snapshot.origin)

    def _receive(self, seconds: float = _TICK_SECONDS) -> bool:
        """Take in what one of the workers says, if one does."""
        if (received := self.delivery.receive(self.workers.receive, seconds)) is None:
            return False
        origin, message = received
        if stream := self.streams.get(origin.stream):  # else it has left
            self._on_message(stream, stream.coordinator.lineage.shards[origin.shard_id], message)
        return True

    # The beginning and the end

    def _begin(self) -> None:
        if self.store is not None:
            with self.heartbeat.during(Phase.STANDING_BY):
                self.streams.refuse(self.store.peek(), self.store.name)
                if self.store.stand_by(self._look_and_show):
                    self.streams.resume(self.store.load(), self.store.name)
        try:
            with self.shutdown.asking_service():
                self.delivery.end_with(self.streams.at_tail(self.settings, self._look_again))
            self._begin_streams()
            self.heartbeat.begin(Phase.WATCHING)
        except Overdue:
            logger.warning("The service had not answered by then")

    def _look_again(self) -> bool:
        """Whether the watch is to end; for what attempts the same again and again meanwhile."""
        self.heartbeat.try_again()
        return self.shutdown.poll()

    def _look_and_show(self) -> bool:
        """The same; the loop waits in here for a lease."""
        if not self.delivery.at_work:
            self._display()
        return self._look_again()

    def _begin_streams(self) -> None:
        """Each as soon as it is listed: "latest" of one is not to wait for the listings of all."""
        for stream in self.streams.to_begin():
            if self.shutdown.poll():
                return
            with self.shutdown.asking_service():
                self._begin_stream(stream)
            if not (stream.has_begun or stream.failures):
                continue  # it is asked for aside
            self.streams.begun(stream)
            with self.shutdown.may_interrupt():
                self._attend(stream)
            if stream.has_begun:
                self.saver.save_first()
            self.streams.say_if_watched(stream, self.workers)

    def _begin_stream(self, stream: WatchedStream) -> None:
        arn = stream.arn
        self.heartbeat.beat()
        try:
            stream.begin()
        except NoAnswerYetError:
            pass
        except StreamError as error:
            self.streams.in_trouble(stream, error)
        else:
            self.streams.works(stream)
            self.dispatcher.start_stream(stream.arn)
        finally:
            if stream.arn != arn:
                self._moved_on(arn, stream)

    def _is_done(self) -> bool:
        for stream in self.streams:
            if self._is_over(stream):
                self.streams.leave(stream)
        is_hopeless = self.streams.were_refused(_HOPELESS_SECONDS) and self._why_unread()
        if self.delivery.is_complete or is_hopeless:
            return True
        return not self.streams and not (self.settings.follows and self.streams.awaits_more)

    def _why_unread(self) -> str:
        """Why not a single read was answered; empty where one was, or none was refused."""
        return "" if self.stats.has_read(self.totals) else self.streams.last_refusal

    def _is_over(self, stream: WatchedStream) -> bool:
        """Whether nothing more comes of it; from a table's old stream it goes on to the new one."""
        arn, new = stream.arn, stream.after()
        if new:
            self.dispatcher.start_stream(new)
            try:
                stream.move_on(new)
            finally:
                self._moved_on(arn, stream)
        return new == ""

    def _moved_on(self, arn: str, stream: WatchedStream) -> None:
        self.streams.renamed(arn, stream)
        self.saver.mark_dirty()

    def _end(self) -> None:
        self.totals.stopped = self.shutdown.requested
        if self.totals.stopped and (left := self.delivery.left + self.workers.unread()):
            what = f"{counted(left, 'record')} left unread"
            logger.info(f"Stopping: {what}; with a checkpoint, the next watch begins there")
        self.workers.end()
        try:
            self.delivery.give_up()
            self.dispatcher.close()
        finally:
            self.totals.failures = self.dispatcher.failures
            self.totals.bill = self.stats.bill()
            self._display(at_once=True)
            self.saver.save_last()

    # Shards and their processes

    def _attend(self, stream: WatchedStream) -> None:
        if self.streams.rests(stream):
            return
        if stream.failures and not stream.has_begun:
            return self._begin_stream(stream)
        listing = stream.coordinator.listing
        try:
            stream.refresh(before=self.saver.save_before_waiting)
        except StreamError as error:
            return self.streams.in_trouble(stream, error)
        if stream.coordinator.listing is not listing:
            self.streams.listed(stream, self.stats)
            for origin in stream.newly_closed():
                self.workers.close(origin)
        begun = stream.to_begin()
        for shard in begun:
            self._start(stream, shard)
        self.totals.shards += len(begun)

    def _restart_shards(self) -> None:
        for origin in self.workers.to_restart():
            stream = self.streams.get(origin.stream)
            if stream is not None and not self.streams.rests(stream):
                self._start(stream, stream.coordinator.lineage.shards[origin.shard_id])
                self.totals.restarts += 1

    def _start(self, stream: WatchedStream, shard: TrackedShard) -> None:
        self.workers.start(stream.work(shard), self.stats.tally(stream.origin(shard)))

    def _on_message(
        self, stream: WatchedStream, shard: TrackedShard, message: Message | None
    ) -> None:
        """Takes in what a worker reports of a shard; None: it reads that shard no longer."""
        origin = stream.origin(shard)
        match message:
            case None:
                return self._reading_ended(stream, shard)
            case Failed():
                return self.streams.on_failed(stream, shard, message)
            case Page():
                self.workers.delivers(origin)
            case Started():
                self.workers.reads(origin)
                self.streams.reads(stream)
        try:
            meaning = stream.coordinator.on_message(shard, message)
        except StreamError as error:
            return self.streams.in_trouble(stream, error, reading=True)
        if isinstance(meaning, Page):
            return self._deliver(stream, shard, meaning)
        if not isinstance(message, Retrying | Notice):
            self.saver.mark_dirty()
        if isinstance(message, Started):
            self.streams.say_if_watched(stream, self.workers)
        if meaning is ShardEnd.CLOSED:
            self._finish(stream, shard)

    def _deliver(self, stream: WatchedStream, shard: TrackedShard, page: Page) -> None:
        try:
            for _ in self.delivery.deliver(stream.arn, shard, page):
                self.saver.mark_dirty()
                self._keep_house()
        finally:
            self.saver.mark_dirty()

    def _finish(self, stream: WatchedStream, shard: TrackedShard) -> None:
        origin = stream.origin(shard)
        self.dispatcher.drain(origin)
        if self.dispatcher.pending(origin):  # the watch ends before its children's turn
            return
        stream.coordinator.finish(shard)
        logger.info(f"Finished shard: {shard.id}", extra=stream.coordinator.about(shard))

    def _reading_ended(self, stream: WatchedStream, shard: TrackedShard) -> None:
        origin = stream.origin(shard)
        given_up = stream.failures and not self.settings.follows
        for_good = given_up or shard.status in (ShardStatus.FINISHED, ShardStatus.CAUGHT_UP)
        self.workers.ended(origin, for_good=for_good or self.shutdown.requested)
        self.stats.reading_ended(origin, for_good=for_good)
        if for_good or self.shutdown.requested:
            stream.reading.discard(shard.id)
        else:
            stream.coordinator.restart(shard)

    # The checkpoint, and the figures

    def _unsettled(self, origin: ShardKey) -> str | None:
        number = self.dispatcher.pending(origin)
        if number is not None:
            self.saver.mark_dirty()  # once it is settled, without a further record
        return number

    def _before_retry(self) -> None:
        """What was delivered must not grow old unsaved while an observer is tried again."""
        self.heartbeat.try_again()
        self.delivery.move()
        self.saver.mark_dirty()
        self.saver.save_before_waiting()
        self._display()

    def _display(self, *, at_once: bool = False) -> None:
        self.totals.losses, self.totals.saved = self.streams.losses, self.saver.error is None
        self.displays.show(self._snapshot, at_once=at_once)

    def _snapshot(self) -> WatchStats:
        about = self.streams.standings(), self.dispatcher, self.health.check()
        return self.stats.snapshot(self.totals, *about)
