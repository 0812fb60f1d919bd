"""Every exception that watcher raises, and the exit status that each one means."""


class WatcherError(Exception):
    """The base of all; its text is one line that says what happened and what to do."""

    exit_status = 1


class UsageError(WatcherError):
    """The caller asked for something that can't be: a bad option, file, position or token."""

    exit_status = 2


class StreamError(WatcherError):
    """The stream can't be used: not found, none on the table, no permission, unreachable."""

    exit_status = 3


class CredentialsError(StreamError):
    """No credentials, or refused ones (expired, most often): new ones may come."""


class StreamGoneError(StreamError):
    """There is no such stream (any more)."""


class DataLossError(WatcherError):
    """Records were gone before they were read, and `fail_on_data_loss` was asked for."""


class ObserverError(WatcherError):
    """An observer failed under a policy that stops the watch."""


class ServiceError(WatcherError):
    """An answer of the service that the reader knows how to live with."""


class TransientError(ServiceError):
    """Throttling, a 5xx answer, a reset, a time-out: the same call may work a moment later.

    `unreachable` where nobody answered at all.
    """

    def __init__(self, message: str, *, throttled: bool = False, unreachable: bool = False) -> None:
        super().__init__(message)
        self.throttled = throttled
        self.unreachable = unreachable


class ExpiredIteratorError(ServiceError):
    """The iterator outlived its 15 minutes; a new one from the last position goes on."""


class TrimmedDataError(ServiceError):
    """The position is older than the stream's retention of 24 hours."""


class ShardNotFoundError(ServiceError):
    """The shard is not in the stream any more (or never was)."""


class TimestampRefusedError(ServiceError):
    """The service knows no AT_TIMESTAMP (older services, DynamoDB Local, moto), or not this one."""
