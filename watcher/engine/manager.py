"""THE loop: list shards, start a process for each, deliver their records, save the checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.ending import STOP_SECONDS, Ending, Overdue
from watcher.delivery.observer import Observer
from watcher.delivery.on_error import OnError
from watcher.delivery.stdout import OutputClosed
from watcher.engine.checkpoint import Keeper, Store
from watcher.engine.figures import Display, Figures, Totals
from watcher.engine.handover import Handover
from watcher.engine.next_stream import NextStream
from watcher.engine.worker import Work
from watcher.engine.workers import Workers
from watcher.errors import StreamError, StreamGoneError, UsageError
from watcher.printing.plural import counted
from watcher.reading import token as tokens
from watcher.reading.lineage import Status, Tracked
from watcher.reading.losses import Losses
from watcher.reading.messages import Failed, Finished, Loss, Message, Page, Started, Trouble
from watcher.reading.roster import End, Roster
from watcher.reading.token import Token
from watcher.record.record import Record
from watcher.service.connection import Connection
from watcher.service.model import CLOCKS_APART, Latest, Position, Service, TrimHorizon, table_of

logger = logging.getLogger("watcher")

_TICK_SECONDS = 0.2
_END_SECONDS = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch: what `watch()` and the command line let the user choose."""

    connection: Connection = Connection()
    start: Position = Latest()
    follow: bool = True
    of_table: bool = False
    """Whether to go on with the table's new stream where its stream ends."""
    max_records: int | None = None
    fail_on_data_loss: bool = False
    idle_pause: float = 1.0
    wanted: Callable[[Record], bool] | None = None
    """Whether a record goes to the observers at all; None: every one."""
    on_error: OnError = OnError()
    stop_timeout: float = STOP_SECONDS


class Manager:
    """Watches one stream until it is told to stop, or until there is nothing more to come.

    `first` is the service for the beginning, which may wait; `service` the one for the loop, which
    must not keep the delivery waiting.
    """

    def __init__(
        self,
        arn: str,
        observers: Sequence[Observer],
        settings: Settings,
        *,
        first: Service,
        service: Service,
        workers: Workers,
        store: Store | None = None,
        displays: Sequence[Display] = (),
        clock: Clock = CLOCK,
    ) -> None:
        self.totals = Totals()
        self._settings = settings
        self._service = service
        self._first = first
        self._workers = workers
        self._store = store
        self._displays = displays
        self._display_due = 0.0
        self._clock = clock
        self._losses = Losses(is_error=settings.fail_on_data_loss, clock=clock)
        self._roster = self._new_roster(arn, settings.start)
        self._keeper = Keeper(store, self._token, clock)
        self.ending = Ending(settings.stop_timeout, clock)
        self._dispatcher = Dispatcher(
            observers, settings.on_error, self.ending, clock, self._before_retry
        )
        self._figures = Figures(service.tally, settings.idle_pause, clock)
        limits = settings.wanted, settings.max_records
        self._handover = Handover(self._dispatcher, self._figures, self.totals, *limits, clock)
        self._next_stream = NextStream(settings.of_table, settings.follow, clock)

    def stop(self) -> None:
        """End the watch soon; what was read is delivered while there is time. Safe in a handler."""
        self.totals.stopped = True
        self.ending.begin()
        self._workers.queue.wake()

    def run(self) -> Totals:
        """Watch. Raises StreamError, ObserverError, DataLossError, UsageError (checkpoint)."""
        try:
            self._begin()
            while not (self.ending.has_begun or self._is_done()):
                self._keep_house()
                self._receive()
            if not self._handover.is_complete:
                self._drain()
            self._dispatcher.settle()
        except OutputClosed:
            pass
        except Overdue:
            logger.warning("Broken off: an observer, or a write, took longer than --stop-timeout")
        finally:
            self._end()
        self._keeper.raise_error()
        return self.totals

    def _keep_house(self) -> None:
        """Whatever is due; also between two records where observers are slow."""
        self._dispatcher.tick()
        if not self.ending.has_begun:
            self._service.tend()
            self._roster.attend(self._service, before=self._keeper.save_before_waiting)
            self._begin_shards()
        self._keeper.save_if_due()
        self._display()

    def _receive(self) -> bool:
        """Take in what one of the workers says, if one does."""
        received = self._workers.queue.receive(_TICK_SECONDS)
        if received is None:
            return False
        name, message = received
        self._hear(self._roster.lineage.shards[name], message)
        return True

    def _drain(self) -> None:
        """Stop the reading, and deliver what was read while there is time."""
        self._workers.stop()
        deadline = self._clock.monotonic() + _END_SECONDS
        while self._workers and not self.ending.is_late() and self._clock.monotonic() < deadline:
            self._keep_house()
            if self._receive():
                deadline = self._clock.monotonic() + _END_SECONDS

    # The beginning and the end

    def _begin(self) -> None:
        token = self._store.load() if self._store else None
        if token is not None:
            self._resume(token)
        try:
            self._roster.begin(self._first)
        except StreamGoneError as error:
            new = self._next_stream.newest(self._first, self._roster.arn) if token else None
            if new is None:
                raise
            self._move_on_to(new, str(error))
            self._roster.begin(self._first)
        roster = self._roster
        self._dispatcher.begin(roster.arn)
        if token is not None:
            roster.losses.say_if_old("checkpoint", token.saved_at, roster.listing.time)
        if not self._settings.follow:
            self._figures.until = roster.listing.time + CLOCKS_APART
        if not roster.listing.shards:
            logger.info("The stream has no shards yet", extra=roster.about())
        self._keeper.begin()

    def _new_roster(
        self, arn: str, start: Position, resumed: Iterable[Tracked] | None = None
    ) -> Roster:
        return Roster(
            arn, start, resumed, losses=self._losses, in_use=self._workers, clock=self._clock
        )

    def _resume(self, token: Token) -> None:
        assert self._store is not None
        arn = self._roster.arn
        if token.stream_arn != arn and not (
            self._settings.of_table and table_of(token.stream_arn) == table_of(arn)
        ):
            text = f"it is of {token.stream_arn}, not of {arn}; "
            text += "choose another file, or name that stream (or its table)"
            raise UsageError(text, "checkpoint", self._store.name)
        # Of a table's former stream what is left comes first; the watch then goes on to the new.
        resumed = tokens.resume(token)
        self._roster = self._new_roster(token.stream_arn, self._settings.start, resumed)
        logger.info(f"Resuming from {self._store.name}", extra=self._roster.about())

    def _is_done(self) -> bool:
        roster = self._roster
        if self._handover.is_complete:
            return True
        if self._workers or not roster.is_settled():
            return False
        if not roster.has_ended or roster.stopped_short:
            return not self._settings.follow
        ended = "gone" if roster.is_gone else "disabled"
        new = self._next_stream.after(self._service, roster.arn, ended)
        if new:
            self._move_on_to(new, f"stream {roster.arn} is {ended}")
        return new == ""

    def _move_on_to(self, arn: str, reason: str) -> None:
        """From a table's old stream to its new one, from its beginning."""
        logger.info(f"Going on with the table's new stream: {arn}")
        old = self._roster.arn
        self._roster = self._new_roster(arn, TrimHorizon(), [])
        self._dispatcher.begin(arn)
        self._keeper.moved()
        self._roster.losses.say(f"between the table's streams {old} and {arn}", reason)

    def _end(self) -> None:
        if self.totals.stopped and (left := self._handover.left + self._workers.unread()):
            what = f"{counted(left, 'record')} left unread"
            logger.info(f"Stopping: {what}; with a checkpoint, the next watch begins there")
        self._workers.end()
        try:
            self._dispatcher.close()
        finally:
            self.totals.failures = self._dispatcher.failures
            self._display(at_once=True)
            self._keeper.end()

    # Shards and their processes

    def _begin_shards(self) -> None:
        roster = self._roster
        begun = roster.to_begin()
        for shard in begun:
            logger.info(f"Starting watcher for shard: {shard.id}", extra=roster.about(shard))
        died = [roster.lineage.shards[shard_id] for shard_id in self._workers.to_restart()]
        self.totals.shards += len(begun)
        self.totals.restarts += len(died)
        for shard in (*begun, *died):
            self._workers.start(self._work(shard), self._figures.tally(shard.id))

    def _work(self, shard: Tracked) -> Work:
        return Work(
            connection=self._settings.connection,
            arn=self._roster.arn,
            shard_id=shard.id,
            position=shard.position,
            until=self._figures.until,
            idle_pause=self._settings.idle_pause,
        )

    def _hear(self, shard: Tracked, message: Message | None) -> None:
        about = self._roster.about(shard)
        match message:
            case Page():
                self._workers.delivers(shard.id)
                shard.comes()
                self._deliver(shard, message)
            case Started(moment):
                self._started(shard, moment)
            case Finished():
                self._finished(shard, message)
            case Loss():
                self._keeper.moved()
                self._roster.losses.heard(shard, message)
            case Trouble():
                self._roster.in_trouble(shard, message)
            case Failed(text, fatal):
                if fatal:
                    raise StreamError(text)
                logger.debug(text, extra=about)
                last_line = text.strip().splitlines()[-1]
                logger.warning(f"Shard {shard.id}: {last_line}", extra=about)
            case None:
                self._process_ended(shard)

    def _deliver(self, shard: Tracked, page: Page) -> None:
        try:
            for _ in self._handover.deliver(shard, page):
                self._keeper.moved()
                self._keep_house()
        finally:
            self._keeper.moved()

    def _started(self, shard: Tracked, moment: datetime) -> None:
        self._roster.started(shard, moment)
        self._keeper.moved()
        if self._workers.reads(shard.id):
            logger.info(
                f"Watching {counted(len(self._workers), 'shard')} of "
                f"{self._roster.listing.table or self._roster.arn}",
                extra=self._roster.about(),
            )

    def _finished(self, shard: Tracked, message: Finished) -> None:
        self._keeper.moved()
        if self._roster.meaning(shard, message) is not End.CLOSED:
            return
        self._dispatcher.settle(shard.id)
        if self._dispatcher.unsettled(shard.id):  # the watch ends before its children's turn
            return
        self._roster.finish(shard)
        logger.info(f"Finished shard: {shard.id}", extra=self._roster.about(shard))

    def _process_ended(self, shard: Tracked) -> None:
        for_good = shard.status in (Status.FINISHED, Status.CAUGHT_UP)
        how = self._workers.ended(shard.id, for_good=for_good or self.ending.has_begun)
        self._figures.process_ended(shard.id, for_good=for_good)
        if for_good or self.ending.has_begun:
            return
        self._roster.begin_again(shard)
        logger.warning(
            f"The process of shard {shard.id} ended ({how}); starting it again where delivery "
            "stands",
            extra=self._roster.about(shard),
        )

    # The checkpoint, and the figures

    def _token(self) -> Token:
        roster = self._roster
        token = tokens.make(roster.arn, roster.lineage, roster.listing.time, roster.began_at)
        for shard in token.shards:
            if number := self._dispatcher.unsettled(shard.shard_id):
                shard.hold(number)
                self._keeper.moved()  # once it is settled, without a further record
        return token

    def _before_retry(self) -> None:
        """What was delivered must not grow old unsaved while an observer is tried again."""
        self._handover.move()
        self._keeper.moved()
        self._keeper.save_before_waiting()

    def _display(self, *, at_once: bool = False) -> None:
        now = self._clock.monotonic()
        self.totals.losses = len(self._losses.lines)
        if not self._displays or not (at_once or now >= self._display_due):
            return
        self._display_due = now + _TICK_SECONDS
        snapshot = self._figures.snapshot(
            self.totals, self._roster.lineage, self._dispatcher, self._roster.now.timestamp()
        )
        for display in self._displays:
            display.show(snapshot)
