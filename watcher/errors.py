"""Every exception that watcher raises, its exit status, and the option to blame where one is."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_USER_IN_URL = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")


def without_passwords(text: str) -> str:
    """A text whose URLs name no user and no password."""
    return _USER_IN_URL.sub("***@", text)


class WatcherError(Exception):
    """The base of all; its text is one line that says what happened and what to do.

    Where a value of the caller's is to blame, the text begins with the parameter that it was given
    by (`start 3 o'clock: …`); the command line has the option's name there (`--from 3 o'clock: …`).
    """

    exit_status = 1

    def __init__(
        self,
        text: str,
        option: str | None = None,
        value: Any = None,
        *,
        about: Iterable[str] = (),
    ) -> None:
        super().__init__(text)
        self.option = option
        """The parameter to blame, by its name in the call."""
        self.value = value
        """What was given for it, where the text does not say it."""
        self.about = tuple(about)
        """Other parameters that the text is about, in its own words."""
        self.totals: Any = None
        """What a watch has done with its other streams (`Totals`); None where it had but one."""

    def __str__(self) -> str:
        return self.blaming(self.option)

    def add(self, text: str) -> None:
        """Say this, too."""
        self.args = (f"{self.args[0]}{text}",)

    def blaming(self, name: str | None) -> str:
        """The text, for those who know the option by this name."""
        text = super().__str__()
        if name is not None:
            text = f"{name}: {text}" if self.value is None else f"{name} {self.value}: {text}"
        return without_passwords(text)


class UsageError(WatcherError):
    """The caller asked for something that can't be: a bad option, file, position or token."""

    exit_status = 2


class UnreadableError(UsageError):
    """It is neither a position nor a time."""


class CheckpointError(UsageError):
    """A shared checkpoint can't be read or written just now: the same may work a moment later.

    `answered` where the service itself says so, and not only to us.
    """

    exit_status = 3

    def __init__(
        self,
        text: str,
        option: str | None = None,
        value: Any = None,
        *,
        answered: bool = False,
    ) -> None:
        super().__init__(text, option, value)
        self.answered = answered


@contextmanager
def blame(option: str) -> Iterator[None]:
    """What is wrong in here is this option's value."""
    try:
        yield
    except UsageError as error:
        error.option = error.option or option
        raise


class StreamError(WatcherError):
    """The stream can't be used: not found, none on the table, no permission, unreachable."""

    exit_status = 3


class CredentialsError(StreamError):
    """No credentials, or refused ones (expired, most often): new ones may come."""


class DeniedError(StreamError):
    """No permission; a policy that changes is not everywhere at once."""


class OddAnswerError(StreamError):
    """An answer that says nothing of the stream: a proxy's page, or what nobody knows."""


class StreamGoneError(StreamError):
    """There is no such stream (any more)."""


class DataLossError(WatcherError):
    """Records were gone before they were read, and `fail_on_data_loss` was asked for."""


class HandlerError(WatcherError):
    """An observer failed under a policy that stops the watch."""

    def __init__(
        self, text: str, *, about: Iterable[str] = (), observer: str | None = None
    ) -> None:
        super().__init__(text, about=about)
        self.observer = observer
        """Which one."""


class LeaseLostError(WatcherError):
    """Another watch delivers now from the checkpoint that this one had the lease of."""


class NoAnswerYetError(WatcherError):
    """The service was asked aside, and has not answered yet: ask again soon."""


class ServiceError(WatcherError):
    """An answer of the service that the reader knows how to live with."""


class TransientError(ServiceError):
    """Throttling, a 5xx answer, a reset, a time-out: the same call may work a moment later.

    `unreachable` where nobody answered at all; `overdue` where an answer came too slowly to wait
    for its end.
    """

    def __init__(
        self,
        message: str,
        *,
        throttled: bool = False,
        unreachable: bool = False,
        overdue: bool = False,
    ) -> None:
        super().__init__(message)
        self.throttled = throttled
        self.unreachable = unreachable or overdue
        self.overdue = overdue


class ExpiredIteratorError(ServiceError):
    """The iterator outlived its 15 minutes; a new one from the last position goes on."""


class TrimmedDataError(ServiceError):
    """The position is older than the stream's retention of 24 hours."""


class ShardNotFoundError(ServiceError):
    """The shard is not in the stream any more (or never was)."""


class TimestampRefusedError(ServiceError):
    """The service knows no AT_TIMESTAMP (older services, DynamoDB Local, moto), or not this one."""
