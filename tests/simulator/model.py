"""Tables, streams, shards and records as DynamoDB keeps them: no sockets, no threads."""

import json
import random
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .errors import not_found
from .naming import ACCOUNT, NAMINGS, REGION

VIEW_TYPES = ("KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
HASH_SPACE = 1 << 32
# The first numbers have 21 digits and soon 22, so that comparing them as text shows.
FIRST_NUMBER = 10**21 - 500_000
NUMBER_STEP = 1000
TTL_IDENTITY = {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}


class Written(NamedTuple):
    """One record of the ground truth."""

    shard_id: str
    sequence_number: str
    key: str
    version: int


@dataclass(slots=True)
class Shard:
    """One shard; its records are parallel lists, because a run holds a million of them."""

    id: str
    parent: str | None
    low: int
    high: int
    generation: int
    created: float
    start: int
    lag_share: float
    closed: float | None = None
    end: int | None = None
    gone: bool = False
    is_anew: bool = False
    takes_any: bool = False  # a number that it does not have is as good as its first one
    first: int = 0  # the oldest record still in retention
    numbers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def begin_anew(self, start: int, takes_any: bool) -> None:
        """Forget all records and the parent, and number from here; positions are not checked."""
        self.start, self.first, self.is_anew, self.takes_any = start, 0, True, takes_any
        self.parent = None
        for each in (self.numbers, self.times, self.bodies, self.keys, self.versions):
            each.clear()

    def trim(self, upto: int) -> int:
        """Forget the records before this index; answer how many they were."""
        upto = min(upto, len(self.numbers))
        count = max(0, upto - self.first)
        for index in range(self.first, upto):
            self.bodies[index] = b""
        self.first = max(self.first, upto)
        return count

    def expire(self, horizon: float) -> None:
        """Forget what is older than the horizon, and the shard itself if nothing can follow."""
        times, upto = self.times, self.first
        if upto < len(times) and times[upto] < horizon:
            while upto < len(times) and times[upto] < horizon:
                upto += 1
            self.trim(upto)
        if self.closed is not None and self.closed < horizon and self.first == len(times):
            self.gone = True

    def written(self) -> Iterator[tuple[int, Written]]:
        for number, key, version in zip(self.numbers, self.keys, self.versions, strict=True):
            yield number, Written(self.id, str(number), key, version)


class Stream:
    """A stream: its open shards share the hash space of the keys among them."""

    def __init__(self, world: "World", table: "Table", shards: int, view_type: str) -> None:
        self._world = world
        self.table = table
        self.view_type = view_type
        self.created = world.now()
        self.label = world.label()
        self.arn = world.naming.stream(table.arn, self.label)
        self.status = "ENABLED"
        self.disabled: float | None = None
        self.shards: dict[str, Shard] = {}
        self._open: list[Shard] = []
        self._lows: list[int] = []
        self._owners: dict[str, Shard] = {}
        self._replace(None, shards)

    @property
    def open_shards(self) -> list[Shard]:
        return list(self._open)

    def is_kept(self, horizon: float) -> bool:
        """A disabled stream stays readable until its last records are too old."""
        return self.disabled is None or self.disabled >= horizon

    def shard(self, shard_id: str) -> Shard:
        shard = self.shards.get(shard_id)
        if shard is None or shard.gone:
            raise not_found(f"Shard does not exist: {shard_id} in Stream: {self.arn}")
        return shard

    def owner(self, key: str) -> Shard:
        shard = self._owners.get(key)
        if shard is None:
            place = zlib.crc32(key.encode("utf-8", "surrogatepass"))
            shard = self._owners[key] = self._open[bisect_right(self._lows, place) - 1]
        return shard

    def split(self, shard_id: str | None = None, into: int = 2) -> list[Shard]:
        """Close an open shard (by chance if not named) and open its children."""
        shard = self._world.rng.choice(self._open) if shard_id is None else self.shard(shard_id)
        if shard.closed is not None:
            raise ValueError(f"{shard.id} is closed already")
        if shard.high - shard.low < into:
            raise ValueError(f"{shard.id} is too narrow to be split into {into}")
        return self._replace(shard, into)

    def begin_anew(
        self, dated: bool = True, takes_any: bool = False, first: int = FIRST_NUMBER // 2
    ) -> None:
        """As an emulator's restart: the same ARN and shards, without records, numbered anew.

        Its creation time tells, if it is `dated`. By default its numbers are lower than ever.
        """
        if dated:
            self.created = self._world.now()
        self._world.number_from(first)
        self.shards = {shard.id: shard for shard in self._open}
        for shard in self._open:
            shard.begin_anew(self._world.next_number(), takes_any)

    def disable(self) -> None:
        for shard in self._open:
            self._close(shard)
        self._settle([])
        self.status, self.disabled = "DISABLED", self._world.now()

    def trim(self, records: int | None, shard_id: str | None) -> int:
        """Drop the oldest records (all: None) of a shard or of the whole stream."""
        shards = [s for s in self.shards.values() if shard_id in (None, s.id) and not s.gone]
        kept = sorted((number, shard.id) for shard in shards for number in self._kept(shard))
        dropped = kept if records is None else kept[:records]
        for shard in shards:
            last = max((number for number, owner in dropped if owner == shard.id), default=0)
            shard.trim(bisect_right(shard.numbers, last))
            if records is None and shard_id is None and shard.closed is not None:
                shard.gone = True
        return len(dropped)

    def drop(self, shard_id: str) -> None:
        """Make a closed shard vanish, records and all."""
        shard = self.shard(shard_id)
        if shard.closed is None:
            raise ValueError(f"{shard_id} is open: the service drops only closed shards")
        shard.trim(len(shard.numbers))
        shard.gone = True

    def expire(self, horizon: float) -> None:
        for shard in self.shards.values():
            if not shard.gone:
                shard.expire(horizon)

    @staticmethod
    def _kept(shard: Shard) -> Sequence[int]:
        return shard.numbers[shard.first :]

    def _replace(self, parent: Shard | None, into: int) -> list[Shard]:
        if parent is not None:
            self._close(parent)
        low, high = (parent.low, parent.high) if parent else (0, HASH_SPACE)
        width = high - low
        edges = [low + width * i // into for i in range(into + 1)]
        children = [self._born(parent, edges[i], edges[i + 1]) for i in range(into)]
        self._settle([shard for shard in self._open if shard is not parent] + children)
        return children

    def _born(self, parent: Shard | None, low: int, high: int) -> Shard:
        world = self._world
        now = world.now()
        shard = Shard(
            id=world.naming.shard(int(now * 1000), world.rng.getrandbits(32)),
            parent=parent.id if parent else None,
            low=low,
            high=high,
            generation=parent.generation + 1 if parent else 0,
            created=now,
            start=world.next_number(),
            lag_share=world.rng.random(),
        )
        self.shards[shard.id] = shard
        return shard

    def _close(self, shard: Shard) -> None:
        world = self._world
        shard.closed = world.now()
        last = shard.numbers[-1] if shard.numbers else shard.start
        shard.end = world.next_number() if world.ending_past_last else last

    def _settle(self, shards: list[Shard]) -> None:
        self._open = sorted(shards, key=lambda shard: shard.low)
        self._lows = [shard.low for shard in self._open]
        self._owners.clear()


class Table:
    """A table: its items as the JSON of their images, and its streams, newest last."""

    def __init__(
        self, world: "World", name: str, key_names: Sequence[str], account: str = ACCOUNT
    ) -> None:
        self._world = world
        self.account = account
        self.name = name
        self.key_names = tuple(key_names)
        self.arn = world.naming.table(name, account)
        self.created = world.now()
        self.streams: list[Stream] = []
        self.ttl_attribute: str | None = None
        self.is_replicated = False
        self.versions: dict[str, int] = {}
        """How often each key was written."""
        self._images: dict[str, str] = {}
        self._keys: dict[str, str] = {}  # the JSON of the Keys map

    @property
    def stream(self) -> Stream:
        if not self.streams:
            raise ValueError(f"table {self.name} has no stream")
        return self.streams[-1]

    def enable(self, shards: int, view_type: str) -> Stream:
        if view_type not in VIEW_TYPES:
            raise ValueError(f"{view_type} is not one of {', '.join(VIEW_TYPES)}")
        if self.streams and self.stream.disabled is None:
            self.stream.disable()
        stream = Stream(self._world, self, shards, view_type)
        self.streams.append(stream)
        self._world.streams[stream.arn] = stream
        return stream

    def delete_stream(self) -> None:
        del self._world.streams[self.streams.pop().arn]

    def write(self, key: str, n: int = 1, size: int = 0, remove_every: int = 0) -> list[str]:
        """Change an item n times; its attribute `v` counts the changes."""
        name = self.key_names[0]
        more = "".join(f',"{other}":{{"S":"-"}}' for other in self.key_names[1:])
        text = self._keys.get(key) or f'{{"{name}":{{"S":{compact(key)}}}{more}}}'
        self._keys[key] = text
        pad = f',"pad":{{"S":"{"x" * size}"}}}}' if size else "}"
        numbers: list[str] = []
        for _ in range(n):
            version = self.versions.get(key, 0) + 1
            if remove_every and version % remove_every == 0 and key in self._images:
                image = None
            else:
                image = f'{text[:-1]},"v":{{"N":"{version}"}}{pad}'
            numbers.append(self._change(key, text, image, version))
        return numbers

    def bulk(self, count: int, keys: int, size: int, remove_every: int, first: int) -> None:
        """Write many changes, round about the keys k0, k1, …"""
        for index in range(first, first + count):
            self.write(f"k{index % keys}", 1, size, remove_every)

    def put(self, item: Mapping[str, Any]) -> str:
        """Put a whole item in wire form (`{"pk": {"S": "a"}, …}`): INSERT or MODIFY."""
        names = {name: item[name] for name in self.key_names}
        key = self._key_of(names)
        text = self._keys[key] = compact(names)
        return self._change(key, text, compact(item), self.versions.get(key, 0) + 1)

    def modify(self, key: str, attributes: Mapping[str, Any]) -> str:
        """Set some attributes of an item that is there."""
        image = json.loads(self._images[key]) | attributes
        return self._change(key, self._keys[key], compact(image), self.versions[key] + 1)

    def remove(self, key: str, ttl: bool = False) -> str:
        identity = compact(TTL_IDENTITY) if ttl else ""
        if key not in self._images:
            raise ValueError(f"there is no item {key}")
        return self._change(key, self._keys[key], None, self.versions.get(key, 0) + 1, identity)

    def append(self, record: Mapping[str, Any], shard_id: str | None = None) -> str:
        """Add a record as it is; a missing sequence number or time is filled in."""
        body = dict(record)
        inner = body["dynamodb"] = dict(body.get("dynamodb", {}))
        number = int(inner.setdefault("SequenceNumber", str(self._world.next_number())))
        time = inner.setdefault("ApproximateCreationDateTime", self._world.stamp())
        body.setdefault("eventID", f"{self._world.lives}{number:031x}")
        key = self._key_of(inner.get("Keys", {}))
        shard = self.stream.shard(shard_id) if shard_id else self.stream.owner(key)
        self._store(shard, number, time, compact(body).encode(), key, 0)
        return str(number)

    def names(self) -> list[str]:
        """The names of the items that there are."""
        return list(self._images)

    def image_of(self, name: str) -> str:
        return self._images[name]

    def image(self, keys: Mapping[str, Any]) -> str | None:
        """An item's JSON, by its key in wire form."""
        return self._images.get(self.name_of(keys))

    def name_of(self, keys: Mapping[str, Any]) -> str:
        """What an item is called here, by its key in wire form."""
        return self._key_of({name: keys[name] for name in self.key_names})

    def written(self) -> list[Written]:
        shards = [shard for stream in self.streams for shard in stream.shards.values()]
        return [record for _, record in sorted(pair for s in shards for pair in s.written())]

    def _key_of(self, keys: Mapping[str, Any]) -> str:
        """A lone string key is named by its value, all others by their JSON."""
        if len(keys) == 1:
            value = next(iter(keys.values()))
            if isinstance(value, dict) and isinstance(value.get("S"), str):
                return str(value["S"])
        return compact(keys)

    def _change(
        self, key: str, keys: str, image: str | None, version: int, identity: str = ""
    ) -> str:
        old = self._images.pop(key, None)
        self.versions[key] = version
        if image is not None:
            self._images[key] = image
        if not self.streams or self.streams[-1].disabled is not None:
            return ""  # a change nobody records
        stream = self.streams[-1]
        number, time = self._world.next_number(), self._world.stamp()
        stamp = self._world.perhaps_ahead(time)
        event = "REMOVE" if image is None else "INSERT" if old is None else "MODIFY"
        view = stream.view_type
        new_part = f',"NewImage":{image}' if image is not None and "NEW" in view else ""
        old_part = f',"OldImage":{old}' if old is not None and "OLD" in view else ""
        size = len(keys) + len(new_part) + len(old_part)
        who = f',"userIdentity":{identity}' if identity else ""
        body = (
            f'{{"eventID":"{self._world.lives}{number:031x}","eventName":"{event}","eventVersion":"1.1",'
            f'"eventSource":"aws:dynamodb","awsRegion":"{REGION}","dynamodb":{{'
            f'"ApproximateCreationDateTime":{stamp},"Keys":{keys}{new_part}{old_part},'
            f'"SequenceNumber":"{number}","SizeBytes":{size},"StreamViewType":"{view}"}}{who}}}'
        )
        self._store(stream.owner(key), number, time, body.encode(), key, version)
        return str(number)

    @staticmethod
    def _store(shard: Shard, number: int, time: float, body: bytes, key: str, version: int) -> None:
        shard.numbers.append(number)
        shard.times.append(time)
        shard.bodies.append(body)
        shard.keys.append(key)
        shard.versions.append(version)


class World:
    """All tables of a region, with one clock and one source of chance.

    `tables` has those of the caller's account by their names, all others by their ARNs.
    """

    def __init__(self, clock: Callable[[], float], seed: int, naming: str = "aws") -> None:
        self.naming = NAMINGS[naming]
        self._clock = clock
        self._ahead = 0.0
        self._number = FIRST_NUMBER
        self.lives = 0
        self._labels = 0
        self._last_stamp = 0.0
        self.rng = random.Random(seed)
        self.granularity = 1.0
        self.ending_past_last = True
        self.ahead_rate = 0.0
        self.tables: dict[str, Table] = {}
        self.streams: dict[str, Stream] = {}

    def now(self) -> float:
        return self._clock() + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass at once: iterators, records and shards age."""
        self._ahead += seconds

    def stamp(self) -> float:
        """The approximate creation time of a record made now; it never goes back."""
        now = self.now()
        if self.granularity:
            now -= now % self.granularity
            now = int(now) if self.granularity >= 1 else now
        self._last_stamp = max(self._last_stamp, now)
        return self._last_stamp

    def perhaps_ahead(self, time: float) -> float:
        """What is written as a record's creation time: the clock of some is an hour ahead."""
        is_ahead = self.ahead_rate and self.rng.random() < self.ahead_rate
        return time + 3600 if is_ahead else time

    def number_from(self, number: int) -> None:
        """Give higher numbers than this one from now on, with other events' ids than before."""
        self._number = number
        self.lives += 1

    def next_number(self) -> int:
        self._number += NUMBER_STEP
        return self._number

    def label(self) -> str:
        """A stream's label: its creation time, kept apart from its predecessors'."""
        self._labels += 1
        moment = datetime.fromtimestamp(int(self.now()), UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{self._labels:03d}"

    def add_table(self, name: str, key_names: Sequence[str] = ("pk",)) -> Table:
        table = self.tables[name] = Table(self, name, key_names)
        return table

    def add_foreign_table(self, name: str, account: str) -> Table:
        """A table of another account, whose policy allows the caller everything."""
        table = Table(self, name, ("pk",), account)
        self.tables[table.arn] = table
        return table

    def stream(self, arn: str, retention: float) -> Stream:
        stream = self.streams.get(arn)
        if stream is None or not stream.is_kept(self.now() - retention):
            raise not_found(f"Stream: {arn} not found")
        return stream


def compact(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: DynamoDB answers its escape
        text = json.dumps(value, separators=(",", ":"))
    return text
