"""Composes a watch: makes every collaborator, and passes them on by keyword."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery import output
from watcher.delivery.concurrent import (
    ConcurrentDelivery,
    HandlerPool,
)
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.handler import Handler
from watcher.delivery.progress import Progress
from watcher.delivery.protocol import Delivery
from watcher.delivery.sequential import SequentialDelivery
from watcher.observability.exporter import exporting
from watcher.observability.heartbeat import LATE_SECONDS, Heartbeat
from watcher.observability.watch_stats import Display, Totals
from watcher.options import WatchOptions
from watcher.runtime.health import HealthChecker
from watcher.runtime.loop import Manager
from watcher.runtime.processes import WorkerStarter
from watcher.runtime.protocol import MessageQueue
from watcher.runtime.resolve_streams import resolve
from watcher.runtime.stats import StatsCollector
from watcher.runtime.table_snapshots import TableSnapshots
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.shutdown import Shutdown
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.stores.open_store import open_store
from watcher.stores.protocol import Store

logger = logging.getLogger("watcher")


@contextmanager
def open_watch(
    options: WatchOptions, *, named: str | Iterable[str], handlers: Sequence[Handler]
) -> Iterator[Manager]:
    """Composes a watch of the named streams, and closes everything at the block's end.

    A second signal, which ends the process, closes the displays first. Raises UsageError,
    StreamError.
    """
    with ExitStack() as stack:
        displays = [] if options.display is None else [options.display]
        heartbeat = Heartbeat.shared()
        if options.metrics_port is not None:
            exporter = exporting(options.metrics_port, heartbeat)
            displays.append(stack.enter_context(exporter))
        store = None
        if options.checkpoint is not None:
            opened = open_store(options.checkpoint, options.connection, named)
            store = stack.enter_context(closing(opened))
        pool: HandlerPool | None = None
        if options.concurrency is not None and options.concurrency > 1:
            pool = HandlerPool(options.concurrency)
        queue = MessageQueue()
        start = WorkerStarter(
            options.connection,
            options.record_filter,
            beside_threads=pool is not None,
            in_threads=options.workers == "threads",
        )
        stack.callback(start.close)
        manager = build_manager(
            options,
            streams=resolve(options.streams(named), options, on_answer=queue.wake),
            handlers=handlers,
            workers=Workers(queue, start, processes=options.processes),
            store=store,
            displays=displays,
            pool=pool,
            heartbeat=heartbeat,
        )
        at_once = [each.close for each in displays]
        stack.enter_context(output.whole())
        stack.enter_context(manager.shutdown.handle_signals(manager.stop, at_once))
        yield manager
        manager.progress.log_if_none_matches(at_end=True)
        unused = [] if options.redaction is None else options.redaction.unused
        if unused and manager.totals.records:
            logger.info(f"Found nothing to redact at {', '.join(unused)}")


def build_manager(
    options: WatchOptions,
    *,
    streams: WatchedStreams,
    handlers: Sequence[Handler],
    workers: Workers,
    store: Store | None = None,
    displays: Sequence[Display] = (),
    pool: HandlerPool | None = None,
    heartbeat: Heartbeat | None = None,
    clock: Clock = CLOCK,
    late_seconds: float = LATE_SECONDS,
) -> Manager:
    """Returns the loop over these streams and workers, with its collaborators.

    With a `pool`, handlers of several shards run at the same time. Raises UsageError for a
    dead-letter file that can't be written.
    """
    heartbeat = heartbeat or Heartbeat(clock=clock)
    totals = Totals()
    stats = StatsCollector(
        options.poll_max_seconds, workers.counters, clock, bounded=options.is_bounded
    )
    dispatcher = Dispatcher(
        handlers,
        options.failure_policy,
        shutdown=Shutdown(options.stop_timeout, options.stop_requested, clock),
        clock=clock,
        check=None if store is None else store.raise_unless_held,
        # Saving and reporting go on while the loop's thread waits for a handler.
        before_retry=lambda: manager.save_before_retry(),
        during_wait=lambda: manager.go_on_beside_handlers(),
        in_threads=pool is not None,
    )
    saver = _saver(store, streams, dispatcher, heartbeat, clock)
    progress = _progress(options, totals=totals, stats=stats, saver=saver, clock=clock)
    delivery = _delivery(pool, dispatcher, progress, heartbeat, workers=workers, clock=clock)
    health = HealthChecker(
        streams=streams,
        stats=stats,
        workers=workers,
        delivery=delivery,
        saver=saver,
        shutdown=dispatcher.shutdown,
        poll_max_seconds=options.poll_max_seconds,
        clock=clock,
        late_seconds=late_seconds,
    )
    manager = Manager(
        options=options,
        streams=streams,
        workers=workers,
        dispatcher=dispatcher,
        delivery=delivery,
        progress=progress,
        snapshots=TableSnapshots(clock),
        saver=saver,
        store=store,
        stats=stats,
        displays=displays,
        health=health,
        shutdown=dispatcher.shutdown,
        heartbeat=heartbeat,
        totals=totals,
        clock=clock,
    )
    return manager


def _saver(
    store: Store | None,
    streams: WatchedStreams,
    dispatcher: Dispatcher,
    heartbeat: Heartbeat,
    clock: Clock,
) -> CheckpointSaver:
    return CheckpointSaver(
        store=store,
        tokens=partial(streams.tokens, dispatcher),
        has_pending=lambda: dispatcher.pending_count > 0,
        heartbeat=heartbeat,
        clock=clock,
    )


def _progress(
    options: WatchOptions,
    *,
    totals: Totals,
    stats: StatsCollector,
    saver: CheckpointSaver,
    clock: Clock,
) -> Progress:
    """Returns the progress, which filters and counts records, and moves the positions."""

    def moved(shard_key: ShardKey, created: float | None, totals: Totals) -> None:
        stats.moved(shard_key, created, totals)
        saver.mark_dirty()

    return Progress(
        totals=totals,
        moved=moved,
        wire_filter=options.wire_filter,
        names=frozenset() if options.record_filter is None else options.record_filter.names,
        redaction=options.redaction,
        max_records=options.max_records,
        clock=clock,
    )


def _delivery(
    pool: HandlerPool | None,
    dispatcher: Dispatcher,
    progress: Progress,
    heartbeat: Heartbeat,
    *,
    workers: Workers,
    clock: Clock,
) -> Delivery:
    """Returns sequential delivery in the loop's thread, or, with a pool, concurrent delivery."""
    if pool is None:
        return SequentialDelivery(
            dispatcher=dispatcher, progress=progress, heartbeat=heartbeat, clock=clock
        )
    return ConcurrentDelivery(
        pool=pool,
        dispatcher=dispatcher,
        progress=progress,
        heartbeat=heartbeat,
        pause_reading=workers.pause_reading,
        wake_loop=workers.queue.wake,
        clock=clock,
    )
