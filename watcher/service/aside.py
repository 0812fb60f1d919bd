"""Asks the service for a loop that has more to do: in a thread, while the loop goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from watcher import forks
from watcher.errors import StillAskingError, WatcherError
from watcher.service.model import Listing, Service, Shard

# A thread that only waits for bytes holds no lock that a fork would copy; one at work is soon done.
_SETTLE_SECONDS = 2.0
# What was answered earlier, and not asked for, is asked anew.
_FRESH_SECONDS = 5.0

_Question = tuple[str, ...]


class Aside:
    """A service that answers these the next time: listing, children, latest_stream, probe.

    Until then they raise StillAskingError. All else is asked as ever. `tell` is called when there
    is an answer. One question after the other, for all streams: DescribeStream is limited anyway.
    Only probes have a line of their own: a shard may keep them waiting, and listings must not.
    """

    def __init__(self, service: Service, tell: Callable[[], object] = lambda: None) -> None:
        self._service = service
        self._tell = tell
        self._lock = threading.Lock()
        # Whether for probes: who asks, and the questions in their order; the first is being asked.
        self._threads: dict[bool, threading.Thread] = {}
        self._questions: dict[bool, dict[_Question, Callable[[], Any]]] = {False: {}, True: {}}
        self._answers: dict[_Question, tuple[float, Any, Exception | None]] = {}
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

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """See `Service`; the answer may be about those that were asked for earlier."""
        question = "probe", arn
        found: dict[str, WatcherError | None] = self._asked(
            question, lambda: self._service.probe(arn, shard_ids)
        )
        return found

    def settle(self) -> None:
        """Before a fork: let the threads end, if they do so soon."""
        until = time.monotonic() + _SETTLE_SECONDS
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _asked(self, question: _Question, call: Callable[[], Any]) -> Any:
        with self._lock:
            answered, answer, error = self._answers.pop(question, (-math.inf, None, None))
            if time.monotonic() - answered < _FRESH_SECONDS:
                if error is not None:
                    raise error
                return answer
            is_probe = question[0] == "probe"
            self._questions[is_probe].setdefault(question, call)
            if is_probe not in self._threads:
                thread = threading.Thread(
                    target=self._run, args=(is_probe,), name="asks", daemon=True
                )
                self._threads[is_probe] = thread
                thread.start()
        raise StillAskingError("the service has not answered yet")

    def _run(self, is_probe: bool) -> None:
        questions = self._questions[is_probe]
        while True:
            with self._lock:
                if not questions:
                    del self._threads[is_probe]
                    return
                question, call = next(iter(questions.items()))
            answer, error = None, None
            try:
                answer = call()
            except Exception as caught:
                error = caught
            with self._lock:
                del questions[question]
                self._answers[question] = time.monotonic(), answer, error
            self._tell()
