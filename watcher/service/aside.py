"""Asks the service for a loop that has more to do: in a thread, while the loop goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from watcher import forks
from watcher.errors import StillAskingError
from watcher.service.model import Listing, Service, Shard

# A thread that only waits for bytes holds no lock that a fork would copy; one at work is soon done.
_SETTLE_SECONDS = 2.0
# What was answered earlier, and not asked for, is asked anew.
_FRESH_SECONDS = 5.0


class Aside:
    """A service that answers `listing`, `children` and `latest_stream` the next time it is asked.

    Until then these raise StillAskingError. All else is asked as ever. `tell` is called when there
    is an answer. One question after the other, for all streams: DescribeStream is limited anyway.
    """

    def __init__(self, service: Service, tell: Callable[[], object] = lambda: None) -> None:
        self._service = service
        self._tell = tell
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # In their order; the first is being asked.
        self._questions: dict[Hashable, Callable[[], Any]] = {}
        self._answers: dict[Hashable, tuple[float, Any, Exception | None]] = {}
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
        if (thread := self._thread) is not None:
            thread.join(_SETTLE_SECONDS)

    def _asked(self, question: Hashable, call: Callable[[], Any]) -> Any:
        with self._lock:
            answered, answer, error = self._answers.pop(question, (-math.inf, None, None))
            if time.monotonic() - answered < _FRESH_SECONDS:
                if error is not None:
                    raise error
                return answer
            self._questions.setdefault(question, call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="asks", daemon=True)
                self._thread.start()
        raise StillAskingError("the service has not answered yet")

    def _run(self) -> None:
        while True:
            with self._lock:
                question, call = next(iter(self._questions.items()), (None, None))
                if call is None:
                    self._thread = None
                    return
            answer, error = None, None
            try:
                answer = call()
            except Exception as caught:
                error = caught
            with self._lock:
                del self._questions[question]
                self._answers[question] = time.monotonic(), answer, error
            self._tell()
