"""See every change of a DynamoDB table, live, in order, without losing one."""

from watcher.errors import DataLossError, ObserverError, StreamError, UsageError, WatcherError
from watcher.lambdas import lambda_function
from watcher.record import ABSENT, Record
from watcher.snapshot import Totals
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
