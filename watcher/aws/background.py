"""Asks the service for a loop that has more to do: in a thread, while the loop goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from watcher import process_start
from watcher.aws.model import Listing, Service, Shard
from watcher.errors import NoAnswerYetError, WatcherError

# A thread that only waits for bytes holds no lock that a fork would copy; one at work is soon done.
_SETTLE_SECONDS = 2.0
# What was answered earlier, and not asked for, is asked anew.
_FRESH_SECONDS = 5.0
_PROBES_AT_ONCE = 10
# A probe without an answer for so long, or another question, makes room for one more, as long as no
# more than so many do.
_HANGS_SECONDS = 0.3
_LISTING_HANGS_SECONDS = 1.0
_MOST_HANGING = 100

_Question = tuple[str, ...]


class _Requests:
    """Questions in their order, so many of which are asked at once.

    One that has no answer after `hangs` seconds does not count as being asked, and comes after all
    others the next time.
    """

    def __init__(self, at_once: int, hangs: float) -> None:
        self.hangs = hangs
        self.waiting: dict[_Question, Callable[[], Any]] = {}
        self.asked: set[_Question] = set()
        self.threads: dict[threading.Thread, float] = {}
        """Since when each is at its question."""
        self.have_hung: set[_Question] = set()
        self._at_once = at_once

    def wanted(self) -> int:
        """How many threads more there are to be."""
        since = time.monotonic() - self.hangs
        hanging = sum(began <= since for began in self.threads.values())
        room = self._at_once + min(hanging, _MOST_HANGING) - len(self.threads)
        begun = len(self.threads) - len(self.asked)  # whose question still waits
        return min(room, len(self.waiting) - begun)

    def next(self) -> tuple[_Question, Callable[[], Any]]:
        """The next one to be asked: from now on it is, by this thread."""
        question = min(self.waiting, key=self.have_hung.__contains__)
        self.asked.add(question)
        self.threads[threading.current_thread()] = time.monotonic()
        return question, self.waiting.pop(question)

    def answered(self, question: _Question) -> None:
        """It is asked no longer."""
        self.asked.remove(question)
        self.have_hung.discard(question)
        if time.monotonic() - self.threads[threading.current_thread()] >= self.hangs:
            self.have_hung.add(question)


class BackgroundService:
    """A service that answers these the next time: listing, children, latest_stream, probe.

    Until then they raise StillAskingError; with `patience`, after so many seconds of waiting for a
    question that is new. All else is asked as ever. `tell` is called when there is an answer. One
    question after the other, for all streams, as DescribeStream is limited anyway; but one that has
    no answer for a second keeps no other waiting. Children have a line of their own, since a
    listing may have a hundred pages; and so have probes, side by side. Nobody is patient a second
    time with one that has hung. An answer is `fresh` for so many seconds: whoever may come back
    later, and for what is asked once, takes it all the same.
    """

    def __init__(
        self,
        service: Service,
        tell: Callable[[], object] = lambda: None,
        patience: float = 0.0,
        fresh: float = _FRESH_SECONDS,
    ) -> None:
        self._service = service
        self._tell = tell
        self._patience = patience
        self._fresh = fresh
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._line = _Requests(1, _LISTING_HANGS_SECONDS)
        self._children = _Requests(1, _LISTING_HANGS_SECONDS)
        self._probes = _Requests(_PROBES_AT_ONCE, _HANGS_SECONDS)
        self._waited_for: set[threading.Thread] = set()
        self._answers: dict[_Question, tuple[float, Any, Exception | None]] = {}
        process_start.before(self.settle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def listing(self, arn: str) -> Listing:
        """See `Service`."""
        call = partial(self._service.listing, arn)
        found: Listing = self._asked(("listing", arn), call, self._line)
        return found

    def children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        question = "children", arn, shard_id
        call = partial(self._service.children, arn, shard_id)
        found: list[Shard] = self._asked(question, call, self._children)
        return found

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        call = partial(self._service.latest_stream, table)
        found: str = self._asked(("latest", table), call, self._line)
        return found

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """See `Service`; only of those that are answered by now."""
        questions: dict[_Question, str] = {("probe", arn, each): each for each in shard_ids}
        with self._lock:
            calls: dict[_Question, Callable[[], Any]] = {
                question: partial(self._probed, arn, shard_id)
                for question, shard_id in questions.items()
            }
            self._ask(self._probes, calls)
            found = [each for each in questions if self._is_fresh(each)]
            if not found:
                raise NoAnswerYetError("the service has not answered yet")
            return {questions[each]: self._taken(each) for each in found}

    def _probed(self, arn: str, shard_id: str) -> WatcherError | None:
        return self._service.probe(arn, [shard_id])[shard_id]

    def settle(self) -> None:
        """Before a fork: let the threads end, if they do so soon; each is waited for once.

        One at a probe that hangs by now has nothing to do but to wait; a listing has many pages.
        """
        until = time.monotonic() + _SETTLE_SECONDS
        waited_for = set[threading.Thread]()
        for line in self._line, self._children, self._probes:
            hangs = line.hangs if line is self._probes else math.inf
            for thread, began in list(line.threads.items()):
                if thread not in self._waited_for:
                    thread.join(max(0.0, min(until, began + hangs) - time.monotonic()))
                waited_for.add(thread)
        self._waited_for = {thread for thread in waited_for if thread.is_alive()}

    def _asked(self, question: _Question, call: Callable[[], Any], line: _Requests) -> Any:
        with self._lock:
            self._ask(line, {question: call})
            if not self._is_fresh(question):
                raise NoAnswerYetError("the service has not answered yet")
            return self._taken(question)

    def _ask(self, line: _Requests, calls: dict[_Question, Callable[[], Any]]) -> None:
        """Ask what is not answered, nor being asked; what is new is waited for."""
        new = {
            question: call
            for question, call in calls.items()
            if not (question in line.waiting or question in line.asked or self._is_fresh(question))
        }
        line.waiting.update(new)
        for _ in range(line.wanted()):
            thread = threading.Thread(target=self._run, args=(line,), name="asks", daemon=True)
            line.threads[thread] = time.monotonic()
            thread.start()
        if self._patience and (awaited := new.keys() - line.have_hung):
            self._news.wait_for(lambda: all(map(self._is_fresh, awaited)), self._patience)

    def _is_fresh(self, question: _Question) -> bool:
        answered, _, _ = self._answers.get(question, (-math.inf, None, None))
        return time.monotonic() - answered < self._fresh

    def _taken(self, question: _Question) -> Any:
        _, answer, error = self._answers.pop(question)
        if error is not None:
            raise error
        return answer

    def _run(self, line: _Requests) -> None:
        while True:
            with self._lock:
                if not line.waiting:
                    del line.threads[threading.current_thread()]
                    return
                question, call = line.next()
            answer, error = None, None
            try:
                answer = call()
            except Exception as caught:
                error = caught
            with self._lock:
                line.answered(question)
                self._answers[question] = time.monotonic(), answer, error
                self._news.notify_all()
            self._tell()


class CachedListing:
    """The first listing of a stream is the one that there is; later ones are asked for."""

    def __init__(self, service: Service, listing: Listing) -> None:
        self._service = service
        self._listing: Listing | None = listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def listing(self, arn: str) -> Listing:
        """See `Service`."""
        known, self._listing = self._listing, None
        return self._service.listing(arn) if known is None else known
