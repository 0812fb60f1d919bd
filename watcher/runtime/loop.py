"""THE loop: list shards, start a process for each, deliver their records, save the checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
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
    Finished,
    Loss,
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
        self._streams = streams
        self._settings = settings
        self._workers = workers
        self._store = store
        self._displays = DisplayThrottle(displays, clock)
        self._clock = clock
        self._pulse = pulse or Heartbeat(clock=clock)
        self._snapshots = TableSnapshots(clock)
        self._keeper = CheckpointSaver(
            store, partial(streams.tokens, self._unsettled), clock, self._pulse
        )
        self.ending = Shutdown(settings.stop_timeout, clock, settings.stop_requested)
        check = None if store is None else store.check
        failing = settings.failure_policy, self.ending, clock, self._before_retry, check
        self._dispatcher = Dispatcher(observers, *failing, in_threads=hands is not None)
        self._figures = StatsCollector(
            settings.poll_max_seconds, workers.board, clock, settings.price
        )
        limits = settings.on_wire, settings.max_records
        given = self._dispatcher, self._figures, self.totals, *limits, clock, self._pulse
        lanes = hands and ConcurrentDelivery(hands, workers, self._keeper.moved, *given)
        self._handover = lanes or SequentialDelivery(*given)
        parts = streams, self._figures, workers, self._handover, self._keeper, store, self.ending
        self._checks = Checks(Parts(*parts), settings.poll_max_seconds, clock)

    def stop(self) -> None:
        """End the watch: the record in hand is the last one. Safe in a signal handler."""
        self.ending.begin()
        self._pulse.end()
        self._workers.queue.wake()

    def run(self) -> Totals:
        """Watch. Raises StreamError, HandlerError, DataLossError, UsageError (checkpoint)."""
        try:
            self._begin()
            while not (self.ending.look() or self._is_done()):
                self._keep_house()
                self._take_items()
                self._snapshots.changes_come = self._receive(self._snapshots.pause(_TICK_SECONDS))
            # What was read by now and is not in hand can be read again.
            self._workers.stop()
            self._handover.rest()
            self._dispatcher.settle()
        except OutputClosed:
            pass
        except Overdue:
            logger.warning("Broken off: an observer, or a write, took longer than --stop-timeout")
        finally:
            self._end()
        self._keeper.raise_error()
        self._streams.raise_error(self.totals)
        if reason := self._why_unread():
            raise StreamError(f"nothing could be read: {reason}")
        return self.totals

    def _keep_house(self) -> None:
        """Whatever is due; also between two records where observers are slow."""
        self._pulse.beat()
        self._handover.tick()
        if not self.ending.look():
            self._streams.let_join()
            self._begin_streams()
            for stream in self._streams:
                self._attend(stream)
            self._restart_shards()
        self._keeper.save_if_due()
        self._display()

    def _take_items(self) -> None:
        """A page of a table's items; no change is taken before all of it is settled."""
        with self.ending.working(), self._pulse.during(Phase.READING_ITEMS):
            found = self._snapshots.next(self._streams, self._handover)
        if found is not None:
            stream, snapshot, page = found
            self._deliver(stream, snapshot.shard, page)
            self._handover.settle(snapshot.origin)

    def _receive(self, seconds: float = _TICK_SECONDS) -> bool:
        """Take in what one of the workers says, if one does."""
        if (received := self._handover.receive(self._workers.receive, seconds)) is None:
            return False
        origin, message = received
        if stream := self._streams.get(origin.stream):  # else it has left
            self._hear(stream, stream.roster.lineage.shards[origin.shard_id], message)
        return True

    # The beginning and the end

    def _begin(self) -> None:
        if self._store is not None:
            with self._pulse.during(Phase.STANDING_BY):
                self._streams.refuse(self._store.peek(), self._store.name)
                if self._store.stand_by(self._look_and_show):
                    self._streams.resume(self._store.load(), self._store.name)
        try:
            with self.ending.asking():
                self._handover.end_with(self._streams.at_tail(self._settings, self._look_again))
            self._begin_streams()
            self._pulse.begin(Phase.WATCHING)
        except Overdue:
            logger.warning("The service had not answered by then")

    def _look_again(self) -> bool:
        """Whether the watch is to end; for what attempts the same again and again meanwhile."""
        self._pulse.try_again()
        return self.ending.look()

    def _look_and_show(self) -> bool:
        """The same; the loop waits in here for a lease."""
        if not self._handover.at_work:
            self._display()
        return self._look_again()

    def _begin_streams(self) -> None:
        """Each as soon as it is listed: "latest" of one is not to wait for the listings of all."""
        for stream in self._streams.to_begin():
            if self.ending.look():
                return
            with self.ending.asking():
                self._begin_stream(stream)
            if not (stream.has_begun or stream.failures):
                continue  # it is asked for aside
            self._streams.begun(stream)
            with self.ending.working():
                self._attend(stream)
            if stream.has_begun:
                self._keeper.begin()
            self._streams.say_if_watched(stream, self._workers)

    def _begin_stream(self, stream: WatchedStream) -> None:
        arn = stream.arn
        self._pulse.beat()
        try:
            stream.begin()
        except NoAnswerYetError:
            pass
        except StreamError as error:
            self._streams.in_trouble(stream, error)
        else:
            self._streams.works(stream)
            self._dispatcher.begin(stream.arn)
        finally:
            if stream.arn != arn:
                self._moved_on(arn, stream)

    def _is_done(self) -> bool:
        for stream in self._streams:
            if self._is_over(stream):
                self._streams.leave(stream)
        is_hopeless = self._streams.were_refused(_HOPELESS_SECONDS) and self._why_unread()
        if self._handover.is_complete or is_hopeless:
            return True
        return not self._streams and not (self._settings.follows and self._streams.awaits_more)

    def _why_unread(self) -> str:
        """Why not a single read was answered; empty where one was, or none was refused."""
        return "" if self._figures.has_read(self.totals) else self._streams.last_refusal

    def _is_over(self, stream: WatchedStream) -> bool:
        """Whether nothing more comes of it; from a table's old stream it goes on to the new one."""
        arn, new = stream.arn, stream.after()
        if new:
            self._dispatcher.begin(new)
            try:
                stream.move_on(new)
            finally:
                self._moved_on(arn, stream)
        return new == ""

    def _moved_on(self, arn: str, stream: WatchedStream) -> None:
        self._streams.renamed(arn, stream)
        self._keeper.moved()

    def _end(self) -> None:
        self.totals.stopped = self.ending.has_begun
        if self.totals.stopped and (left := self._handover.left + self._workers.unread()):
            what = f"{counted(left, 'record')} left unread"
            logger.info(f"Stopping: {what}; with a checkpoint, the next watch begins there")
        self._workers.end()
        try:
            self._handover.give_up()
            self._dispatcher.close()
        finally:
            self.totals.failures = self._dispatcher.failures
            self.totals.bill = self._figures.bill()
            self._display(at_once=True)
            self._keeper.end()

    # Shards and their processes

    def _attend(self, stream: WatchedStream) -> None:
        if self._streams.rests(stream):
            return
        if stream.failures and not stream.has_begun:
            return self._begin_stream(stream)
        listing = stream.roster.listing
        try:
            stream.attend(before=self._keeper.save_before_waiting)
        except StreamError as error:
            return self._streams.in_trouble(stream, error)
        if stream.roster.listing is not listing:
            self._streams.listed(stream, self._figures)
            for origin in stream.newly_closed():
                self._workers.close(origin)
        begun = stream.to_begin()
        for shard in begun:
            self._start(stream, shard)
        self.totals.shards += len(begun)

    def _restart_shards(self) -> None:
        for origin in self._workers.to_restart():
            stream = self._streams.get(origin.stream)
            if stream is not None and not self._streams.rests(stream):
                self._start(stream, stream.roster.lineage.shards[origin.shard_id])
                self.totals.restarts += 1

    def _start(self, stream: WatchedStream, shard: TrackedShard) -> None:
        self._workers.start(stream.work(shard), self._figures.tally(stream.origin(shard)))

    def _hear(self, stream: WatchedStream, shard: TrackedShard, message: Message | None) -> None:
        match message:
            case Page():
                self._workers.delivers(stream.origin(shard))
                shard.comes()
                self._deliver(stream, shard, message)
            case Started(moment):
                self._started(stream, shard, moment)
            case Finished():
                self._finished(stream, shard, message)
            case Loss():
                self._keeper.moved()
                stream.losses.heard(shard, message)
            case Retrying() | Notice() | Failed():
                self._streams.hear(stream, shard, message)
            case None:
                self._reading_ended(stream, shard)

    def _deliver(self, stream: WatchedStream, shard: TrackedShard, page: Page) -> None:
        try:
            for _ in self._handover.deliver(stream.arn, shard, page):
                self._keeper.moved()
                self._keep_house()
        finally:
            self._keeper.moved()

    def _started(self, stream: WatchedStream, shard: TrackedShard, moment: datetime) -> None:
        stream.roster.started(shard, moment)
        self._keeper.moved()
        self._workers.reads(stream.origin(shard))
        self._streams.reads(stream)
        self._streams.say_if_watched(stream, self._workers)

    def _finished(self, stream: WatchedStream, shard: TrackedShard, message: Finished) -> None:
        self._keeper.moved()
        if stream.roster.meaning(shard, message) is not ShardEnd.CLOSED:
            return
        origin = stream.origin(shard)
        self._dispatcher.settle(origin)
        if self._dispatcher.unsettled(origin):  # the watch ends before its children's turn
            return
        stream.roster.finish(shard)
        logger.info(f"Finished shard: {shard.id}", extra=stream.roster.about(shard))

    def _reading_ended(self, stream: WatchedStream, shard: TrackedShard) -> None:
        origin = stream.origin(shard)
        given_up = stream.failures and not self._settings.follows
        for_good = given_up or shard.status in (ShardStatus.FINISHED, ShardStatus.CAUGHT_UP)
        self._workers.ended(origin, for_good=for_good or self.ending.has_begun)
        self._figures.reading_ended(origin, for_good=for_good)
        if for_good or self.ending.has_begun:
            stream.reading.discard(shard.id)
        else:
            stream.roster.begin_again(shard)

    # The checkpoint, and the figures

    def _unsettled(self, origin: ShardKey) -> str | None:
        number = self._dispatcher.unsettled(origin)
        if number is not None:
            self._keeper.moved()  # once it is settled, without a further record
        return number

    def _before_retry(self) -> None:
        """What was delivered must not grow old unsaved while an observer is tried again."""
        self._pulse.try_again()
        self._handover.move()
        self._keeper.moved()
        self._keeper.save_before_waiting()
        self._display()

    def _display(self, *, at_once: bool = False) -> None:
        self.totals.losses, self.totals.saved = self._streams.losses, self._keeper.error is None
        self._displays.show(self._snapshot, at_once=at_once)

    def _snapshot(self) -> WatchStats:
        about = self._streams.standings(), self._dispatcher, self._checks.health()
        return self._figures.snapshot(self.totals, *about)
