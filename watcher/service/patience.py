"""A call at the beginning, where there is no loop yet that comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError, TransientError
from watcher.service import advice
from watcher.service.model import Listing, Service

_PAUSES = (0.2, 0.4, 0.8, 1.6)

_Answer = TypeVar("_Answer")


def patiently(call: Callable[[], _Answer], clock: Clock = CLOCK) -> _Answer:
    """A service that answers at all is asked a few times more. Raises StreamError in the end."""
    for pause in (*_PAUSES, None):
        try:
            return call()
        except TransientError as error:
            if error.unreachable or pause is None:
                text = f"can't reach the stream: {error}{advice.on_no_word(str(error))}"
                raise StreamError(text, about=("endpoint_url", "region")) from error
            clock.sleep(pause)
    raise AssertionError


class Patient:
    """A service whose listings are asked for so, where that keeps nobody waiting."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def listing(self, arn: str) -> Listing:
        """See `Service`. Raises StreamError."""
        return patiently(lambda: self._service.listing(arn))
