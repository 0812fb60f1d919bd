"""Asks the service for a loop that has more to do: in a thread, while the loop goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from watcher import process_start
from watcher.aws import timing as timings
from watcher.aws.model import ForwardingService, Listing, Service, Shard
from watcher.aws.retry import retry_at_start
from watcher.aws.timing import BackgroundTiming
from watcher.errors import NoAnswerYetError, WatcherError

_Question = tuple[str, ...]
_Found: TypeAlias = Any
"""An answer that waits to be taken: one dict holds all of them, and the question tells the type."""
_Answer = TypeVar("_Answer")


class _Requests:
    """Questions in their order, so many of which are asked at once.

    One that has no answer after `hangs_seconds` does not count as being asked, and comes after all
    others the next time.
    """

    def __init__(self, at_once: int, *, hangs_seconds: float, most_hanging: int) -> None:
        self.hangs_seconds = hangs_seconds
        self.waiting: dict[_Question, Callable[[], object]] = {}
        self.asked: set[_Question] = set()
        self.threads: dict[threading.Thread, float] = {}
        """Since when each is at its question."""
        self.have_hung: set[_Question] = set()
        self._at_once = at_once
        self._most_hanging = most_hanging

    def missing_threads(self) -> int:
        """Returns how many threads more there are to be."""
        since = time.monotonic() - self.hangs_seconds
        hanging = sum(began <= since for began in self.threads.values())
        room = self._at_once + min(hanging, self._most_hanging) - len(self.threads)
        begun = len(self.threads) - len(self.asked)  # whose question still waits
        return min(room, len(self.waiting) - begun)

    def next(self) -> tuple[_Question, Callable[[], object]]:
        """Takes the next question: from now on it is being asked, by this thread."""
        question = min(self.waiting, key=self.have_hung.__contains__)
        self.asked.add(question)
        self.threads[threading.current_thread()] = time.monotonic()
        return question, self.waiting.pop(question)

    def on_answer(self, question: _Question) -> None:
        """Notes that this thread has the answer to the question."""
        self.asked.remove(question)
        self.have_hung.discard(question)
        if time.monotonic() - self.threads[threading.current_thread()] >= self.hangs_seconds:
            self.have_hung.add(question)


class BackgroundService(ForwardingService):
    """A service that answers these the next time: listing, children, latest_stream, probe.

    Until then they raise NoAnswerYetError; with `patience`, after so many seconds of waiting for a
    question that is new. All else is asked as ever. `on_answer` is called when there is an answer.
    One question after the other, for all streams, as DescribeStream is limited anyway; but one that
    has no answer for a second keeps no other waiting. Children have a line of their own, since a
    listing may have a hundred pages; and so have probes, side by side. Nobody is patient a second
    time with one that has hung.
    """

    def __init__(
        self,
        service: Service,
        on_answer: Callable[[], object] = lambda: None,
        patience: float = 0.0,
        *,
        at_start: bool = False,
        timing: BackgroundTiming | None = None,
    ) -> None:
        """`at_start`: a listing that fails is tried a few times more, and its answer waits.

        Whoever has begun a stream may come back for it late, after handlers that take their time.
        """
        super().__init__(service)
        timing = timing or timings.BACKGROUND
        self._on_answer = on_answer
        self.patience = patience
        """For how many seconds a new question is waited for."""
        self._at_start = at_start
        self._timing = timing
        self._fresh_seconds = math.inf if at_start else timing.fresh_seconds
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        hangs, most = timing.listing_hangs_seconds, timing.most_hanging
        self._line = _Requests(1, hangs_seconds=hangs, most_hanging=most)
        self._children = _Requests(1, hangs_seconds=hangs, most_hanging=most)
        self._probes = _Requests(
            timing.probes_at_once, hangs_seconds=timing.probe_hangs_seconds, most_hanging=most
        )
        self._waited_for: set[threading.Thread] = set()
        self._answers: dict[_Question, tuple[float, _Found, Exception | None]] = {}
        process_start.before_fork(self.wait_for_thread)

    def list_shards(self, arn: str) -> Listing:
        """See `Service`."""
        call = partial(self._service.list_shards, arn)
        if self._at_start:
            call = partial(retry_at_start, call)
        return self._asked(("listing", arn), call, self._line)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        question = "children", arn, shard_id
        call = partial(self._service.list_children, arn, shard_id)
        return self._asked(question, call, self._children)

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        call = partial(self._service.latest_stream, table)
        return self._asked(("latest", table), call, self._line)

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """See `Service`; only of those that are answered by now."""
        questions: dict[_Question, str] = {("probe", arn, each): each for each in shard_ids}
        with self._lock:
            calls: dict[_Question, Callable[[], object]] = {
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

    def wait_for_thread(self) -> None:
        """Before a fork: let the threads end, if they do so soon; each is waited for once.

        One at a probe that hangs by now has nothing to do but to wait; a listing has many pages.
        """
        until = time.monotonic() + self._timing.settle_seconds
        waited_for = set[threading.Thread]()
        for line in self._line, self._children, self._probes:
            hangs = line.hangs_seconds if line is self._probes else math.inf
            for thread, began in list(line.threads.items()):
                if thread not in self._waited_for:
                    thread.join(max(0.0, min(until, began + hangs) - time.monotonic()))
                waited_for.add(thread)
        self._waited_for = {thread for thread in waited_for if thread.is_alive()}

    def _asked(self, question: _Question, call: Callable[[], _Answer], line: _Requests) -> _Answer:
        with self._lock:
            self._ask(line, {question: call})
            if not self._is_fresh(question):
                raise NoAnswerYetError("the service has not answered yet")
            found: _Answer = self._taken(question)
            return found

    def _ask(self, line: _Requests, calls: Mapping[_Question, Callable[[], object]]) -> None:
        """Ask what is not answered, nor being asked; what is new is waited for."""
        new = {
            question: call
            for question, call in calls.items()
            if not (question in line.waiting or question in line.asked or self._is_fresh(question))
        }
        line.waiting.update(new)
        for _ in range(line.missing_threads()):
            thread = threading.Thread(target=self._run, args=(line,), name="asks", daemon=True)
            line.threads[thread] = time.monotonic()
            thread.start()
        if self.patience and (awaited := new.keys() - line.have_hung):
            self._news.wait_for(lambda: all(map(self._is_fresh, awaited)), self.patience)

    def _is_fresh(self, question: _Question) -> bool:
        answered, _, _ = self._answers.get(question, (-math.inf, None, None))
        return time.monotonic() - answered < self._fresh_seconds

    def _taken(self, question: _Question) -> _Found:
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
                line.on_answer(question)
                self._answers[question] = time.monotonic(), answer, error
                self._news.notify_all()
            self._on_answer()
