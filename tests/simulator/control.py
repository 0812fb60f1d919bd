"""The simulator as tests see it: in a thread of this process, or as a process of its own."""

import json
import os
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import prefork

from .faults import Faults
from .model import World, Written
from .naming import REGION
from .server import Server
from .service import Call, Service

_ROOT = Path(__file__).parents[2]
_BULK = 2000  # changes written in one go: a reader waits no longer than for these
_RECORDS = 50_000


class ShardState(NamedTuple):
    """A shard as it is (not as the listing shows it)."""

    id: str
    parent: str | None
    is_open: bool
    records: int  # still readable
    written: int
    is_gone: bool


class Control(ABC):
    """What a test can do with a simulator, wherever it runs."""

    endpoint: str

    @abstractmethod
    def _do(self, command: str, **parameters: Any) -> Any:
        """Carry out one command in the simulator."""

    # Writing. Sequence numbers are answered; they are empty while the stream is disabled.

    def write(self, key: str, n: int = 1, *, size: int = 0, remove_every: int = 0) -> list[str]:
        """Change an item n times; `v` counts its changes, also those that remove it."""
        numbers = self._do("write", key=key, n=n, size=size, remove_every=remove_every)
        return [str(number) for number in numbers]

    def bulk(
        self,
        count: int,
        *,
        keys: int = 1000,
        size: int = 0,
        remove_every: int = 0,
        begin: int = 0,
    ) -> None:
        """Change the items k0, k1, … in turn, beginning anywhere."""
        for first in range(begin, begin + count, _BULK):
            part = min(_BULK, begin + count - first)
            self._do(
                "bulk", count=part, keys=keys, size=size, remove_every=remove_every, first=first
            )

    def put(self, item: Mapping[str, Any]) -> str:
        """Put an item given in wire form: {"pk": {"S": "a"}, "data": {"B": "AAE="}}."""
        return str(self._do("put", item=item))

    def modify(self, key: str, attributes: Mapping[str, Any]) -> str:
        return str(self._do("modify", key=key, attributes=attributes))

    def remove(self, key: str, *, ttl: bool = False) -> str:
        """Remove an item; with `ttl` as DynamoDB does when it expires."""
        return str(self._do("remove", key=key, ttl=ttl))

    def replicate(self, ttl_attribute: str | None = None) -> None:
        """Make the table a replica of a global table; TTL removals elsewhere come as `remove`."""
        self._do("replicate", ttl_attribute=ttl_attribute)

    def append(self, record: Mapping[str, Any], shard_id: str | None = None) -> str:
        """Add a wire record as it is."""
        return str(self._do("append", record=record, shard_id=shard_id))

    # Shards and streams

    def split(self, shard_id: str | None = None, into: int = 2) -> list[str]:
        """Split an open shard (one by chance); answer the children."""
        return [str(child) for child in self._do("split", shard_id=shard_id, into=into)]

    def rotate(self, shard_id: str | None = None) -> list[str]:
        """Close an open shard (one by chance, or "all") and open its only child."""
        return [str(child) for child in self._do("rotate", shard_id=shard_id)]

    def trim(self, records: int | None = None, shard_id: str | None = None) -> int:
        """Drop the oldest records, of a shard or of all; None: all, closed shards too."""
        return int(self._do("trim", records=records, shard_id=shard_id))

    def drop_shard(self, shard_id: str) -> None:
        """Make a closed shard vanish."""
        self._do("drop_shard", shard_id=shard_id)

    def disable_stream(self) -> None:
        self._do("disable_stream")

    def delete_stream(self) -> None:
        self._do("delete_stream")

    def begin_anew(self) -> None:
        """Restart like an emulator: the same stream and shards, without records, numbered anew."""
        self._do("begin_anew")

    def enable_new_stream(self, shards: int = 1, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        """Give the table a new stream (disabling its old one); answer the ARN."""
        return str(self._do("enable_new_stream", shards=shards, view_type=view_type))

    def delete_table(self) -> None:
        """Delete the table: its stream is readable for a while, as if it was disabled."""
        self._do("delete_table")

    def create_table(self, shards: int = 1) -> None:
        """Make the deleted table again, with a new stream, and without items."""
        self._do("create_table", shards=shards)

    def add_table(self, name: str, shards: int = 1, *, key: str = "pk") -> str | None:
        """Add another table; answer its stream's ARN (shards=0: no stream)."""
        arn = self._do("add_table", name=name, shards=shards, key=key)
        return None if arn is None else str(arn)

    def add_foreign_table(self, name: str, account: str, records: int = 0) -> str:
        """Add a table of another account, with changes of an item `a`; answer its stream's ARN."""
        return str(self._do("add_foreign_table", name=name, account=account, records=records))

    def advance(self, seconds: float) -> None:
        """Let the service's time pass: iterators, records and shards age."""
        self._do("advance", seconds=seconds)

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
        self._do("fail_next", operation=operation, error=error, times=times, shard_id=shard_id)

    def forget_failures(self) -> None:
        """Let none of the failures come that are still planned."""
        self._do("forget_failures")

    @property
    def faults(self) -> Faults:
        return Faults.from_json(self._do("get_faults"))

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._do("set_faults", settings=asdict(faults))

    # What there is, and what was asked

    @property
    def table_name(self) -> str:
        return str(self._do("table_name"))

    @property
    def table_arn(self) -> str:
        return str(self._do("table_arn"))

    @property
    def stream_arn(self) -> str:
        return str(self._do("stream_arn"))

    @property
    def now(self) -> float:
        return float(self._do("now"))

    @property
    def shards(self) -> list[ShardState]:
        return [ShardState(*shard) for shard in self._do("shards")]

    @property
    def open_shards(self) -> list[str]:
        return [shard.id for shard in self.shards if shard.is_open]

    @property
    def records(self) -> list[Written]:
        """Everything ever written (trimmed or not), in order."""
        total = int(self._do("count"))
        pages = (
            self._do("records", first=first, count=_RECORDS) for first in range(0, total, _RECORDS)
        )
        return [Written(*record) for page in pages for record in page]

    @property
    def calls(self) -> Counter[str]:
        return Counter(self._do("calls"))

    @property
    def reads(self) -> Counter[str]:
        """GetRecords calls by shard."""
        return Counter(self._do("reads"))

    @property
    def injected(self) -> Counter[str]:
        """How often each fault hit."""
        return Counter(self._do("injected"))

    @property
    def log(self) -> list[Call]:
        """The last 20,000 requests."""
        return [Call(*call) for call in self._do("log")]

    @property
    def in_flight(self) -> int:
        return int(self._do("in_flight"))

    @abstractmethod
    def wait_for(self, condition: Callable[[], bool], timeout: float = 120.0) -> None:
        """Wait until the condition holds; it is asked again after every request."""

    def wait_for_calls(self, operation: str, more: int = 1, timeout: float = 120.0) -> None:
        """Wait until this operation was asked that many times from now on."""
        goal = self.calls[operation] + more
        self.wait_for(lambda: self.calls[operation] >= goal, timeout)

    # Reaching it

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send a child process's boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

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


class Simulator(Control):
    """A simulator in a thread of this process: `with Simulator(shards=4) as sim:`."""

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
        self._changed = threading.Condition(threading.RLock())
        self._commands = Commands(self._world, self._service, table)
        self._server = Server(self._service, self._command, self._changed)
        self._port = port

    @classmethod
    def spawn(cls, *, faults: Faults | None = None, **settings: Any) -> "RemoteSimulator":
        """The same in a process of its own, which ends with this one; also a `with` block."""
        return RemoteSimulator(faults or Faults(), settings)

    def start(self) -> "Simulator":
        self.endpoint = f"http://127.0.0.1:{self._server.start(self._port)}"
        return self

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> "Simulator":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 120.0) -> None:
        with self._changed:
            self._server.waiters += 1
            met = self._changed.wait_for(condition, timeout)
            self._server.waiters -= 1
        if not met:
            raise TimeoutError(f"not within {timeout} s")

    def _do(self, command: str, **parameters: Any) -> Any:
        return self._command(command, parameters)

    def _command(self, command: str, parameters: dict[str, Any]) -> Any:
        if command.startswith("_"):
            raise ValueError(f"no such command: {command}")
        with self._changed:
            if command == "in_flight":
                return self._server.in_flight
            return getattr(self._commands, command)(**parameters)


class RemoteSimulator(Control):
    """A simulator in another process, driven through its /_control."""

    def __init__(self, faults: Faults, settings: Mapping[str, Any]) -> None:
        everything = json.dumps({**settings, "faults": asdict(faults)})
        self._process = prefork.start(
            "tests.simulator",
            ["--settings", everything, "--guarded"],
            env=os.environ,
            cwd=_ROOT,
            stdin=None,
            stderr=2,
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        if not self.endpoint:
            raise RuntimeError("the simulator did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        # It would end with its standard input too, if no forked child held a copy of that.
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "RemoteSimulator":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 120.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout} s")
            time.sleep(0.01)  # nobody tells us across processes

    def _do(self, command: str, **parameters: Any) -> Any:
        body = json.dumps({"command": command, "parameters": parameters}).encode()
        request = urllib.request.Request(self.endpoint + "/_control", body, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None


class Commands:
    """The commands behind Control: JSON in, JSON out; the caller holds the lock."""

    def __init__(self, world: World, service: Service, table: str) -> None:
        self._world = world
        self._service = service
        self._table = world.tables[table]
        self._written: list[Written] = []
        for command in ("write", "bulk", "put", "modify", "remove", "append", "delete_stream"):
            setattr(self, command, getattr(self._table, command))
        self.fail_next = service.fail_next
        self.forget_failures = service.forget_failures
        self.advance = world.advance
        self.now = world.now

    def split(self, shard_id: str | None, into: int) -> list[str]:
        return [shard.id for shard in self._table.stream.split(shard_id, into)]

    def rotate(self, shard_id: str | None) -> list[str]:
        stream = self._table.stream
        if shard_id != "all":
            return self.split(shard_id, 1)
        return [stream.split(shard.id, 1)[0].id for shard in stream.open_shards]

    def trim(self, records: int | None, shard_id: str | None) -> int:
        return self._table.stream.trim(records, shard_id)

    def drop_shard(self, shard_id: str) -> None:
        self._table.stream.drop(shard_id)

    def replicate(self, ttl_attribute: str | None) -> None:
        self._table.is_replicated, self._table.ttl_attribute = True, ttl_attribute

    def disable_stream(self) -> None:
        self._table.stream.disable()

    def begin_anew(self) -> None:
        self._table.stream.begin_anew()

    def enable_new_stream(self, shards: int, view_type: str) -> str:
        return self._table.enable(shards, view_type).arn

    def delete_table(self) -> None:
        self._table.stream.disable()
        self._table.clear()
        del self._world.tables[self._table.name]

    def create_table(self, shards: int) -> None:
        self._world.tables[self._table.name] = self._table
        self._table.enable(shards, self._table.stream.view_type)

    def add_table(self, name: str, shards: int, key: str) -> str | None:
        table = self._world.add_table(name, (key,))
        return table.enable(shards, "NEW_AND_OLD_IMAGES").arn if shards else None

    def add_foreign_table(self, name: str, account: str, records: int) -> str:
        table = self._world.add_foreign_table(name, account)
        arn = table.enable(1, "NEW_AND_OLD_IMAGES").arn
        if records:
            table.write("a", records)
        return arn

    def get_faults(self) -> dict[str, Any]:
        return asdict(self._service.faults)

    def set_faults(self, settings: dict[str, Any]) -> None:
        self._service.set_faults(Faults.from_json(settings))

    def table_name(self) -> str:
        return self._table.name

    def table_arn(self) -> str:
        return self._table.arn

    def stream_arn(self) -> str:
        return self._table.stream.arn

    def shards(self) -> list[tuple[Any, ...]]:
        return [
            (s.id, s.parent, s.closed is None, len(s.numbers) - s.first, len(s.numbers), s.gone)
            for s in self._table.stream.shards.values()
        ]

    def count(self) -> int:
        """Gather the ground truth for `records`; answer how many they are."""
        self._written = self._table.written()
        return len(self._written)

    def records(self, first: int, count: int) -> list[Written]:
        return self._written[first : first + count]

    def calls(self) -> dict[str, int]:
        return dict(self._service.calls)

    def reads(self) -> dict[str, int]:
        return dict(self._service.reads)

    def injected(self) -> dict[str, int]:
        return dict(self._service.injected)

    def log(self) -> list[Call]:
        return list(self._service.log)
