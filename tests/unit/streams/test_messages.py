"""What crosses from a worker where there is a filter: delivered, it is the same as without."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.support.play import ARN
from tests.support.wire import FIRST
from watcher.aws.counters import SharedCounters
from watcher.aws.model import Position, ShardKey, TrimHorizon
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.delivery.progress import Progress
from watcher.delivery.sequential import SequentialDelivery
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Totals
from watcher.records.page import RecordPage, decode
from watcher.records.wire import WireRecord
from watcher.runtime.stats import StatsCollector
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import WireFilter, make_page

ONE_RECORD = (
    b'{"Records":[{"eventName":"INSERT","dynamodb":{"SequenceNumber":"%d","Keys":{"k":{"S":"a"}}}}],'
    b'"NextShardIterator":"more"}' % FIRST
)


class Delivered:
    """What has become of a page at the end of its delivery."""

    def __init__(self, wanted: WireFilter, limit: int | None, *, together: bool) -> None:
        self.lines: list[bytes] = []
        self.shard = TrackedShard("a", None, TrimHorizon())
        self.totals = Totals()
        observer = Handler("lines", lambda record: self.lines.append(bytes(record.raw)))
        observer.handle_page = self.take if together else None
        figures = StatsCollector(1.0, SharedCounters(1))
        figures.counters(ShardKey(ARN, "a"))
        self.figures = figures.shards[ShardKey(ARN, "a")]
        progress = Progress(
            totals=self.totals,
            moved=figures.moved,
            wire_filter=wanted,
            max_records=limit,
        )
        self.delivery = SequentialDelivery(
            dispatcher=Dispatcher([observer], FailurePolicy()),
            progress=progress,
            heartbeat=Heartbeat(),
        )

    def take(self, page: RecordPage) -> bool:
        self.lines += map(bytes, page.raws)
        return True

    def outcome(self, limit: int | None) -> tuple[list[bytes], Position, object]:
        counts: object = self.totals, self.figures.delivered, self.figures.last
        if self.totals.records == limit:  # what a worker left out of a page counts with its end
            counts = self.totals.records
        return self.lines, self.shard.position, counts


@example(body=ONE_RECORD, unwanted={*range(10)}, limit=None, together=False, first=0)
@given(
    body=pages(),
    unwanted=st.sets(st.integers(0, 6)),
    limit=st.none() | st.integers(1, 4),
    together=st.booleans(),
    first=st.integers(0, 2),
)
def test_what_the_worker_leaves_out_is_what_the_manager_would(
    body: bytes, unwanted: set[int], limit: int | None, together: bool, first: int
) -> None:
    records = decode(body).Records
    if first >= len(records):
        return

    def wanted(record: WireRecord) -> bool:
        return int(record.dynamodb.SequenceNumber[-1]) not in unwanted

    def chosen(some: Sequence[WireRecord]) -> list[int]:
        return [place for place, record in enumerate(some) if wanted(record)]

    outcomes = []
    for test in (None, chosen):
        delivered = Delivered(wanted, limit, together=together)
        message = make_page(body, records, first, len(records), page_filter=test)
        assert message.read == len(records) - first
        delivered.delivery.submit(ShardKey(ARN, "a"), delivered.shard, message)
        delivered.delivery.deliver()
        assert delivered.delivery.has_room
        outcomes.append(delivered.outcome(limit))
    assert outcomes[0] == outcomes[1]


@given(body=pages())
def test_a_filter_that_fails_leaves_nothing_out(body: bytes) -> None:
    records = decode(body).Records

    def fail(some: Sequence[WireRecord]) -> list[int]:
        raise ValueError("no such key")

    if records:
        whole = make_page(body, records, 0, len(records), page_filter=fail)
        assert whole == make_page(body, records, 0, len(records))
