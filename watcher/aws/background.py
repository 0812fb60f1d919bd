"""Calls the service in threads, for a loop that must not wait for the answers."""

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
"""An answer in the dict of all answers; its type depends on the question."""
_Answer = TypeVar("_Answer")


class _Requests:
    """A queue of questions, a limited number of which are asked at once.

    A question without an answer after `hangs_seconds` no longer counts as being asked, and comes
    last the next time.
    """

    def __init__(self, at_once: int, *, hangs_seconds: float, most_hanging: int) -> None:
        self.hangs_seconds = hangs_seconds
        self.waiting: dict[_Question, Callable[[], object]] = {}
        self.asked: set[_Question] = set()
        self.threads: dict[threading.Thread, float] = {}
        """The start time of each thread's question."""
        self.have_hung: set[_Question] = set()
        self._at_once = at_once
        self._most_hanging = most_hanging

    def missing_threads(self) -> int:
        """Returns the number of threads to start."""
        since = time.monotonic() - self.hangs_seconds
        hanging = sum(began <= since for began in self.threads.values())
        room = self._at_once + min(hanging, self._most_hanging) - len(self.threads)
        begun = len(self.threads) - len(self.asked)  # without a question yet
        return min(room, len(self.waiting) - begun)

    def next(self) -> tuple[_Question, Callable[[], object]]:
        """Removes and returns the next question, which this thread then asks."""
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
    """Answers listings, children, latest_stream and probes on a later call.

    Until then these raise NoAnswerYetError; with `patience`, only after waiting that many seconds
    for a new question. Other calls go to the service directly. `on_answer` is called for each new
    answer. One question is asked after the other, for all streams, as DescribeStream is limited;
    but one without an answer for a second delays no other. Children have their own queue, since a
    listing may have a hundred pages; so have probes, side by side. A question that has hung is not
    waited for again.
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
        """`at_start` retries a failed listing."""
        super().__init__(service)
        timing = timing or timings.BACKGROUND
        self._on_answer = on_answer
        self.patience = patience
        """The seconds to wait for the answer to a new question."""
        self._at_start = at_start
        self._timing = timing
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        hangs, most = timing.listing_hangs_seconds, timing.most_hanging
        self._listings = _Requests(1, hangs_seconds=hangs, most_hanging=most)
        self._children = _Requests(1, hangs_seconds=hangs, most_hanging=most)
        self._probes = _Requests(
            timing.probes_at_once, hangs_seconds=timing.probe_hangs_seconds, most_hanging=most
        )
        self._waited_for: set[threading.Thread] = set()
        self._answers: dict[_Question, tuple[_Found, Exception | None]] = {}
        """Each is kept until it is taken: a handler may take longer than any limit."""
        process_start.before_fork(self.wait_for_thread)

    def list_shards(self, arn: str) -> Listing:
        """See `Service`."""
        call = partial(self._service.list_shards, arn)
        if self._at_start:
            call = partial(retry_at_start, call)
        return self._asked(("listing", arn), call, self._listings)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        question = "children", arn, shard_id
        call = partial(self._service.list_children, arn, shard_id)
        return self._asked(question, call, self._children)

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        call = partial(self._service.latest_stream, table)
        return self._asked(("latest", table), call, self._listings)

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        """See `Service`; returns only the shards answered by now."""
        questions: dict[_Question, str] = {("probe", arn, each): each for each in shard_ids}
        with self._lock:
            calls: dict[_Question, Callable[[], object]] = {
                question: partial(self._probed, arn, shard_id)
                for question, shard_id in questions.items()
            }
            self._ask(self._probes, calls)
            found = [each for each in questions if each in self._answers]
            if not found:
                raise NoAnswerYetError("the service has not answered yet")
            return {questions[each]: self._taken(each) for each in found}

    def _probed(self, arn: str, shard_id: str) -> WatcherError | None:
        return self._service.probe(arn, [shard_id])[shard_id]

    def wait_for_thread(self) -> None:
        """Before a fork: waits a moment for the threads to end, once for each thread.

        A probe's thread is not waited for once it hangs; a listing, with its many pages, is.
        """
        until = time.monotonic() + self._timing.settle_seconds
        waited_for = set[threading.Thread]()
        for requests in self._listings, self._children, self._probes:
            hangs = requests.hangs_seconds if requests is self._probes else math.inf
            for thread, began in list(requests.threads.items()):
                if thread not in self._waited_for:
                    thread.join(max(0.0, min(until, began + hangs) - time.monotonic()))
                waited_for.add(thread)
        self._waited_for = {thread for thread in waited_for if thread.is_alive()}

    def _asked(
        self, question: _Question, call: Callable[[], _Answer], requests: _Requests
    ) -> _Answer:
        with self._lock:
            self._ask(requests, {question: call})
            if question not in self._answers:
                raise NoAnswerYetError("the service has not answered yet")
            found: _Answer = self._taken(question)
            return found

    def _ask(self, requests: _Requests, calls: Mapping[_Question, Callable[[], object]]) -> None:
        """Asks the questions that are neither answered nor being asked; waits for new ones."""
        new = {
            question: call
            for question, call in calls.items()
            if not (
                question in requests.waiting
                or question in requests.asked
                or question in self._answers
            )
        }
        requests.waiting.update(new)
        for _ in range(requests.missing_threads()):
            thread = threading.Thread(
                target=self._run, args=(requests,), name="background calls", daemon=True
            )
            requests.threads[thread] = time.monotonic()
            thread.start()
        if self.patience and (awaited := new.keys() - requests.have_hung):
            self._news.wait_for(lambda: awaited <= self._answers.keys(), self.patience)

    def _taken(self, question: _Question) -> _Found:
        answer, error = self._answers.pop(question)
        if error is not None:
            raise error
        return answer

    def _run(self, requests: _Requests) -> None:
        while True:
            with self._lock:
                if not requests.waiting:
                    del requests.threads[threading.current_thread()]
                    return
                question, call = requests.next()
            answer, error = None, None
            try:
                answer = call()
            except Exception as caught:
                error = caught
            with self._lock:
                requests.on_answer(question)
                self._answers[question] = answer, error
                self._news.notify_all()
            self._on_answer()
