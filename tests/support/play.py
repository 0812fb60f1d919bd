"""A watch whose processes, clock and service are played by a test, through the real loop.

A test writes down what happens (`play.run(…)`): a pair is a message out of a shard's process (None:
the process has died), a number lets so many seconds pass, a function is called. At the end of the
script the watch is stopped; it ends by itself where it should.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from tests.support.hand_clock import HandClock
from tests.support.wire import FIRST, body
from watcher.aws.arns import table_name, table_of
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import Listing, Position, Service, Shard, ShardKey, TrimHorizon
from watcher.build import build_manager
from watcher.clock import CLOCK
from watcher.delivery.concurrent import HandlerPool
from watcher.delivery.handler import Handler
from watcher.errors import ShardNotFoundError
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Display
from watcher.options import WatchOptions
from watcher.pull.table_snapshot import Items
from watcher.records.page import decode
from watcher.records.record import Record
from watcher.runtime.protocol import (
    Command,
    MessageQueue,
    MessageWriter,
    ReadShard,
    ShardAssignment,
)
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.stores.protocol import Store
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token
from watcher.streams.messages import Message, Page, make_page

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/1"
NEW_ARN = ARN[:-1] + "2"

Step = tuple[str | ShardKey, Message | None] | float | Callable[[], object]


class PlayedService:
    """What the manager asks; a test changes it as it likes."""

    def __init__(self, clock: HandClock) -> None:
        self.shards: dict[str, Shard] = {}
        self.hidden: set[str] = set()
        self.status = "ENABLED"
        self.newest = ARN
        self.errors: list[Exception] = []
        """What the next listings are answered with."""
        self.counters = Counters()
        self.listings = 0
        self.renewed = 0
        self.clock = clock

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time()).astimezone()

    def add(self, name: str, parent: str | None = None, *, hidden: bool = False) -> None:
        self.shards[name] = Shard(name, parent, "1")
        if hidden:
            self.hidden.add(name)

    def list_shards(self, arn: str) -> Listing:
        self.listings += 1
        if self.errors:
            raise self.errors.pop(0)
        found = self.shown()
        return Listing(arn, table_name(arn), self.status, "NEW_IMAGE", found, 1, self.now)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        return [shard for shard in self.shown() if shard.parent == shard_id]

    def shown(self) -> list[Shard]:
        return [shard for name, shard in self.shards.items() if name not in self.hidden]

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if shard_id not in self.shards:
            raise ShardNotFoundError("no such shard")
        return "iterator", self.now

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        raise NotImplementedError("the shards' processes are played")

    def prefetch_records(self, iterator: str) -> None:
        """It can't be asked ahead."""

    def latest_stream(self, table: str) -> str:
        return self.newest

    def table(self, arn: str) -> str:
        return table_of(arn)

    def renew_expiring(self) -> None:
        """Nothing ends by itself here."""

    def renew_credentials(self) -> None:
        self.renewed += 1


class PlayedProcess:
    """A process that was started in name only; `begun` is called for each shard it is to read."""

    def __init__(
        self, exitcode: int = -9, begun: Callable[[ShardAssignment], object] = lambda work: None
    ) -> None:
        self.exitcode = exitcode
        self.ended = ""
        self.commands: list[Command] = []
        self.refused: list[str] = []
        """The access keys that its manager has heard to be refused."""
        self._begun = begun

    def refresh_credentials(self, refused: str = "") -> None:
        self.refused += [refused] if refused else []

    def send(self, command: Command) -> None:
        if self.ended:
            raise BrokenPipeError
        self.commands.append(command)
        if isinstance(command, ReadShard):
            self._begun(command.assignment)

    def close(self) -> None:
        self.ended = self.ended or "dismissed"

    def join(self, timeout: float | None = None) -> None:
        pass

    def terminate(self) -> None:
        self.ended = "terminated"

    def kill(self) -> None:
        self.ended = "killed"


class PlayedQueue(MessageQueue):
    """Gives out what the script says."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self.script: Iterator[Step] = iter(())
        self.at_end: Callable[[], object] = lambda: None
        self.workers: dict[ShardKey, str] = {}
        """The process that has a shard."""
        self.shard_keys: dict[str, ShardKey] = {}
        """The shard that was begun last, of those of this id."""
        self.full: set[ShardKey] = set()
        """The shards whose process waits until what it has sent is received."""
        self.count: Callable[[ShardKey, int], object] = lambda shard_key, records: None
        """Counts the records that a process sends."""
        self._clock = clock
        self._until = 0.0

    def has_unread(self, name: str) -> bool:
        return any(self.workers[shard_key] == name for shard_key in self.full)

    def receive(
        self, timeout: float, held: Set[str] = frozenset()
    ) -> tuple[ShardKey, Message] | tuple[str, None] | None:
        if self._clock.monotonic() >= self._until:
            step = next(self.script, self.at_end)
            if isinstance(step, tuple):
                name, message = step
                shard_key = name if isinstance(name, ShardKey) else self.shard_keys[name]
                if self.workers[shard_key] in held:
                    self.script = itertools.chain((step,), self.script)
                    return None
                if isinstance(message, Page):
                    self.count(shard_key, message.read)
                return (self.workers[shard_key], None) if message is None else (shard_key, message)
            if callable(step):
                step()
            else:
                self._until = self._clock.monotonic() + step
        self._clock.sleep(timeout)
        return None


class Memory(Store):
    """A store without a disk."""

    name = "memory"

    def __init__(self, token: Token | None = None) -> None:
        self.saved = None if token is None else checkpoint_format.encode_all([token])
        self.saves = 0

    def load(self) -> list[Token]:
        return [] if self.saved is None else checkpoint_format.all_from_json(self.saved)

    def save(self, stored: Sequence[Token]) -> None:
        self.saved = checkpoint_format.encode_all(stored)
        self.saves += 1

    @property
    def token(self) -> Token:
        (token,) = self.load()
        return token

    def position(self, shard_id: str) -> Position:
        (found,) = (
            each
            for each in checkpoint_format.resume(self.token, CLOCK.now())
            if each.id == shard_id
        )
        return found.position


class Play:
    """One watch, from its beginning to its end."""

    def __init__(
        self,
        observe: Callable[[Record], Any] | Handler,
        *,
        service: PlayedService | None = None,
        store: Any = None,
        clock: HandClock | None = None,
        others: Mapping[str, PlayedService] | None = None,
        newcomers: Any = None,
        pool: HandlerPool | None = None,
        items: Items | None = None,
        asides: Mapping[str, Service] | None = None,
        displays: Sequence[Display] = (),
        **settings: Any,
    ) -> None:
        """`others` are streams beside the first, by their ARNs; `items` those of its table; what
        makes streams' first listings is `asides`."""
        self.clock = clock or HandClock()
        self.heartbeat = Heartbeat(clock=self.clock)
        self.service = service or PlayedService(self.clock)
        self.store = Memory() if store is None else store
        self.begun: list[tuple[str, Position]] = []
        self.begun_by_origin: list[tuple[ShardKey, Position]] = []
        self.refused: list[OSError] = []
        """Why the next processes can't be started."""
        self.exitcode = -9
        self.queue = PlayedQueue(self.clock)
        self.processes: list[PlayedProcess] = []
        settings.setdefault("start", TrimHorizon())
        settings.setdefault("poll_max", 1.0)
        of_table = settings.pop("of_table", False)
        made = WatchOptions(**settings)
        followed = [
            WatchedStream(
                arn,
                made,
                service=service,
                first_service=(asides or {}).get(arn),
                of_table=of_table,
                items=items if arn == ARN else None,
                clock=self.clock,
            )
            for arn, service in {ARN: self.service, **(others or {})}.items()
        ]
        self.manager = build_manager(
            made,
            streams=WatchedStreams(followed, [newcomers] if newcomers else (), clock=self.clock),
            handlers=[observe if isinstance(observe, Handler) else Handler("seen", observe)],
            workers=Workers(self.queue, self._start, self.clock),
            store=self.store,
            displays=displays,
            clock=self.clock,
            pool=pool,
            heartbeat=self.heartbeat,
        )
        self.queue.count = lambda shard_key, records: self.manager.stats.counters(shard_key).read(
            records
        )
        self.totals = self.manager.totals

    def _start(
        self, name: str, work: ShardAssignment, writer: MessageWriter, board: SharedCounters
    ) -> Any:
        if self.refused:
            raise self.refused.pop(0)

        def begun(work: ShardAssignment) -> None:
            self.queue.shard_keys[work.shard_id] = work.shard_key
            self.queue.workers[work.shard_key] = name
            self.begun.append((work.shard_id, work.position))
            self.begun_by_origin.append((work.shard_key, work.position))

        self.processes.append(PlayedProcess(self.exitcode, begun))
        return self.processes[-1]

    @property
    def names(self) -> list[str]:
        """The shards of the processes that were started."""
        return [name for name, _ in self.begun]

    def run(self, *script: Step) -> Play:
        """Watch while this happens."""
        return self.follow(script)

    def follow(self, script: Iterable[Step]) -> Play:
        """As `run`; the steps may be made as they are needed."""
        self.queue.script = iter(script)
        self.queue.at_end = self.manager.stop
        self.manager.run()
        return self


def page(*numbers: int) -> Page:
    """A page with the records of these numbers."""
    made = body(numbers)
    return make_page(made, decode(made).Records, 0, len(numbers))


class Seen:
    """A handler that notes the numbers it gets."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, record: Record) -> None:
        self.numbers.append(int(record.sequence_number) - FIRST)
