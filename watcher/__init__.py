"""See every change of a DynamoDB table, live, in order, without losing one."""

import importlib
from typing import TYPE_CHECKING, Any

from watcher.errors import DataLossError, ObserverError, StreamError, UsageError, WatcherError

if TYPE_CHECKING:
    from watcher.lambdas import lambda_function
    from watcher.manager import Totals
    from watcher.record import ABSENT, Record
    from watcher.stream import Stream
    from watcher.watching import watch

__all__ = [
    "ABSENT",
    "DataLossError",
    "ObserverError",
    "Record",
    "Stream",
    "StreamError",
    "Totals",
    "UsageError",
    "WatcherError",
    "lambda_function",
    "watch",
]
__version__ = "0.1.0"

# Imported when they are asked for: a TAB on the command line does not wait for boto3.
_PLACES = {
    "ABSENT": "record",
    "Record": "record",
    "Stream": "stream",
    "Totals": "manager",
    "lambda_function": "lambdas",
    "watch": "watching",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that it is in."""
    if name not in _PLACES:
        raise AttributeError(f"module 'watcher' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"watcher.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
