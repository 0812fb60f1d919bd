"""Puts a watch together: every collaborator is made here, and handed on by keyword."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from watcher.aws.discovery import WantedStreams
from watcher.clock import CLOCK, Clock
from watcher.delivery.concurrent import ConcurrentDelivery
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.handler import Handler
from watcher.delivery.handler_pool import HandlerPool, ThreadHandlerPool
from watcher.delivery.progress import Progress
from watcher.delivery.protocol import Delivery
from watcher.delivery.sequential import SequentialDelivery
from watcher.delivery.shutdown import Shutdown
from watcher.observability.exporter import outlets
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Display, Totals
from watcher.runtime.find_streams import find
from watcher.runtime.health import HealthChecker, HealthTiming
from watcher.runtime.loop import Manager
from watcher.runtime.processes import ProcessStarter, raised_open_files
from watcher.runtime.protocol import Queue
from watcher.runtime.settings import Settings
from watcher.runtime.stats import DisplayThrottle, StatsCollector
from watcher.runtime.table_snapshots import TableSnapshots
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.stores.open_store import open_store
from watcher.stores.protocol import Positions, Store


@contextmanager
def open_watch(
    settings: Settings,
    *,
    wanted: WantedStreams,
    handlers: Sequence[Handler],
    checkpoint: str | os.PathLike[str] | Positions | None = None,
    checkpoint_stream: object = None,
    processes: int,
    concurrency: int,
    strict: bool = False,
    yes: bool = False,
    display: Display | None = None,
    metrics_port: str | int | None = None,
) -> Iterator[Manager]:
    """A watch of real streams with real processes; all that it opens is closed behind it.

    A table of positions is by default in the region of `checkpoint_stream`. Raises UsageError,
    StreamError.
    """
    with ExitStack() as stack:
        stack.enter_context(raised_open_files())
        shown = outlets(display, metrics_port, settings.stop_timeout)
        displays, heartbeat = stack.enter_context(shown)
        store = None
        if checkpoint is not None:
            opened = open_store(checkpoint, settings.connection, checkpoint_stream)
            store = stack.enter_context(closing(opened))
        queue = Queue()
        streams = find(wanted, settings, strict=strict, yes=yes, tell=queue.wake)
        pool = ThreadHandlerPool(concurrency) if concurrency > 1 else None
        start_process = ProcessStarter(settings.wanted, with_threads=pool is not None)
        yield build_manager(
            settings,
            streams=streams,
            handlers=handlers,
            workers=Workers(queue, start_process, processes=processes),
            store=store,
            displays=displays,
            pool=pool,
            heartbeat=heartbeat,
        )


def build_manager(
    settings: Settings,
    *,
    streams: WatchedStreams,
    handlers: Sequence[Handler],
    workers: Workers,
    store: Store | None = None,
    displays: Sequence[Display] = (),
    pool: HandlerPool | None = None,
    heartbeat: Heartbeat | None = None,
    clock: Clock = CLOCK,
    health_timing: HealthTiming | None = None,
) -> Manager:
    """The loop over these streams and workers, with its collaborators.

    With a `pool`, several shards' records are handled at once. Raises UsageError for a file of dead
    letters that can't be written.
    """
    heartbeat = heartbeat or Heartbeat(clock=clock)
    totals = Totals()
    stats = StatsCollector(settings.poll_max, workers.board, clock, settings.price)
    shutdown = Shutdown(settings.stop_timeout, stop_requested=settings.asked_to_stop, clock=clock)
    dispatcher = Dispatcher(
        handlers,
        settings.on_error,
        shutdown=shutdown,
        clock=clock,
        check=None if store is None else store.check,
        in_threads=pool is not None,
    )
    saver = CheckpointSaver(
        store=store,
        tokens=partial(streams.tokens, dispatcher.pending),
        has_pending=lambda: dispatcher.pending_count > 0,
        heartbeat=heartbeat,
        clock=clock,
    )
    progress = Progress(
        totals=totals,
        stats=stats,
        mark_dirty=saver.mark_dirty,
        wanted=settings.on_wire,
        max_records=settings.max_records,
    )
    delivery = build_delivery(
        pool,
        dispatcher=dispatcher,
        progress=progress,
        heartbeat=heartbeat,
        workers=workers,
        clock=clock,
    )
    health = HealthChecker(
        streams=streams,
        stats=stats,
        workers=workers,
        delivery=delivery,
        saver=saver,
        store=store,
        shutdown=shutdown,
        poll_max_seconds=settings.poll_max,
        clock=clock,
        timing=health_timing,
    )
    manager = Manager(
        settings=settings,
        streams=streams,
        workers=workers,
        dispatcher=dispatcher,
        delivery=delivery,
        snapshots=TableSnapshots(clock),
        saver=saver,
        store=store,
        stats=stats,
        displays=DisplayThrottle(displays, clock),
        health=health,
        shutdown=shutdown,
        heartbeat=heartbeat,
        totals=totals,
    )
    dispatcher.before_retry = manager.save_before_retry
    return manager


def build_delivery(
    pool: HandlerPool | None,
    *,
    dispatcher: Dispatcher,
    progress: Progress,
    heartbeat: Heartbeat,
    workers: Workers,
    clock: Clock,
) -> Delivery:
    """One record after the other in the loop's thread, or, with a pool, several shards at once."""
    if pool is None:
        return SequentialDelivery(
            dispatcher=dispatcher, progress=progress, heartbeat=heartbeat, clock=clock
        )
    return ConcurrentDelivery(
        pool=pool,
        dispatcher=dispatcher,
        progress=progress,
        heartbeat=heartbeat,
        pause_reading=workers.rest,
        wake_loop=workers.queue.wake,
        clock=clock,
    )
