"""See every change of a DynamoDB table, live, in order, without losing one."""

from __future__ import annotations

import importlib

from watcher.version import __version__ as __version__

TYPE_CHECKING = False  # to import typing for it would take longer than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from watcher.delivery.lambdas import lambda_function
    from watcher.engine.figures import Totals
    from watcher.errors import (
        DataLossError,
        LeaseLostError,
        ObserverError,
        StreamError,
        UsageError,
        WatcherError,
    )
    from watcher.past.as_of import ItemsAsOf, as_of
    from watcher.past.timeline import History, history
    from watcher.past.undo import Undo, undo
    from watcher.record.as_model import as_model
    from watcher.record.compare import ABSENT
    from watcher.record.record import Record
    from watcher.stream import Stream
    from watcher.watching import watch

__all__ = [
    "ABSENT",
    "DataLossError",
    "History",
    "ItemsAsOf",
    "LeaseLostError",
    "ObserverError",
    "Record",
    "Stream",
    "StreamError",
    "Totals",
    "Undo",
    "UsageError",
    "WatcherError",
    "as_model",
    "as_of",
    "history",
    "lambda_function",
    "undo",
    "watch",
]

# Imported when they are asked for: a TAB on the command line does not wait for boto3.
_PLACES = {
    "ABSENT": "record.compare",
    "DataLossError": "errors",
    "History": "past.timeline",
    "ItemsAsOf": "past.as_of",
    "LeaseLostError": "errors",
    "ObserverError": "errors",
    "Record": "record.record",
    "Stream": "stream",
    "StreamError": "errors",
    "Totals": "engine.figures",
    "Undo": "past.undo",
    "UsageError": "errors",
    "WatcherError": "errors",
    "as_model": "record.as_model",
    "as_of": "past.as_of",
    "history": "past.timeline",
    "lambda_function": "delivery.lambdas",
    "undo": "past.undo",
    "watch": "watching",
}


def __dir__() -> list[str]:
    """What there is, also what nobody has asked for yet."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """A public name, from the module that it is in."""
    if name not in _PLACES:
        raise AttributeError(f"module 'watcher' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"watcher.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
