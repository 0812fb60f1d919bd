"""Listings that take long, beside a loop that does not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tests.simulation.scheduler import Life
from tests.simulation.universe import Universe
from watcher.aws.lister import Lister
from watcher.call_pool import CallPool


class SlowLister(Lister):
    """The real one; what its calls say is of the moment when they are asked."""

    def __init__(self, universe: Universe, life: Life, on_answer: Callable[[], object]) -> None:
        super().__init__(universe.client(self._wait, _READ_SECONDS), on_answer)
        self._universe = universe
        self._life = life
        self._seconds = 0.0
        self._listings = self._children = _Later(self._ask)

    def _wait(self, seconds: float) -> None:
        self._seconds += seconds

    def _ask(self, call: Callable[[], Any]) -> Future[Any]:
        self._life.check()
        self._seconds = self._universe.rng.random() * self._universe.scenario.slow_listings
        answer: Future[Any] = Future()
        try:
            found, failed = call(), None
        except Exception as error:
            found, failed = None, error

        def arrives() -> None:
            if self._life.killed:
                return
            if failed is None:
                answer.set_result(found)
            else:
                answer.set_exception(failed)

        self._universe.scheduler.after(self._seconds, arrives)
        return answer


class _Later(CallPool):
    def __init__(self, ask: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        super().__init__()
        self._ask = ask

    def start(self, calls: Sequence[Callable[[], Any]], few: int = 1) -> list[Future[Any]]:
        return [self._ask(call) for call in calls]


_READ_SECONDS = 3.0
