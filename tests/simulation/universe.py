"""The service, its writers and everything that goes wrong with it, on virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.client import Credentials, SimulatedClient
from tests.simulation.items import REMOVE_EVERY
from tests.simulation.judge import Judge
from tests.simulation.scenario import Scenario, other
from tests.simulation.scheduler import EPOCH, Scheduler, Trace, VirtualClock
from tests.simulator.faults import Faults
from tests.simulator.model import Shard, World
from tests.simulator.service import Service
from watcher.aws.client import CallRateLimiter
from watcher.aws.model import Latest, Position

TABLE = "orders"
_WRITE_PAUSE = 1.5
_MOST_OPEN = 10
_MOST_HOURS = 29.0
# An open shard is not older than that.
_HOURS_OPEN = 6.0
_SIEGE_SECONDS = 100.0
_AGO_SECONDS = 100.0
_GENERATION_SECONDS = 5.0


class Universe:
    """What there is outside of the program."""

    def __init__(
        self,
        scenario: Scenario,
        trace: Trace | None,
        scheduler: Scheduler | None = None,
        table: str = TABLE,
    ) -> None:
        self.scenario = scenario
        self.scheduler = scheduler or Scheduler(scenario.seed, trace)
        self.rng = self.scheduler.rng
        self.world = World(lambda: EPOCH + self.scheduler.now, scenario.seed)
        self.table = self.world.add_table(table)
        self.service = Service(self.world, Faults(**scenario.habits))
        self.credentials = Credentials()
        self.limiter = CallRateLimiter(VirtualClock(self.scheduler))
        self.injected: Counter[str] = Counter()
        self.troubled_until = scenario.trouble  # from then on nothing goes wrong any more
        self._silent_until = 0.0
        self.judge = Judge(scenario, self.world, lambda: self.scheduler.awake, self.scheduler.tell)
        self._calm = True
        self._hours = 0.0
        self._seemed_closed: set[str] = set()
        self.table.enable(scenario.shards, "KEYS_ONLY")
        self._write(scenario.before // 2)
        self.world.advance(_AGO_SECONDS)
        self.start_time = int(self.world.now() - _AGO_SECONDS / 2)
        """The moment of a start at a time, in epoch seconds."""
        for _ in range(scenario.older):
            if scenario.snapshot and scenario.start == "latest":
                # AWS's shards live for hours. Were several generations of one second, with one of
                # them hidden by a listing that lags, the first run would read the oldest one beside
                # the newest, and a later run its records of that second: older than the start.
                self.world.advance(_GENERATION_SECONDS)
            self._write(scenario.before // 4)
            self._split() if self.rng.random() < 0.4 else self._rotate()
        self._write(scenario.before // 2)
        self.others = [
            Universe(other(scenario, number), trace, self.scheduler, f"other{number}")
            for number in range(scenario.others)
        ]

    @property
    def all(self) -> list[Universe]:
        """This one, and those of the other streams that the same program follows."""
        return [self, *self.others]

    def of(self, arn: str) -> Universe:
        (found,) = (each for each in self.all if any(s.arn == arn for s in each.table.streams))
        return found

    def hears(self, text: str, *, warning: bool, stream: str | None = None) -> None:
        """What the program says of a stream, or of itself."""
        of_all = stream is None or not self.others or text.startswith("All shards:")
        for each in self.all if of_all else [self.of(stream or "")]:
            each.judge.says(text, warning=warning)

    @property
    def is_calm(self) -> bool:
        return self.scheduler.now >= self.calm_since

    @property
    def calm_since(self) -> float:
        """When all trouble is over, and nothing is written any more."""
        own = max(self.troubled_until, self.scenario.writes)
        return max(own, *(each.calm_since for each in self.others), 0.0)

    @property
    def silent_until(self) -> float:
        return max(self._silent_until, *(each.silent_until for each in self.others), 0.0)

    def client(self, wait: Callable[[float], None], read_seconds: float = 3.0) -> SimulatedClient:
        return SimulatedClient(
            self.service,
            self.credentials,
            wait,
            read_seconds,
            self.limiter,
            granted=self._granted,
            listed=self.judge.listed,
            silent=self._silent,
        )

    def _silent(self, seconds: float) -> None:
        self._silent_until = max(self._silent_until, self.scheduler.now + seconds)

    def _granted(self, shard_id: str, position: Position) -> None:
        if isinstance(position, Latest):
            self.judge.granted(shard_id)

    def begin(self, happen: Callable[[str], bool]) -> None:
        """Let things happen; `happen` does what concerns the program, and answers if it did."""
        scheduler, scenario = self.scheduler, self.scenario
        self.judge.begin(self.start_time)
        if scenario.faults:
            self.service.set_faults(Faults(**scenario.habits, **scenario.faults))
            self._calm = False
            scheduler.after(scenario.trouble, self._calm_down)
        for moment, name in scenario.events:
            scheduler.after(moment, lambda name=name: self._event(name, happen))  # type: ignore[misc]
        scheduler.after(scheduler.rng.random(), self._write_on)
        for each in self.others:
            each.begin(lambda name: False)

    def _event(self, name: str, happen: Callable[[str], bool]) -> None:
        action = getattr(self, "_" + name.replace(" ", "_"), None)
        if action is not None:
            self.scheduler.tell("the world", name)
            action()
            self.injected[name] += 1
        elif happen(name):
            self.injected[name] += 1

    def _calm_down(self) -> None:
        if not self._calm:
            self.scheduler.tell("the service", "all faults have ended")
            self._calm = True
            calm = dict.fromkeys(self.scenario.faults, 0.0)
            self._change(**calm)

    def trouble_lasts(self, seconds: float) -> None:
        self.troubled_until = max(self.troubled_until, self.scheduler.now + seconds)

    # What is written

    def _write_on(self) -> None:
        if self.scheduler.now < self.scenario.writes:
            self._write(self.rng.randint(1, self.scenario.burst))
            self.scheduler.after(self.rng.expovariate(1 / _WRITE_PAUSE), self._write_on)

    def _write(self, count: int) -> None:
        rng = self.rng
        for _ in range(count):
            key = f"k{rng.randrange(self.scenario.keys)}"
            [number] = self.table.write(key, 1, 0, REMOVE_EVERY)
            if self.scheduler.trace is not None and number:
                shard = self.table.stream.owner(key)
                self.scheduler.tell("the table", f"{key} changes: {number} in {shard.id}")

    # What becomes of shards

    def _open(self) -> list[Shard]:
        return self.table.stream.open_shards

    def _replace(self, shard: Shard, into: int) -> None:
        for child in self.table.stream.split(shard.id, into):
            self.scheduler.tell("the table", f"{shard.id} closes, {child.id} opens")

    def _split(self) -> None:
        shards = self._open()
        if shards and len(shards) < _MOST_OPEN:
            self._replace(self.rng.choice(shards), 2)

    def _rotate(self) -> None:
        if shards := self._open():
            self._replace(self.rng.choice(shards), 1)

    def _rotate_all(self) -> None:
        for shard in self._open():
            self._replace(shard, 1)

    def _drop_a_shard(self) -> None:
        """A closed shard vanishes, and what is above it: nothing outlives what came after it."""
        stream = self.table.stream
        shards = (stream.shards[name] for name in sorted(self.judge.stored & stream.shards.keys()))
        closed = [each for each in shards if each.closed and not each.gone]
        line = self._line_of(self.rng.choice(closed)) if closed else []
        if all(each.gone or self.judge.has_begun(each) for each in line):
            for each in line:
                if not each.gone:
                    stream.drop(each.id)
                    self.scheduler.tell("the service", f"drops {each.id}")

    def _trim(self) -> None:
        """Retention has passed for some records: of a shard in which a number is held."""
        shards = [
            shard
            for shard in self.table.stream.shards.values()
            if not shard.gone and shard.numbers and self.judge.holds_number(shard.id)
        ]
        if shards:
            shard = self.rng.choice(shards)
            dropped = self.table.stream.trim(self.rng.randint(1, len(shard.numbers)), shard.id)
            self.scheduler.tell("the service", f"trims {dropped} records of {shard.id}")

    def _line_of(self, shard: Shard) -> list[Shard]:
        line = [shard]
        while (parent := line[-1].parent) in self.table.stream.shards:
            line.append(self.table.stream.shards[parent])
        return line

    def _disable(self) -> None:
        self.table.stream.disable()
        if self.scenario.of_table:
            self.trouble_lasts(20.0)
            self.scheduler.after(self.rng.uniform(0.5, 15.0), self._enable)

    def _enable(self) -> None:
        if self.table.stream.disabled is not None:
            self.table.enable(self.scenario.shards, "KEYS_ONLY")
            self.scheduler.tell("the table", f"has a new stream: {self.table.stream.arn}")

    def _begin_anew(self) -> None:
        self.lose_all(dated=True)

    def _begin_anew_overtaking(self) -> None:
        """It does so under the running program, and higher numbers come before the next reads."""
        number = int(self.world.next_number())
        if self.lose_all(dated=False, is_seen=True):
            for shard in self._open():
                self.service.fail_next("GetRecords", "reset", 1, shard.id)
            self._write(self.rng.randint(1, self.scenario.burst))
            self.world.number_from(number)
            self._write(self.rng.randint(1, self.scenario.burst))

    def lose_all(self, *, dated: bool, is_seen: bool = False) -> bool:
        """An emulator restarts: the same stream, later, with lower numbers and no records."""
        scenario, judge = self.scenario, self.judge
        is_beginning = any(not (each.ended or each.has_listed) for each in judge.runs)
        is_single = not (scenario.others or scenario.snapshot or judge.former or is_beginning)
        if not is_single or self.table.stream.disabled is not None:
            return False
        self.judge.begins_anew(dated, is_seen)
        self.world.advance(1.0)
        self.table.stream.begin_anew(dated)
        self.trouble_lasts(120.0)
        return True

    # Time

    def _suspend(self) -> None:
        """The machine sleeps for hours: its monotonic clock does not see it, the service does."""
        self.pass_hours("has slept for")

    def pass_hours(self, what: str) -> None:
        """Time passes by the clocks on the walls; not for much longer than retention, in all."""
        hours = self.rng.choice((0.3, 5.0, 23.0, 25.0, 28.0))
        if self._hours + hours > _MOST_HOURS:
            return
        self._hours += hours
        first = hours * self.rng.random() if hours > _HOURS_OPEN else hours
        self.world.advance(first * 3600)
        if hours > _HOURS_OPEN:
            self._rotate_all()
            self.world.advance((hours - first) * 3600)
        self.scheduler.skew += hours * 3600
        self.scheduler.slept += hours * 3600
        self.scheduler.tell("the machine", f"{what} {hours} hours")

    def _stand_still(self) -> None:
        seconds = self.rng.choice((2.0, 30.0, 1200.0))
        self.scheduler.tell("the machine", f"stands still for {seconds} s")
        self.scheduler.stand_still(seconds)
        self.trouble_lasts(1.0)

    def _clock_jumps(self) -> None:
        seconds = self.rng.choice((-90_000.0, -100.0, -5.0, 5.0, 100.0, 90_000.0))
        self.scheduler.skew = self.scheduler.slept + seconds
        self.scheduler.tell("the machine", f"its clock is {seconds:+} s off")

    def _expire_iterators(self) -> None:
        self.world.advance(1000.0)

    # What the service refuses

    def _token_expires(self, seconds: float | None = None) -> None:
        old, new = self.credentials.key, f"key-{len(self.service.faults.expired_access_keys) + 1}"
        lasts = seconds or self.rng.uniform(0.5, 20)
        self._change(expired_access_keys=(*self.service.faults.expired_access_keys, old))
        self.trouble_lasts(lasts)

        def log_in() -> None:
            self.credentials.key = new
            self.scheduler.tell("the user", "logs in again")

        self.scheduler.after(lasts, log_in)

    def _token_expires_long(self) -> None:
        self._token_expires(_SIEGE_SECONDS)

    def _no_permission(self) -> None:
        self._change(auth_error="AccessDeniedException")
        lasts = self.rng.uniform(0.1, 3)
        self.trouble_lasts(lasts)
        self.scheduler.after(lasts, lambda: self._change(auth_error=""))

    def _a_shard_fails(self, seconds: float | None = None) -> None:
        stream = self.table.stream
        shard = self.rng.choice(list(stream.shards.values())[-_MOST_OPEN:])
        error = self.rng.choice(("InternalServerError", "ThrottlingException", "reset"))
        for operation in ("GetShardIterator", "GetRecords"):
            self.service.fail_next(operation, error, 1_000_000, shard.id)
        self.scheduler.tell("the service", f"answers {error} to reads of {shard.id}")
        self._heal_after(seconds or self.rng.uniform(0.5, 15))

    def _a_shard_fails_long(self) -> None:
        self._a_shard_fails(_SIEGE_SECONDS)

    def _an_end_that_is_none(self, times: int = 1) -> None:
        """An answer for an open shard has no iterator: it seems to be closed."""
        shards = [each for each in self._open() if each.id not in self._seemed_closed]
        if shards:
            shard = self.rng.choice(shards)
            self._seemed_closed.add(shard.id)
            self.service.fail_next("GetRecords", "ends", times, shard.id)
            self.scheduler.tell("the service", f"ends {shard.id} {times} times, which is open")

    def _ends_that_are_none(self) -> None:
        """So often that the program believes it, until listings tell."""
        self._an_end_that_is_none(3)
        self.judge.seems_closed |= self._seemed_closed
        self.trouble_lasts(12.0)

    def _listings_fail(self, seconds: float | None = None) -> None:
        self.service.fail_next("DescribeStream", "InternalServerError", 1_000_000, None)
        self._heal_after(seconds or self.rng.uniform(0.5, 15))

    def _listings_fail_long(self) -> None:
        self._listings_fail(_SIEGE_SECONDS)
        self._rotate()

    def _heal_after(self, seconds: float) -> None:
        self.trouble_lasts(seconds)

        def heal() -> None:
            self.service.forget_failures()
            self.scheduler.tell("the service", "fails no longer")

        self.scheduler.after(seconds, heal)

    def _change(self, **settings: object) -> None:
        self.service.set_faults(replace(self.service.faults, **settings))  # type: ignore[arg-type]
