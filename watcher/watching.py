"""`watch()` and `Watch`: the library's entry points."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from watcher.build import open_watch
from watcher.declared import takes_fields, takes_options
from watcher.delivery.handler import Handler
from watcher.errors import UsageError, WatcherError, error_text
from watcher.observability.heartbeat import Heartbeat, assess
from watcher.observability.watch_stats import Totals, WatchStats
from watcher.options import WatchOptions, handlers_of, refuse_in_child
from watcher.records.record import Record
from watcher.shutdown import Shutdown

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

AnyHandler: TypeAlias = Callable[[Record], Any] | Handler | ModuleType | str
"""A handler as `watch()` takes it."""

logger = logging.getLogger("watcher")


@dataclass(frozen=True)
class _Parameters(WatchOptions):
    stream: str | Iterable[str]
    observers: AnyHandler | Iterable[AnyHandler]


@takes_options(_Parameters)
def watch(given: _Parameters) -> Totals:
    """Calls each handler with every change of a table, in order, until stopped.

    `stream` is a stream ARN, a table ARN, a table name, a glob of table names, or several of them
    (see docs/tables.md); `observers` are the handlers: a callable that takes a Record, a module
    with `handle`, or the name of a handler such as "print_summary". The parameters are the command
    line's options of the same names. In the main thread, SIGINT, SIGTERM and SIGHUP end the watch:
    it delivers the record in hand, within `stop_timeout` seconds, and nothing behind it; it logs
    the number of unread records, and saves the checkpoint. In every thread, a set `stop` event does
    the same, within a fifth of a second, unless a handler takes longer (only in the main thread can
    one be broken off). `display` gets the figures of the watch a few times a second, as the command
    line's status line does. `checkpoint` may also be an object with `load()` and `save(token)` (see
    docs/positions.md).

    Returns the totals. Raises StreamError (the stream can't be used), UsageError (an option or a
    checkpoint can't), HandlerError (a handler failed under `stop`), DataLossError, LeaseLostError
    (another watch has taken over).
    """
    refuse_in_child()
    if given.is_endless:
        _refuse_in_event_loop()
    handlers = handlers_of(given.observers)
    with open_watch(given, named=given.stream, handlers=handlers) as manager:
        return manager.run()


def _refuse_in_event_loop() -> None:
    """Raises UsageError in a task: its whole event loop would stand still for good."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(
            "watch() would block the running event loop: use `async with Watch(…)`, or "
            "`async for record in Stream(…)`; await asyncio.to_thread(watch, …) runs it aside"
        )


class Watch:
    """A watch in its own thread, beside the rest of a program: `with Watch(…) as watch:`.

    It takes the parameters of `watch()`. The block begins once the streams are found, and its end
    stops the watch, as `stop` does; it raises the watch's error, unless the block has raised one
    itself. `async with` does the same without blocking the event loop. Handlers are called in the
    watch's thread. The program keeps its signal handlers.
    """

    error: BaseException | None = None
    """The error that ended the watch; None while it runs, and after a normal end."""

    @takes_fields(_Parameters)
    def __init__(self, given: _Parameters) -> None:
        """Checks the options. Raises UsageError."""
        refuse_in_child()
        self._stream, self._control = given.stream, _Control(given)
        self._options = given.beside(self._control, self._control)
        self._handlers = handlers_of(given.observers)
        self._begun = threading.Event()
        self._shutdown: Shutdown | None = None
        self._heartbeat: Heartbeat | None = None
        self._totals: Totals | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        """Starts the watch. Raises StreamError, UsageError where it can't start."""
        if self._thread.ident is not None:
            raise UsageError("a Watch runs only once: create another one")
        self._thread.start()
        try:
            self._begun.wait()
        except BaseException:
            self.stop()
            raise
        if self.error is not None and self._heartbeat is None:
            self._thread.join()
            raise self.error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the watch. Raises its error, unless the block has raised one."""
        self.stop()
        self._thread.join()
        if error is None and self.error is not None:
            raise self.error

    async def __aenter__(self) -> Self:
        """See `__enter__`."""
        try:
            return await asyncio.to_thread(self.__enter__)
        except asyncio.CancelledError:
            self.stop()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `__exit__`."""
        self.stop()
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def stop(self) -> None:
        """Stops the watch, within a fifth of a second: the record in hand is the last one."""
        self._control.stop.set()
        if self._shutdown is not None:
            self._shutdown.request()

    def wait(self, seconds: float | None = None) -> Totals | None:
        """Waits for the end, or for `seconds`; returns the totals, or None while it still runs.

        Raises the watch's error.
        """
        if self._thread.ident is None:
            raise UsageError("the watch has not begun: use it in a `with` block")
        self._thread.join(seconds)
        if self._thread.is_alive():
            return None
        if self.error is not None:
            raise self.error
        return self._totals

    def stats(self) -> WatchStats:
        """Returns the newest figures, a fraction of a second old; after the end, the last ones."""
        return self._control.stats

    def collector(self) -> "Collector":
        """Returns a collector of its metrics, for the program's own Prometheus registry.

        A registry takes only one watch's: several watches' metrics would have the same names.
        """
        from watcher.observability.metrics import PrometheusCollector  # an extra

        return PrometheusCollector(self.stats)

    def health(self) -> list[str]:
        """Returns the problems, one line each, as /readyz does; empty without problems.

        The end of the watch, for any reason, is a problem.
        """
        if self._heartbeat is None and self.error is None:
            return ["the watch has not begun yet"]
        if self.error is not None or self._heartbeat is None or not self._thread.is_alive():
            return ["the watch has ended" + (f": {_error_line(self.error)}" if self.error else "")]
        return assess(self.stats(), self._heartbeat).ready

    def _run(self) -> None:
        try:
            opened = open_watch(self._options, named=self._stream, handlers=self._handlers)
            with opened as manager:
                self._heartbeat, self._shutdown = manager.heartbeat, manager.shutdown
                self._begun.set()
                self._totals = manager.run()
        except BaseException as error:
            self.error = error
            if self._heartbeat is not None:
                logger.error(f"The watch has ended: {_error_line(error)}")
        finally:
            self._begun.set()


class _Control:
    """Stops a watch and keeps its figures, in addition to the options' own `stop` and `display`."""

    def __init__(self, options: WatchOptions) -> None:
        self.stop = threading.Event()
        self.stats = WatchStats()
        self._options = options

    def is_set(self) -> bool:
        return self.stop.is_set() or self._options.stop_requested()

    def show(self, stats: WatchStats) -> None:
        self.stats = stats
        if self._options.display is not None:
            self._options.display.show(stats)

    def close(self) -> None:
        if self._options.display is not None:
            self._options.display.close()


def _error_line(error: BaseException) -> str:
    """Returns an error in one line."""
    text = error_text(error)
    return text if isinstance(error, WatcherError) else f"{type(error).__name__}: {text}"
