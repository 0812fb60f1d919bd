"""See every change of a DynamoDB table, live, in order, without losing one."""

from __future__ import annotations

import importlib
import sys

from watcher.version import NO_WINDOWS
from watcher.version import __version__ as __version__

TYPE_CHECKING = False  # to import typing for it would take longer than all the rest here
if TYPE_CHECKING:
    from watcher.delivery.lambda_functions import lambda_function
    from watcher.errors import (
        DataLossError,
        HandlerError,
        LeaseLostError,
        StreamError,
        UsageError,
        WatcherError,
    )
    from watcher.observability.watch_stats import Totals
    from watcher.pull.ranges import read_range
    from watcher.records.diff import ABSENT
    from watcher.records.record import Record
    from watcher.stream import Stream
    from watcher.time_machine.as_of import ItemsAsOf, as_of
    from watcher.time_machine.history import History, history
    from watcher.time_machine.undo import Undo, undo
    from watcher.watching import Watch, watch

__all__ = [
    "ABSENT",
    "DataLossError",
    "HandlerError",
    "History",
    "ItemsAsOf",
    "LeaseLostError",
    "Record",
    "Stream",
    "StreamError",
    "Totals",
    "Undo",
    "UsageError",
    "Watch",
    "WatcherError",
    "as_of",
    "history",
    "lambda_function",
    "read_range",
    "undo",
    "watch",
]

# Imported when they are asked for: a TAB on the command line does not wait for boto3.
_PLACES = {
    "ABSENT": "records.diff",
    "DataLossError": "errors",
    "History": "time_machine.history",
    "ItemsAsOf": "time_machine.as_of",
    "LeaseLostError": "errors",
    "HandlerError": "errors",
    "Record": "records.record",
    "Stream": "stream",
    "StreamError": "errors",
    "Totals": "observability.watch_stats",
    "Undo": "time_machine.undo",
    "UsageError": "errors",
    "Watch": "watching",
    "WatcherError": "errors",
    "as_of": "time_machine.as_of",
    "history": "time_machine.history",
    "lambda_function": "delivery.lambda_functions",
    "read_range": "pull.ranges",
    "undo": "time_machine.undo",
    "watch": "watching",
}


def __dir__() -> list[str]:
    """Returns every public name, also those not yet imported."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Returns a public name, from the module that it is in."""
    if name not in _PLACES:
        raise AttributeError(f"module 'watcher' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(NO_WINDOWS)
    found = getattr(importlib.import_module(f"watcher.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
