"""`watch()`: the library's way in."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from watcher import options
from watcher.declared import takes_options
from watcher.options import WatchOptions

# What it takes to watch is imported by the calls: the command line reads the options alone for its
# help and for a TAB, and boto3 would be three quarters of their time.
if TYPE_CHECKING:
    from watcher.delivery.handler import Handler
    from watcher.observability.watch_stats import Totals
    from watcher.records.record import Record


@takes_options(WatchOptions)
def watch(
    stream: str | Iterable[str],
    observers: "Iterable[Callable[[Record], Any] | Handler | ModuleType | str]",
    how: WatchOptions,
) -> "Totals":
    """Calls each handler with every change of a table, in order, until stopped.

    `stream` is a stream ARN, a table ARN, a table name, a glob of table names, or several of
    them (see docs/tables.md); `observers` are the handlers: a callable that takes a
    Record, a module with `handle`, or the name of a handler such as "print_summary". The
    parameters are the command line's options of the same names. In the main thread, SIGINT, SIGTERM
    and SIGHUP end the watch: the record in hand is delivered, within `stop_timeout` seconds, and
    nothing behind it; what is left is said, and the checkpoint saved. In every thread,
    `stop` does, once it is set: within a fifth of a second, unless a handler keeps it longer (only
    in the main thread can one be broken off). `display` is shown the figures of the watch a few
    times a second, as the command line's status line is.
    `checkpoint` may also be an object with `load()` and `save(token)` (see docs/positions.md).

    Returns the totals. Raises StreamError (the stream can't be used), UsageError (an option or a
    checkpoint can't), HandlerError (a handler failed under `stop`), DataLossError,
    LeaseLostError (another watch has taken over).
    """
    options.refuse_in_child()
    from watcher.build import open_watch

    handlers = options.handlers(observers)
    with open_watch(how, named=stream, handlers=handlers) as manager:
        return manager.run()
