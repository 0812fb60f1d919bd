"""Lists shards, and looks for streams, for a loop that must not wait for the answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from watcher.aws.counters import Counters
from watcher.aws.model import Listing, Position, Service, Shard
from watcher.call_pool import CallPool
from watcher.errors import NoAnswerYetError

_Question = tuple[str, ...]
_Answer = TypeVar("_Answer")

# Listings share DescribeStream's limit, and one that hangs delays no other.
LISTINGS_AT_ONCE = 4


class Lister:
    """Answers listings, children and latest_stream on a later call, in the loop's thread.

    Until then these raise NoAnswerYetError; with `patience`, only after waiting that many seconds
    for a new question. Other calls go to the service directly. `on_answer` is called for each new
    answer, which is kept until it is taken: a handler may take longer than any limit. Children do
    not wait for listings, which may have a hundred pages.
    """

    def __init__(
        self,
        service: Service,
        on_answer: Callable[[], object] = lambda: None,
        patience: float = 0.0,
    ) -> None:
        self._service = service
        self._on_answer = on_answer
        self._patience = patience
        self._listings = CallPool(most=LISTINGS_AT_ONCE)
        self._children = CallPool(most=LISTINGS_AT_ONCE)
        self._asked: dict[_Question, Future[Any]] = {}

    def list_shards(self, arn: str) -> Listing:
        """See `Service`."""
        call = partial(self._service.list_shards, arn)
        return self._answer(self._listings, ("listing", arn), call)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        """See `Service`."""
        call = partial(self._service.list_children, arn, shard_id)
        return self._answer(self._children, ("children", arn, shard_id), call)

    def latest_stream(self, table: str) -> str:
        """See `Service`."""
        call = partial(self._service.latest_stream, table)
        return self._answer(self._listings, ("latest", table), call)

    @property
    def counters(self) -> Counters:
        """See `Service`."""
        return self._service.counters

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        """See `Service`."""
        return self._service.get_iterator(arn, shard_id, position)

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        """See `Service`."""
        return self._service.get_records(iterator, limit)

    def prefetch_records(self, iterator: str) -> Callable[[], bytes] | None:
        """See `Service`."""
        return self._service.prefetch_records(iterator)

    def renew_credentials(self) -> None:
        """See `Service`."""
        self._service.renew_credentials()

    def renew_expiring(self) -> None:
        """See `Service`."""
        self._service.renew_expiring()

    def _answer(self, pool: CallPool, question: _Question, call: Callable[[], _Answer]) -> _Answer:
        if question not in self._asked:
            (asked,) = pool.start([call], few=0)
            self._asked[question] = asked
            on_answer = self._on_answer
            asked.add_done_callback(lambda _: on_answer())
            if self._patience:
                futures.wait([asked], self._patience)
        if not self._asked[question].done():
            raise NoAnswerYetError("the service has not answered yet")
        answer: _Answer = self._asked.pop(question).result()
        return answer
