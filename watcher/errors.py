"""All exceptions that watcher raises, with their exit statuses and the options to blame."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_USER_IN_URL = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")
# The part of a URL behind its host, also as requests and urllib3 show it in errors.
_BEHIND_HOST = re.compile(
    r"(?:(?<=url: )|(?P<host>\bhttps?://[^\s/?#\"'<>]*))[/?#][^\s\"'<>]+?(?=[:;,.)\]}]*(?:[\s\"'<>]|$))",
    re.IGNORECASE,
)


def without_passwords(text: str) -> str:
    """Removes users and passwords from the URLs in a text."""
    return _USER_IN_URL.sub("***@", text)


def without_secrets(text: str) -> str:
    """Removes all but the hosts of the URLs in a text: a webhook's path is its password."""
    return _BEHIND_HOST.sub(lambda found: f"{found['host'] or ''}/***", without_passwords(text))


def error_text(error: BaseException) -> str:
    """Returns the text of a foreign error, even if its `__str__` raises."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
        return without_secrets(text)
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        return f"(no text: its __str__ raises {type(another).__name__})"


class WatcherError(Exception):
    """The base of all exceptions; its text is one line that says what happened and what to do.

    Where a caller's value is to blame, the text begins with its parameter (`start 3 o'clock: …`);
    the command line puts the option's name there (`--from 3 o'clock: …`).
    """

    exit_status = 1

    def __init__(
        self,
        text: str,
        option: str | None = None,
        value: object = None,
        *,
        about: Iterable[str] = (),
    ) -> None:
        super().__init__(text)
        self.option = option
        """The name of the parameter to blame."""
        self.value = value
        """The parameter's value, where the text does not contain it."""
        self.about = tuple(about)
        """Other parameters that the text names; the command line shows their options."""
        self.totals: Any = None
        """The `Totals` of a watch's other streams; None for a watch of one stream."""

    def __str__(self) -> str:
        return self.blaming(self.option)

    def add(self, text: str) -> None:
        """Appends to the text."""
        self.args = (f"{self.args[0]}{text}",)

    def blaming(self, name: str | None) -> str:
        """Returns the text with this name for the option."""
        text = super().__str__()
        if name is not None:
            text = f"{name}: {text}" if self.value is None else f"{name} {self.value}: {text}"
        return without_passwords(text)


class UsageError(WatcherError):
    """Raised for a bad option, file, position or token: correct it and call again."""

    exit_status = 2


class CheckpointError(UsageError):
    """Raised where a shared checkpoint can't be read or written now; a retry may work.

    `answered` is true where the service itself refuses, and false where it can't be reached.
    """

    exit_status = 3

    def __init__(
        self,
        text: str,
        option: str | None = None,
        value: object = None,
        *,
        answered: bool = False,
    ) -> None:
        super().__init__(text, option, value)
        self.answered = answered


@contextmanager
def blame(option: str) -> Iterator[None]:
    """Blames this option for a UsageError of the block that names none."""
    try:
        yield
    except UsageError as error:
        error.option = error.option or option
        raise


def blamed(error: WatcherError, flag: str | None, origins: Mapping[str, str | None]) -> str:
    """Returns an error's text with the option to blame and the sources of options' values."""
    parts = [
        f"from {origin}" if name == flag else f"{name} is from {origin}"
        for name, origin in origins.items()
        if origin
    ]
    return f"{error.blaming(flag)} ({', '.join(parts)})" if parts else error.blaming(flag)


def did_you_mean(word: str, names: Iterable[str], what: str = "") -> str:
    """Returns a question for the name that is nearest to a word; "" where none is near."""
    import difflib  # only for an error

    near = difflib.get_close_matches(word, [*names], 1)
    return f"; did you mean {what}{near[0]}?" if near else ""


def texts(given: object, option: str) -> list[str]:
    """Returns the texts that a caller gives: a single one, several, or None. Raises UsageError."""
    found: list[str] = []
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for each in several if given is not None else ():
        if not isinstance(each, str):
            raise UsageError("give a text, or several", option, repr(each))
        found.append(each)
    return found


def refuse_unless_positive(option: str, value: object, unit: str = "seconds") -> None:
    """Raises UsageError, which names the parameter, for a value that is no positive number."""
    if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
        text = f"{value:g}" if isinstance(value, int | float) else repr(value)
        raise UsageError(f"give more than 0 {unit}", option, text)


def refuse_other_than_text(**given: object) -> None:
    """Raises UsageError for a value that is neither a text nor None; names its parameter."""
    for name, value in given.items():
        if not isinstance(value, str | None):
            raise UsageError("give a text", name, repr(value))


def refuse_text_for_bool(name: str, value: object) -> None:
    """Raises UsageError for a text instead of True or False: "no" would count as true."""
    if isinstance(value, str):
        raise UsageError("give True or False", name, repr(value))


class StreamError(WatcherError):
    """Raised where a stream can't be used: not found, disabled, no permission, unreachable."""

    exit_status = 3


class ResourceError(WatcherError):
    """Raised where the system gives no process, open file or temporary folder, or Spark fails."""

    exit_status = 3


class CredentialsError(StreamError):
    """Raised for missing or refused credentials; a running watch waits, as new ones may come."""


class DeniedError(StreamError):
    """Raised without permission; a retry helps while a changed policy spreads."""


class UnexpectedAnswerError(StreamError):
    """Raised for an answer that is not the service's (a proxy's page, say)."""


class StreamGoneError(StreamError):
    """Raised for a stream that does not exist (any more); the table may have a new one."""


class DataLossError(WatcherError):
    """Raised with `fail_on_data_loss` where records were gone before they were read."""


class HandlerError(WatcherError):
    """Raised where a handler failed under a policy that stops the watch."""

    def __init__(self, text: str, *, about: Iterable[str] = (), handler: str | None = None) -> None:
        super().__init__(text, about=about)
        self.handler = handler
        """The name of the handler."""


class LeaseLostError(WatcherError):
    """Raised where another watch has taken over this one's lease; it has to stop delivering."""


class NoAnswerYetError(WatcherError):
    """Raised while a background call has no answer yet: call again soon."""


class ServiceError(WatcherError):
    """The base of errors of the service that a shard's reader can handle itself."""


class TransientError(ServiceError):
    """Raised for throttling, a 5xx answer, a reset or a timeout: retry with a backoff.

    `unreachable` means without an answer; `overdue` means with an answer too slow to wait for its
    end.
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
    """Raised for an iterator older than 15 minutes: get a new one at the last position."""


class TrimmedDataError(ServiceError):
    """Raised for a position older than the stream's 24 hours: report a loss, and go on after it."""


class ShardNotFoundError(ServiceError):
    """Raised for a shard that is not in the stream, or no longer: go on with its children."""


class TimestampRefusedError(ServiceError):
    """Raised where AT_TIMESTAMP is refused (DynamoDB Local, moto): read from the trim horizon."""


MAY_PASS = TransientError, CredentialsError, UnexpectedAnswerError
"""The errors after which the question is still open: ask again."""
