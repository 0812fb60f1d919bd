"""What `watch()` and its like are given, checked, and as the engine takes it."""

import math
import multiprocessing
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING

from watcher.delivery import handler_modules
from watcher.delivery.callables import unfit
from watcher.errors import UsageError, blame

# As in `watching`: an import of this one is to be cheap.
if TYPE_CHECKING:
    from watcher.aws.model import Position
    from watcher.delivery.concurrent import HandlerPool
    from watcher.delivery.handler import Handler


def refuse_in_child() -> None:
    """A child that is being spawned imports the main program anew. Raises UsageError there."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError("watch() has to be called under `if __name__ == '__main__':`")


def poll_seconds(given: float | None) -> float:
    """The longest pause of an idle shard. Raises UsageError.

    Who looks on wants to see a change soon; elsewhere each call is money.
    """
    if given is None:
        return 1.0 if sys.stderr.isatty() else 5.0
    refuse_bad_seconds(poll_max=given)
    return given


def refuse_bad_counts(**counts: object) -> None:
    """None is no limit. Raises UsageError, which names the parameter."""
    for option, value in counts.items():
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise UsageError("give 1 or more", option, repr(value))


def refuse_bad_seconds(**seconds: object) -> None:
    """Raises UsageError, which names the parameter."""
    for option, value in seconds.items():
        if not (isinstance(value, int | float) and 0 < value < math.inf):
            text = f"{value:g}" if isinstance(value, int | float) else repr(value)
            raise UsageError("give more than 0 seconds", option, text)


def price(dollars: float) -> float:
    """What 100,000 calls cost. Raises UsageError."""
    if not 0 <= dollars < math.inf:
        raise UsageError("give dollars, 0 or more", "price", f"{dollars:g}")
    return dollars


def hands(concurrency: int) -> "HandlerPool | None":
    """What handles several shards' records at once; None: they are handled one by one.

    Raises UsageError.
    """
    from watcher.delivery.concurrent import ThreadHandlerPool

    refuse_bad_counts(concurrency=concurrency)
    if concurrency == 1:
        return None
    return ThreadHandlerPool(concurrency)


def asked_by(stop: object) -> Callable[[], bool]:
    """Whether an event (or what has its `is_set`) says that it is time to stop.

    Raises UsageError.
    """
    if stop is None:
        return lambda: False
    is_set = getattr(stop, "is_set", None)
    if not callable(is_set):
        raise UsageError("give a threading.Event, or what has its is_set()", "stop", repr(stop))
    return lambda: bool(is_set())


def position(start: str | datetime) -> "Position":
    """A start as the library and the command line take it. Raises UsageError."""
    from watcher.streams.position import at_time, parse_start

    now = datetime.now(UTC)
    if not isinstance(start, str | datetime):
        raise UsageError("give a text such as 2h, or a datetime", "start", repr(start))
    with blame("start"):
        return at_time(start, now) if isinstance(start, datetime) else parse_start(start, now)


def end(until: str | datetime | None, start: str | datetime) -> datetime | None:
    """The last moment that counts, as the library and the command line take it. Raises UsageError.

    What comes now and later is no range, so it has to be after a `start` in the past.
    """
    from watcher.aws.model import AtTime, Latest
    from watcher.streams.position import at_time, parse_start

    if until is None:
        return None
    if not isinstance(until, str | datetime):
        raise UsageError("give a text such as 2h, or a datetime", "until", repr(until))
    now = datetime.now(UTC)
    with blame("until"):
        found = at_time(until, now) if isinstance(until, datetime) else parse_start(until, now)
    if not isinstance(found, AtTime):
        raise UsageError("give an age like 2h, or a time", "until", str(until))
    begins = position(start)
    if isinstance(begins, Latest):
        raise UsageError("it has passed: give --from, too, an earlier one", "until", str(until))
    if isinstance(begins, AtTime) and begins.time > found.time:
        raise UsageError("it is before --from", "until", str(until))
    return found.time


def tail(count: int | None, start: str | datetime, until: str | datetime | None) -> int | None:
    """How many of the last changes to begin with; None: none. Raises UsageError."""
    from watcher.runtime.tail import MOST

    if count is None:
        return None
    refuse_bad_counts(tail=count)
    if count > MOST:
        raise UsageError(f"give {MOST:,} at most; --from takes a time or an age", "tail", count)
    if start != "latest" or until is not None:
        other = "--from" if start != "latest" else "--until"
        raise UsageError(f"it counts back from now: leave out {other}", "tail", count)
    return count


def snapshot(given: bool, tail: int | None) -> bool:
    """Whether to begin with the items. Raises UsageError where something else is to be first."""
    if given and tail is not None:
        raise UsageError("it begins with the items: leave out --tail", "snapshot")
    return given


def on_stale(given: str) -> str:
    """What to do about a checkpoint that is too old. Raises UsageError."""
    if given not in ("fail", "trim-horizon", "snapshot"):
        raise UsageError("give fail, trim-horizon or snapshot", "on_stale", repr(given))
    return given


def observer(each: object) -> "Handler":
    """An observer from what callers may give; said now if it can never work."""
    from watcher.delivery.handler import Handler

    if isinstance(each, Handler):
        return each
    if isinstance(each, str):
        found = handler_modules.find()
        if each not in found:
            raise UsageError(f"no handler {each!r}; there are {', '.join(found)}")
        return handler_modules.load(found[each])
    if isinstance(each, ModuleType):
        return handler_modules.module_handler(each, each.__name__, each.__name__)
    if not callable(each):
        raise UsageError(f"observer {each!r} can't be called: give a function of a record")
    name = getattr(each, "__name__", repr(each))
    if reason := unfit(each, "record", is_awaited=True):
        raise UsageError(f"observer {name} {reason}")
    return Handler(name, each)
