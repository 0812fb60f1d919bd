"""Asks the service for a loop that has more to do: in a thread, while the loop goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from watcher import forks
from watcher.errors import StillAskingError
from watcher.service.model import Listing, Service, Shard

# A thread that only waits for bytes holds no lock that a fork would copy; one at work is soon done.
_SETTLE_SECONDS = 2.0


class Aside:
    """A service that answers `listing`, `children` and `latest_stream` the next time it is asked.

    Until then these raise StillAskingError. All else is asked as ever. `tell` is called when there
    is an answer. One question at a time: DescribeStream is limited anyway.
    """

    def __init__(self, service: Service, tell: Callable[[], object] = lambda: None) -> None:
        self._service = service
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._question: Hashable = None
        self._answers: list[Any] = []
        self._errors: list[Exception] = []
        forks.before(self.settle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def listing(self, arn: str) -> Listing:
        """See `Service`."""
        found: Listing = self._asked(("listing", arn), lambda: self._service.listing(arn))
        return found

    def children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        question = "children", arn, shard_id
        found: list[Shard] = self._asked(question, lambda: self._service.children(arn, shard_id))
        return found

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        found: str = self._asked(("latest", table), lambda: self._service.latest_stream(table))
        return found

    def settle(self) -> None:
        """Before a fork: let the thread end, if it does so soon."""
        if self._thread is not None:
            self._thread.join(_SETTLE_SECONDS)

    def _asked(self, question: Hashable, call: Callable[[], Any]) -> Any:
        if self._thread is not None and self._thread.is_alive():
            raise StillAskingError("the service has not answered yet")
        answers, errors = self._answers, self._errors
        self._answers, self._errors = [], []
        if self._question == question and (answers or errors):
            self._question = None
            if errors:
                raise errors[0]
            return answers[0]
        # What was asked before, nobody asks any more.
        self._question = question
        self._thread = threading.Thread(target=self._ask, args=(call,), name="asks", daemon=True)
        self._thread.start()
        raise StillAskingError("the service has just been asked")

    def _ask(self, call: Callable[[], Any]) -> None:
        try:
            self._answers.append(call())
        except Exception as error:
            self._errors.append(error)
        self._tell()
