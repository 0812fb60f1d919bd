"""`watch()`: the library's way in."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from watcher import options
from watcher.declared import takes_options
from watcher.delivery import output
from watcher.options import WatchOptions

# What it takes to watch is imported by the calls: the command line reads the options alone for its
# help and for a TAB, and boto3 would be three quarters of their time.
if TYPE_CHECKING:
    from watcher.delivery.handler import Handler
    from watcher.observability.watch_stats import Totals
    from watcher.records.record import Record
    from watcher.stores.checkpoint_saver import Store


@takes_options(WatchOptions)
def watch(
    stream: str | Iterable[str],
    observers: "Iterable[Callable[[Record], Any] | Handler | ModuleType | str]",
    how: WatchOptions,
) -> "Totals":
    """Call each observer with every change of a table, in order, until stopped.

    `stream` is a stream ARN, a table ARN, a table name, a glob of table names, or several of
    them (see docs/tables.md); an observer is a callable that takes a
    Record, a module with `handle`, or the name of a handler such as "print_summary". The
    parameters are the command line's options of the same names. In the main thread, SIGINT, SIGTERM
    and SIGHUP end the watch: the record in hand is delivered, within `stop_timeout` seconds, and
    nothing behind it; what is left is said, and the checkpoint saved. In every thread,
    `stop` does, once it is set: within a fifth of a second, unless a handler keeps it longer (only
    in the main thread can one be broken off). `display` is shown the figures of the watch a few
    times a second, as the command line's status line is.
    `checkpoint` may also be an object with `load()` and `save(token)` (see docs/positions.md).

    Returns the totals. Raises StreamError (the stream can't be used), UsageError (an option or a
    checkpoint can't), HandlerError (an observer failed under `stop`), DataLossError,
    LeaseLostError (another watch has taken over).
    """
    options.refuse_in_child()
    from watcher.delivery.concurrent import ThreadHandlerPool
    from watcher.observability.exporter import outlets
    from watcher.runtime.find_streams import find
    from watcher.runtime.loop import Manager
    from watcher.runtime.processes import ProcessStarter, raised_open_files
    from watcher.runtime.protocol import Queue
    from watcher.runtime.workers import Workers

    hands = ThreadHandlerPool(how.concurrency) if how.concurrency > 1 else None
    with ExitStack() as stack:
        stack.enter_context(raised_open_files())
        displays, pulse = stack.enter_context(
            outlets(how.display, how.metrics_port, how.stop_timeout)
        )
        handlers = [options.handler(each) for each in observers]
        store = stack.enter_context(_opened(how, stream))
        queue = Queue()
        wanted = how.streams(stream)
        streams = find(wanted, how, strict=how.strict, yes=how.yes, tell=queue.wake)
        start = ProcessStarter(how.record_filter, with_threads=hands is not None)
        manager = Manager(
            streams,
            handlers,
            how,
            workers=Workers(queue, start, processes=how.processes),
            store=store,
            displays=displays,
            hands=hands,
            pulse=pulse,
        )
        at_once = [each.close for each in displays]
        with output.whole(), manager.shutdown.handle_signals(manager.stop, at_once):
            return manager.run()


def _opened(how: WatchOptions, stream: object) -> "AbstractContextManager[Store | None]":
    from watcher.stores.stores import store_of

    if how.checkpoint is None:
        return nullcontext()
    return closing(store_of(how.checkpoint, how.connection, stream))
