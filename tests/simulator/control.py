"""The simulator as tests see it, in a thread of their process."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Self

from .faults import Faults
from .model import World, Written
from .naming import REGION
from .server import Server
from .service import Reply, Service

_BULK = 2000  # changes written in one go: a reader waits no longer than for these


class ShardState(NamedTuple):
    """A shard as it is (not as the listing shows it)."""

    id: str
    parent: str | None
    is_open: bool
    records: int  # still readable
    written: int
    is_gone: bool


class Simulator:
    """A table and its stream: `with Simulator(shards=4) as sim:` serves them on loopback."""

    def __init__(
        self,
        *,
        table: str = "orders",
        key_names: Sequence[str] = ("pk",),
        shards: int = 1,
        view_type: str = "NEW_AND_OLD_IMAGES",
        seed: int = 0,
        faults: Faults | None = None,
        clock: Callable[[], float] = time.time,
        port: int = 0,
        naming: str = "aws",
    ) -> None:
        self._world = World(clock, seed, naming)
        self._table = self._world.add_table(table, key_names)
        if shards:
            self._table.enable(shards, view_type)
        self._service = Service(self._world, faults or Faults())
        self._lock = threading.RLock()
        self._port = port
        self._server: Server | None = None
        self.endpoint = ""

    def start(self) -> Self:
        self._server = Server(self._service, self._lock)
        self.endpoint = f"http://127.0.0.1:{self._server.start(self._port)}"
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def answer(self, target: str, body: bytes, access_key: str | None) -> Reply:
        """What comes of a request, for who has a server of their own."""
        with self._lock:
            return self._service.answer(target, body, access_key)

    # Writing. Sequence numbers are answered; they are empty while the stream is disabled.

    def write(self, key: str, n: int = 1, *, size: int = 0, remove_every: int = 0) -> list[str]:
        """Change an item n times; `v` counts its changes, also those that remove it."""
        with self._lock:
            return self._table.write(key, n, size, remove_every)

    def bulk(
        self, count: int, *, keys: int = 1000, size: int = 0, remove_every: int = 0, begin: int = 0
    ) -> None:
        """Change the items k0, k1, … in turn, beginning anywhere."""
        for first in range(begin, begin + count, _BULK):
            part = min(_BULK, begin + count - first)
            with self._lock:
                self._table.bulk(part, keys, size, remove_every, first)

    def put(self, item: Mapping[str, Any]) -> str:
        """Put an item given in wire form: {"pk": {"S": "a"}, "data": {"B": "AAE="}}."""
        with self._lock:
            return self._table.put(item)

    def modify(self, key: str, attributes: Mapping[str, Any]) -> str:
        with self._lock:
            return self._table.modify(key, attributes)

    def remove(self, key: str, *, ttl: bool = False) -> str:
        """Remove an item; with `ttl` as DynamoDB does when it expires."""
        with self._lock:
            return self._table.remove(key, ttl)

    def replicate(self, ttl_attribute: str | None = None) -> None:
        """Make the table a replica of a global table; TTL removals elsewhere come as `remove`."""
        with self._lock:
            self._table.is_replicated, self._table.ttl_attribute = True, ttl_attribute

    def append(self, record: Mapping[str, Any], shard_id: str | None = None) -> str:
        """Add a wire record as it is."""
        with self._lock:
            return self._table.append(record, shard_id)

    # Shards and streams

    def split(self, shard_id: str | None = None, into: int = 2) -> list[str]:
        """Split an open shard (one by chance); answer the children."""
        with self._lock:
            return [shard.id for shard in self._table.stream.split(shard_id, into)]

    def rotate(self, shard_id: str | None = None) -> list[str]:
        """Close an open shard (one by chance, or "all") and open its only child."""
        if shard_id != "all":
            return self.split(shard_id, 1)
        with self._lock:
            stream = self._table.stream
            return [stream.split(shard.id, 1)[0].id for shard in stream.open_shards]

    def trim(self, records: int | None = None, shard_id: str | None = None) -> int:
        """Drop the oldest records, of a shard or of all; None: all, closed shards too."""
        with self._lock:
            return self._table.stream.trim(records, shard_id)

    def drop_shard(self, shard_id: str) -> None:
        """Make a closed shard vanish."""
        with self._lock:
            self._table.stream.drop(shard_id)

    def disable_stream(self) -> None:
        with self._lock:
            self._table.stream.disable()

    def delete_stream(self) -> None:
        with self._lock:
            self._table.delete_stream()

    def begin_anew(self, *how: bool, **more: Any) -> None:
        """Restart like an emulator: see `Stream.begin_anew`."""
        with self._lock:
            self._table.stream.begin_anew(*how, **more)

    def enable_new_stream(self, shards: int = 1, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        """Give the table a new stream (disabling its old one); answer the ARN."""
        with self._lock:
            return self._table.enable(shards, view_type).arn

    def add_table(self, name: str, shards: int = 1, *, key: str = "pk") -> str | None:
        """Add another table; answer its stream's ARN (shards=0: no stream)."""
        with self._lock:
            table = self._world.add_table(name, (key,))
            return table.enable(shards, "NEW_AND_OLD_IMAGES").arn if shards else None

    def add_foreign_table(self, name: str, account: str, records: int = 0) -> str:
        """Add a table of another account, with changes of an item `a`; answer its stream's ARN."""
        with self._lock:
            table = self._world.add_foreign_table(name, account)
            arn = table.enable(1, "NEW_AND_OLD_IMAGES").arn
            table.write("a", records)
            return arn

    def advance(self, seconds: float) -> None:
        """Let the service's time pass: iterators, records and shards age."""
        with self._lock:
            self._world.advance(seconds)

    # Faults

    def set_faults(self, **changes: Any) -> None:
        """Change some settings (the names are those of Faults)."""
        self.faults = replace(self.faults, **changes)

    @contextmanager
    def faulty(self, **changes: Any) -> Iterator[None]:
        """Change some settings for a while."""
        before = self.faults
        self.set_faults(**changes)
        try:
            yield
        finally:
            self.faults = before

    def fail_next(
        self, operation: str, error: str, times: int = 1, shard_id: str | None = None
    ) -> None:
        """Let the next calls fail: an error code, or empty, hang, drip, reset, reset-midway,
        truncate, invalid-json, unavailable (503 without JSON), or one of errors.ODD."""
        with self._lock:
            self._service.fail_next(operation, error, times, shard_id)

    @property
    def faults(self) -> Faults:
        return self._service.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        with self._lock:
            self._service.set_faults(faults)

    # What there is, and what was asked

    @property
    def table_name(self) -> str:
        return self._table.name

    @property
    def table_arn(self) -> str:
        return self._table.arn

    @property
    def stream_arn(self) -> str:
        return self._table.stream.arn

    @property
    def now(self) -> float:
        return self._world.now()

    @property
    def shards(self) -> list[ShardState]:
        with self._lock:
            return [
                ShardState(
                    *(s.id, s.parent, s.closed is None),
                    *(len(s.numbers) - s.first, len(s.numbers), s.gone),
                )
                for s in self._table.stream.shards.values()
            ]

    @property
    def open_shards(self) -> list[str]:
        return [shard.id for shard in self.shards if shard.is_open]

    @property
    def records(self) -> list[Written]:
        """Everything ever written (trimmed or not), in order."""
        with self._lock:
            return self._table.written()

    @property
    def calls(self) -> Counter[str]:
        with self._lock:
            return Counter(self._service.calls)

    @property
    def injected(self) -> Counter[str]:
        """How often each fault hit."""
        with self._lock:
            return Counter(self._service.injected)

    @property
    def in_flight(self) -> int:
        return 0 if self._server is None else self._server.in_flight

    # Reaching it

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def set_environment(self, setenv: Callable[[str, str], None]) -> None:
        """Has boto3, in this process, come here."""
        for name, value in self.environment.items():
            setenv(name, value)

    def client(self, service: str = "dynamodbstreams", access_key: str = "test") -> Any:
        """A boto3 client without retries."""
        import boto3  # here, since it is most of what the start of such a process would cost
        from botocore.config import Config

        once = Config(retries={"total_max_attempts": 1}, connect_timeout=60, read_timeout=60)
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key="test",
            config=once,
        )
