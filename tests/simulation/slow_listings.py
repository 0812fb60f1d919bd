"""Listings, and searches of the region, that take long beside a loop that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tests.simulation.scheduler import Life
from tests.simulation.universe import Universe
from watcher.aws.arns import table_name
from watcher.aws.discovery import WantedStreams
from watcher.aws.lister import Lister
from watcher.aws.model import StreamName
from watcher.call_pool import CallPool
from watcher.runtime.stream_discovery import StreamDiscovery
from watcher.runtime.watched_stream import WatchedStream


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


class SlowRegion:
    """All of its tables have the wanted tag, which takes `slow_tags` a table to be told."""

    def __init__(self, universe: Universe, life: Life) -> None:
        self._universe = universe
        self._life = life

    def discovery(self, make_stream: Callable[[str], WatchedStream]) -> StreamDiscovery:
        """The real one; its searches go on beside the loop."""
        wanted = WantedStreams.parse((), tags=["env=prod"])
        calls = _Later(self._ask)
        return StreamDiscovery(wanted, self, make_stream, self._life, calls=calls)  # type: ignore[arg-type]

    def stream_pages(self) -> Iterator[list[StreamName]]:
        """ListStreams' answers."""
        streams = [each.table.streams[0].arn for each in self._universe.all]
        yield [StreamName(arn, table_name(arn), arn.rpartition("/")[2]) for arn in streams]

    def tags(self, table_arn: str) -> Mapping[str, str]:
        """ListTagsOfResource's answer."""
        self._life.sleep(self._universe.scenario.slow_tags)
        return {"env": "prod"}

    def _ask(self, search: Callable[[], Any]) -> Future[Any]:
        answer, waited = Future[Any](), 0.0

        def wait(seconds: float) -> bool:
            nonlocal waited
            waited += seconds
            return True

        of_main, self._life.waits = self._life.waits, wait
        found = search()
        self._life.waits = of_main
        self._universe.scheduler.after(waited, lambda: answer.set_result(found))
        return answer


class _Later(CallPool):
    def __init__(self, ask: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        super().__init__()
        self._ask = ask

    def start(self, calls: Sequence[Callable[[], Any]], few: int = 1) -> list[Future[Any]]:
        return [self._ask(call) for call in calls]


_READ_SECONDS = 3.0
