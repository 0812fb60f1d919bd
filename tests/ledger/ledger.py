"""A table that is written to at random, and a ledger of what was written when."""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.model import WireItem
from watcher.aws.tables import Condition, Key, TablesClient, Written
from watcher.records.record import native_item
from watcher.streams.checkpoint_format import Token, TokenShard
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.undo_plan import is_same

Item = dict[str, Any]


class Ledger:
    """Writes to a simulator, several times a second to some of its items, and notes it all."""

    def __init__(self, seed: int, keys: int = 40) -> None:
        self.clock = HandClock()
        self.random = random.Random(seed)
        self.simulator = Simulator(table="orders", shards=2, seed=seed, clock=self.clock.time)
        self.now: dict[str, Item] = {}
        self._keys = [f"item-{number}" for number in range(keys)]
        self.past: dict[str, list[tuple[int, Item | None]]] = {}

    def __enter__(self) -> Ledger:
        self.simulator.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.simulator.stop()

    @property
    def connection(self) -> AwsConfig:
        return AwsConfig(region="us-east-1", endpoint_url=self.simulator.endpoint)

    def items(self) -> dict[str, Item]:
        """The table itself, as it is now."""
        client = TablesClient(self.connection)
        return by_key(native_item(raw) for page in client.scan("orders", 0, 1) for raw in page)

    def without(self, first: int, last: int) -> tuple[dict[str, Item], set[str]]:
        """The table as it would be without the changes from `first` to `last`; who conflicts."""
        found: dict[str, Item] = {}
        conflicts = set()
        for key, past in self.past.items():
            states = [None, *(item for _, item in past)]
            chosen = [at for at, (second, _) in enumerate(past) if first <= second <= last]
            final = states[-1]
            if chosen:
                before = states[chosen[0]]
                if chosen[-1] == len(past) - 1:
                    final = before
                elif not same(before, final):
                    conflicts.add(key)  # changed since, whatever it looks like now
            if final is not None:
                found[key] = native(final)
        return found, conflicts

    @property
    def second(self) -> int:
        return int(self.clock.time())

    def write(self, count: int, a_second: int = 5) -> None:
        """So many changes, and so many of them a second; shards rotate and split meanwhile."""
        for _ in range(count):
            self.clock.sleep(1 / a_second)
            chance = self.random.random()
            if chance < 0.002:
                self.simulator.rotate("all")
            elif chance < 0.004 and len(self.simulator.open_shards) < 6:
                self.simulator.split()
            # A hot item gets every fourth change.
            self.change(self._keys[0] if self.random.random() < 0.25 else self.any_key())

    def any_key(self) -> str:
        return self.random.choice(self._keys)

    def change(self, key: str, item: Item | None = None) -> None:
        """Put the item, or one by chance, or remove it."""
        if item is None and key in self.now and self.random.random() < 0.3:
            self.simulator.remove(key, ttl=self.random.random() < 0.3)
            self.note(key, None)
            return
        item = item or {"pk": {"S": key}, **an_item(self.random)}
        self.simulator.put(item)
        self.note(key, item)

    def note(self, key: str, item: Item | None) -> None:
        """A change that was made just now, by whomever."""
        self.past.setdefault(key, []).append((self.second, item))
        if item is None:
            self.now.pop(key, None)
        else:
            self.now[key] = item

    def at(self, second: int) -> dict[str, Item]:
        """The items as they were when this second ended, as native values."""
        found = {}
        for key, past in self.past.items():
            place = bisect_right(past, second, key=lambda each: each[0])
            item = past[place - 1][1] if place else None
            if item is not None:
                found[key] = native(item)
        return found

    def token(self) -> Token:
        """The position behind all that was written so far."""
        last: dict[str, str] = {
            each.shard_id: each.sequence_number for each in self.simulator.records
        }
        shards = [
            TokenShard(
                shard.id,
                "after_sequence" if shard.id in last else "trim_horizon",
                last.get(shard.id),
                shard.parent,
            )
            for shard in self.simulator.shards
            if not shard.is_gone
        ]
        return Token(self.simulator.stream_arn, [each.shard_id for each in shards], shards)

    def settle(self) -> None:
        """Some time without changes: what was written can't be late any more."""
        self.clock.sleep(60)

    def sources(
        self, tables: TablesClient | None = None, clock: HandClock | None = None
    ) -> Sources:
        """The table as the time machine reads it, on this clock or another."""
        stream = StreamSource(
            self.simulator.stream_arn,
            StreamsClient(self.connection),
            tables or TablesClient(self.connection),
            clock=clock or self.clock,
        )
        return Sources([], stream, strict=True)


class DisturbedTables(TablesClient):
    """A client that lets something happen after each page of a scan, and before each write."""

    def __init__(
        self,
        ledger: Ledger,
        happens: Callable[[], object] = lambda: None,
        before_write: Callable[[str], object] = lambda key: None,
        after_write: Callable[[str], object] = lambda key: None,
    ) -> None:
        super().__init__(ledger.connection)
        self.ledger = ledger
        self._happens = happens
        self._before_write = before_write
        self._after_write = after_write
        self._lock = threading.Lock()

    def scan(
        self,
        table: str,
        segment: int,
        segments: int,
        *,
        on_units: Callable[[float], None] | None = None,
    ) -> Iterator[list[msgspec.Raw]]:
        self._happens()
        yield from super().scan(table, segment, segments, on_units=on_units)

    def page(
        self, table: str, after: Key | None, **query: object
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        found = super().page(table, after, **{"Limit": 10, **query})
        self._happens()
        return found

    def put(self, table: str, item: WireItem, condition: Condition) -> Written | None:
        with self._lock:
            self._before_write(item["pk"]["S"])
            done = super().put(table, item, condition)
            self._after_write(item["pk"]["S"])
            return done

    def delete(self, table: str, key: WireItem, condition: Condition) -> Written | None:
        with self._lock:
            self._before_write(key["pk"]["S"])
            done = super().delete(table, key, condition)
            self._after_write(key["pk"]["S"])
            return done


def same(one: Item | None, other: Item | None) -> bool:
    return is_same(_json(one), _json(other))


def _json(item: Item | None) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(item))


def native(item: Item) -> Item:
    return native_item(msgspec.json.encode(item))


def by_key(items: Any) -> dict[str, Item]:
    found = {}
    for item in items:
        assert item["pk"] not in found, "an item twice"
        found[item["pk"]] = item
    return found


def an_item(chance: random.Random) -> Item:
    """Some attributes, of all types."""
    names = chance.sample(["a", "b", "c", "d", "e e", "ü", "f.g", "#h"], chance.randint(0, 5))
    return {name: a_value(chance) for name in names}


def a_value(chance: random.Random, depth: int = 0) -> Item:
    number = str(chance.randint(-5, 5)), f"{chance.randint(1, 9)}.25", "1E+20", "0"
    scalars: list[Item] = [
        {"S": chance.choice(["", "x", "é\n", "\u2028", "long " * 20])},
        {"N": chance.choice(number)},
        {"B": chance.choice(["", "AAE=", "/////w=="])},
        {"BOOL": chance.random() < 0.5},
        {"NULL": True},
        {"SS": chance.sample(["a", "b", "c"], chance.randint(1, 3))},
        {"NS": chance.sample(["1", "2", "3.5"], chance.randint(1, 3))},
        {"BS": chance.sample(["AA==", "AQ==", "Ag=="], chance.randint(1, 3))},
    ]
    if depth < 3 and chance.random() < 0.3:
        some = [a_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
        whole: Item = {"L": some}
        return whole if chance.random() < 0.5 else {"M": {str(n): v for n, v in enumerate(some)}}
    return chance.choice(scalars)
