"""The items that exist, handed over in between the changes: when, and what becomes of refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.support.gate import Gate, ThreadsClock, WatchedPool
from tests.support.play import ARN, Memory, Play, Seen, Step, page
from tests.support.times import NOON
from watcher.aws.tables import SEGMENT_BYTES, Description
from watcher.delivery.concurrent import HandlerPool
from watcher.errors import (
    DeniedError,
    StreamError,
    TransientError,
    UnexpectedAnswerError,
    UsageError,
)
from watcher.records.record import Record
from watcher.streams.checkpoint_format import Token, TokenShard, TokenSnapshot
from watcher.streams.messages import ReaderEnded


class Table:
    """Two items a page of a segment; `asked` tells after which key."""

    in_threads = False

    def __init__(self, count: int = 5, segments: int = 1) -> None:
        self.size = (segments - 1) * SEGMENT_BYTES
        self.rows = [{"pk": {"S": f"k{number}"}, "n": {"N": "7"}} for number in range(count)]
        self.asked: list[str | None] = []
        self.errors: list[Exception] = []

    def describe(self) -> Description:
        keys = [{"AttributeName": "pk", "KeyType": "HASH"}]
        attributes = [{"AttributeName": "pk", "AttributeType": "S"}]
        made = datetime.fromtimestamp(0, UTC)
        return Description(keys, attributes, self.size, made, "arn now", items=len(self.rows))

    def page(self, after: Any, segment: int, segments: int) -> Any:
        self.asked.append(None if after is None else after["pk"]["S"])
        if self.errors:
            raise self.errors.pop(0)
        rows = self.rows[segment::segments]
        keys = [row["pk"] for row in rows]
        first = 0 if after is None else keys.index(after["pk"]) + 1
        found = rows[first : first + 2]
        last = {"pk": found[-1]["pk"]} if first + 2 < len(rows) else None
        return [msgspec.Raw(msgspec.json.encode(row)) for row in found], last, 1.0


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, record: Record) -> None:
        self.lines.append(f"{record.event_name[0]} {record.key['pk']}")

    @property
    def items(self) -> list[str]:
        return [line.removeprefix("S ") for line in self.lines if line.startswith("S ")]


def play(table: Table, told: Any, **settings: Any) -> Play:
    made = Play(told, items=table, **{"snapshot": True, **settings})
    made.service.add("a")
    return made


ALL = [f"k{number}" for number in range(5)]


def test_each_segment_goes_on_behind_its_last_item() -> None:
    table, told = Table(11, segments=3), Told()
    made = play(table, told, max_records=9).run(2.0)
    stored = made.store.token.snapshot
    assert stored is not None and stored.items == 9 and stored.segments is not None
    assert [each.after and each.after["pk"]["S"] for each in stored.segments] == ["k9", "k7", "k5"]
    assert told.items == ["k0", "k3", "k1", "k4", "k2", "k5", "k6", "k9", "k7"]
    # One that was not asked for it keeps what there is to do.
    play(table, told, store=made.store, snapshot=False).run(("a", page(1)), 2.0)
    # Scanned in as many segments as before, whatever the table's size is now.
    smaller = Table(11)
    made = play(smaller, told, store=made.store).run(2.0)
    assert sorted(told.items) == sorted(row["pk"]["S"] for row in table.rows)
    assert smaller.asked == ["k9", "k7", "k5"]
    assert made.store.token.snapshot == TokenSnapshot(items=11, done=True)


def test_a_limit_keeps_the_scan_to_so_many_read_units_a_second() -> None:
    table, told, counts = Table(20), Told(), list[int]()
    made = play(table, told, read_limit=0.5)
    steps = [each for _ in range(5) for each in (4.0, lambda: counts.append(len(told.lines)))]
    made.run(1.0, *steps)
    assert counts == [6, 10, 14, 18, 20]


def test_a_page_that_is_refused_is_asked_for_again_while_changes_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, told = Table(), Told()
    table.errors = [TransientError("throttled")] * 5
    made = play(table, told).run(*[step for n in range(1, 61) for step in (("a", page(n)), 1.0)])
    assert told.items == ALL
    assert len(told.lines) == 65
    assert told.lines[0] != "S k0", "the changes did not wait"
    assert len([line for line in caplog.messages if "Can't read the items of orders" in line]) == 1
    assert made.store.token.snapshot == TokenSnapshot(items=5, done=True)
    assert made.totals.kinds["SNAPSHOT"] == 5
    again = Table()
    play(again, told, store=made.store).run(2.0)
    assert again.asked == [], "once is enough"


def test_no_permission_for_the_table_is_said_at_once() -> None:
    table = Table()
    table.errors = [DeniedError("the role needs dynamodb:Scan on orders")]
    with pytest.raises(StreamError, match="dynamodb:Scan"):
        play(table, Told()).run(5.0)


def stale(told: Any, policy: str, hours: float = 30) -> tuple[Play, Table]:
    table, row = Table(), TokenShard("a", "after_sequence", "5")
    saved_at = NOON - timedelta(hours=hours)
    store = Memory(Token(ARN, ["a"], [row], saved_at, TokenSnapshot(items=5, done=True)))
    return play(table, told, snapshot=False, store=store, on_stale=policy), table


def test_a_checkpoint_that_is_too_old_ends_it_where_that_is_asked_for() -> None:
    made, _ = stale(Seen(), "fail")
    with pytest.raises(UsageError, match="checkpoint: orders: it is older than the retention"):
        made.run(1.0)
    assert stale(Seen(), "fail", hours=23)[0].run(1.0).totals.losses == 0


def test_or_has_the_items_handed_over_anew(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    made, table = stale(told, "snapshot")
    made.run(2.0)
    assert told.items == ALL
    assert table.asked == [None, "k1", "k3"]
    assert made.totals.losses == 0
    assert [line for line in caplog.messages if "removals in between are unknown" in line]
    fresh = Told()
    stale(fresh, "snapshot", hours=23)[0].run(2.0)
    assert fresh.items == []


@pytest.mark.parametrize(("threads", "segments"), [(0, 1), (3, 1), (0, 4)])
def test_no_change_is_handed_over_between_a_page_and_its_items(threads: int, segments: int) -> None:
    told, table = Told(), Table(40, segments)
    ask = table.page
    inside = list[str]()
    beside = list[list[str]]()

    def page_of(after: Any, segment: int, segments: int) -> Any:
        told.lines.append("ask")
        beside.append([*inside])
        made.clock.sleep(0.05)
        return ask(after, segment, segments)

    def observe(record: Record) -> None:
        inside.append(record.event_name)
        time.sleep(0.002 if threads else 0.0)
        if record.event_name == "SNAPSHOT":
            beside.append([*inside][1:])
        told(record)
        inside.remove(record.event_name)

    table.page = page_of  # type: ignore[method-assign]
    # Not those that are waited for: here they are to be at work at any time.
    more = {"pool": HandlerPool(threads), "clock": ThreadsClock()} if threads else {}
    made = play(table, observe, **more)
    made.service.add("b")

    def steps() -> Iterator[Step]:
        for number in range(1, 60):
            yield "ab"[number % 2], page(number)
            yield 0.02
        until = time.monotonic() + 60
        while len(told.lines) < 20 + 40 + 59 and time.monotonic() < until:
            yield 0.2
        yield from [0.2] * 5

    made.follow(steps())
    told_in_turn = "".join(line[0] for line in told.lines)
    page_and_items = "a" * segments + "SS" * segments
    between = told_in_turn.split(page_and_items)
    assert len(between) == 1 + 20 // segments and set("".join(between)) <= set("IMR")
    assert not any(beside), "nothing else is at work then"
    assert sum(map(bool, between)) > 2, "and the changes came in between, not after it all"
    assert made.store.token.snapshot == TokenSnapshot(items=40, done=True)


def test_a_handler_that_blocks_keeps_the_items_waiting_and_no_other_shard() -> None:
    table, told, gate = Table(), Told(), Gate()

    def observe(record: Record) -> None:
        if record.shard_key.shard_id == "a":
            gate(record)
        told(record)

    pool = WatchedPool(3, gate)
    made = play(table, observe, pool=pool, clock=ThreadsClock(pool))
    made.service.add("b")
    table.errors.append(TransientError("not before the changes"))
    steps = [step for number in range(2, 12) for step in (("b", page(number)), 2.0)]
    free = (lambda: told.lines.append("free"), gate.let(-1))
    made.run(("a", page(1)), gate.begins(1), *steps, *free, *[1.0] * 30)
    assert told.lines.index("free") == 10 and told.items == ALL


def test_a_table_that_is_deleted_during_its_snapshot_keeps_no_watch() -> None:
    table, told = Table(9), Told()

    def handle(record: Record) -> None:
        told(record)
        table.errors = [UnexpectedAnswerError("Requested resource not found")] * 99
        made.service.status = "DISABLED"

    made = play(table, handle)
    made.run(2.0, ("a", ReaderEnded(True)), ("a", None), *[2.0] * 60)
    assert not made.totals.stopped and told.items == ["k0", "k1"]
