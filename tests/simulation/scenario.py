"""What a seed stands for: a world, a watch, and what goes wrong and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

ENGINES = ("processes", "stream", "spark")
STARTS = ("latest", "trim_horizon", "at_time")
POLICIES = ("log", "stop", "retry:2", "retry:7", "dead-letter:/dev/null")


@dataclass
class Scenario:
    seed: int
    engine: str
    shards: int = 1
    keys: int = 8
    before: int = 0  # how many records there are before the watch begins
    older: int = 0  # how many shards have been replaced before
    start: str = "trim_horizon"
    follow: bool = True
    of_table: bool = False
    max_records: int | None = None
    fail_on_data_loss: bool = False
    filtered: bool = False
    on_error: str = "log"
    failing: float = 0.0  # how often the handler fails
    batch: int = 0  # the size of its batches; 0: it takes records one by one
    window: float = 0.0
    together: bool = False  # whether it takes records of a page together, unless it may fail
    slow: float = 0.0  # how many seconds the handler takes for a record
    slow_share: float = 0.0  # … and for which share of them
    slow_tags: float = 0.0  # how many seconds the tags take of a table; 0: all are known
    slow_listings: float = 0.0
    """How many seconds a listing takes at most, beside the loop; 0: the loop waits for it."""
    poll_max: float = 1.0
    processes: int = 64  # beyond it, shards share them
    snapshot: bool = False  # whether the items that exist are told, too
    concurrency: int = 1  # of how many shards records are handled at once
    pipe_bytes: int = 65536
    limit: int | None = None  # Spark's maxRecordsPerTrigger
    behind_seconds: float = 10.0
    """How old a page has to be for Spark's driver to leave what follows to executors."""
    writes: float = 15.0  # until when there are writes
    trouble: float = 20.0  # until when anything goes wrong
    burst: int = 12
    faults: dict[str, Any] = field(default_factory=dict)
    """Settings of the service for the time of trouble."""
    full_bytes: int = 500_000  # a page of this size counts as full: the next is asked for ahead
    others: int = 0
    """How many streams the same watch follows beside this one, each with a service of its own."""
    habits: dict[str, Any] = field(default_factory=dict)  # settings of the service that stay
    events: list[tuple[float, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """All that is not as usual."""
        usual = Scenario(self.seed, self.engine)
        said = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name != "events" and getattr(self, each.name) != getattr(usual, each.name)
        ]
        return f"seed {self.seed}: {self.engine} {' '.join(said)}"


def draw(seed: int, engine: str | None = None, given: Mapping[str, Any] | None = None) -> Scenario:
    """The scenario of a seed.

    `given` are settings that it has whatever the seed says; its `events`, a list of names, come on
    top of the seed's.
    """
    rng = random.Random(f"scenario {seed}")
    chosen = rng.choices(ENGINES, (6, 2, 3))[0]
    scenario = Scenario(seed, engine or chosen)
    scenario.shards = rng.choice((1, 1, 2, 3, 4, 6))
    scenario.keys = rng.choice((1, 3, 8, 20))
    scenario.before = rng.choice((0, 0, 5, 60))
    scenario.older = rng.choice((0, 0, 1, 4))
    scenario.start = rng.choices(STARTS, (2, 4, 1))[0]
    scenario.of_table = rng.random() < 0.3 and scenario.engine != "stream"
    scenario.poll_max = rng.choice((0.3, 1.0, 1.0))
    scenario.processes = random.Random(f"processes {seed}").choice((1, 2, 3, 64, 64, 64))
    if scenario.engine == "processes":
        scenario.concurrency = random.Random(f"hands {seed}").choice((1, 1, 1, 2, 5))
    scenario.pipe_bytes = rng.choice((4096, 4096, 65536))
    scenario.writes = rng.uniform(3, 16)
    scenario.trouble = rng.uniform(4, 24)
    scenario.burst = rng.choice((2, 6, 12, 25))
    scenario.fail_on_data_loss = rng.random() < 0.1
    scenario.limit = rng.choice((None, None, 1, 3, 10, 40))
    _draw_watch(scenario, rng)
    _draw_service(scenario, rng)
    _draw_odd_clocks(scenario, random.Random(f"odd clocks {seed}"))
    _draw_events(scenario, rng)
    scenario.full_bytes = random.Random(f"full {seed}").choice((500_000, 1000, 300))
    scenario.behind_seconds = random.Random(f"behind {seed}").choice((1.0, 2.0, 10.0))
    _draw_others(scenario)
    _draw_snapshot(scenario)
    _draw_hang(scenario)
    _draw_failing_for_long(scenario)
    _draw_end_that_is_none(scenario)
    _draw_slow(scenario)
    _draw_begin_anew(scenario)
    for name, value in (given or {}).items():
        if name == "events":
            moments = random.Random(f"given {seed}")
            more = [(moments.uniform(0.2, scenario.trouble), each) for each in value]
            scenario.events = sorted(scenario.events + more)
        else:
            setattr(scenario, name, value)
    if scenario.snapshot:
        scenario.events = [each for each in scenario.events if each[1] not in _LOSES]
    return scenario


# What other streams see of the world's events: time is the same for all of them.
_OF_OTHERS = ("split", "rotate", "rotate all", "a shard fails", "listings fail", "no permission")
_TIME_PASSES = ("suspend", "stay away", "stand still", "clock jumps", "expire iterators")


def _draw_others(scenario: Scenario) -> None:
    """Last, and by chances of their own: what a seed stood for before stays the same."""
    rng = random.Random(f"others {scenario.seed}")
    ends_early = scenario.max_records is not None or scenario.fail_on_data_loss
    names = {name for _, name in scenario.events}
    if scenario.engine != "processes" or ends_early or names.intersection(_TIME_PASSES):
        return
    if rng.random() < 0.4:
        scenario.others = rng.choice((1, 1, 2))


# What may take away a change that was never read: then nobody knows the last state of its item.
_LOSES = {"disable", "trim", "drop a shard", "suspend", "stay away"}


def _draw_snapshot(scenario: Scenario) -> None:
    names = {name for _, name in scenario.events}
    if scenario.engine == "processes" and names.isdisjoint(_LOSES):
        scenario.snapshot = random.Random(f"snapshot {scenario.seed}").random() < 0.3


def _draw_hang(scenario: Scenario) -> None:
    names, rng = {name for _, name in scenario.events}, random.Random(f"hang {scenario.seed}")
    if scenario.engine == "processes" and names.isdisjoint(_TIME_PASSES) and rng.random() < 0.04:
        scenario.events.append((rng.uniform(0.2, scenario.trouble), "a handler hangs"))
        scenario.events.sort()


def _draw_failing_for_long(scenario: Scenario) -> None:
    """A handler that fails for minutes on all records of a shard, and is tried again for ever."""
    names, rng = {name for _, name in scenario.events}, random.Random(f"fail {scenario.seed}")
    if scenario.engine == "processes" and names.isdisjoint(_TIME_PASSES) and rng.random() < 0.06:
        scenario.on_error = "retry"
        scenario.events.append((rng.uniform(0.2, scenario.trouble), "a handler fails"))
        scenario.events.sort()


def _draw_end_that_is_none(scenario: Scenario) -> None:
    """One such answer ends nothing; of several in a row listings tell, where no shard closes.

    Spark's executors take several for a loss, and say so.
    """
    rng = random.Random(f"ends {scenario.seed}")
    closes = {"split", "rotate", "rotate all", "listings fail long", *_LOSES}
    is_told = scenario.engine != "spark" and closes.isdisjoint(name for _, name in scenario.events)
    name = "ends that are none" if is_told and rng.random() < 0.5 else "an end that is none"
    if rng.random() < 0.5:
        ends = [
            (rng.uniform(0.2, scenario.trouble), name) for _ in range(2 if scenario.follow else 1)
        ]
        scenario.events = sorted(scenario.events + ends)


def _draw_slow(scenario: Scenario) -> None:
    rng = random.Random(f"slow {scenario.seed}")
    if scenario.engine == "processes":
        scenario.slow_listings = rng.choice((0.0, 0.0, 2.0, 12.0))
        if rng.random() < 0.05:
            scenario.slow, scenario.slow_share = 15.0, 0.03
        if scenario.others and scenario.follow and scenario.start == "trim_horizon":
            scenario.slow_tags = rng.choice((0.0, 0.1, 3.0))


def _draw_begin_anew(scenario: Scenario) -> None:
    rng = random.Random(f"anew {scenario.seed}")
    if scenario.engine == "processes" and rng.random() < 0.08:
        moment, away = rng.uniform(0.2, scenario.trouble), rng.random()
        if away < 0.25:  # not even its creation time tells
            how = "unseen" if away < 0.125 else "overtaking"
            scenario.events.append((moment, f"begin anew {how}"))
        else:
            scenario.events.append((moment, "begin anew"))
            if away < 0.5:
                scenario.events.append((moment, "kill the program"))
        scenario.events.sort()


def other(scenario: Scenario, number: int) -> Scenario:
    rng = random.Random(f"other {scenario.seed} {number}")
    events = [
        (rng.uniform(0.2, scenario.trouble), rng.choice(_OF_OTHERS))
        for _ in range(rng.randrange(8))
    ]
    made = replace(scenario, others=0, of_table=False, events=sorted(events))
    return replace(made, snapshot=False)


def _draw_watch(scenario: Scenario, rng: random.Random) -> None:
    scenario.follow = rng.random() < 0.75
    if rng.random() < 0.1:
        scenario.max_records = rng.choice((1, 7, 40))
    scenario.filtered = rng.random() < 0.15
    scenario.on_error = rng.choice(POLICIES)
    if rng.random() < 0.25:
        scenario.failing = rng.choice((0.01, 0.1))
    if rng.random() < 0.15:
        scenario.batch = rng.choice((1, 4, 20))
        scenario.window = rng.choice((0.0, 0.0, 2.0))
        scenario.on_error = "retry"  # the judge does not know which records a batch had
    if rng.random() < 0.3:
        scenario.slow, scenario.slow_share = rng.choice(((0.01, 1.0), (0.3, 0.1), (3.0, 0.01)))
    scenario.together = not scenario.batch and rng.random() < 0.3


def _draw_service(scenario: Scenario, rng: random.Random) -> None:
    habits = scenario.habits
    habits["latency"] = rng.choice((0.002, 0.01, 0.08))
    habits["latency_jitter"] = rng.choice((0.0, 0.05))
    habits["max_records"] = rng.choice((1, 5, 40, 1000))
    habits["last_page_empty"] = rng.random() < 0.3
    habits["at_timestamp"] = rng.random() < 0.8
    habits["ending_past_last"] = rng.random() < 0.5
    habits["child_filter"] = rng.random() < 0.7
    habits["describe_page"] = rng.choice((2, 100, 100))
    habits["listing_lag"] = rng.choice((0.0, 0.5, 4.0, 4.0))
    habits["closing_lag"] = rng.choice((0.0, 0.0, 3.0, float("inf")))
    habits["lag_jitter"] = rng.random() < 0.5
    habits["children_first"] = rng.random() < 0.4
    faults = scenario.faults
    if rng.random() < 0.75:
        for name in ("throttle_rate", "error_rate", "reset_rate", "truncate_rate"):
            faults[name] = rng.choice((0.0, 0.02, 0.1))
        faults["odd_rate"] = rng.choice((0.0, 0.0, 0.05))
        faults["invalid_json_rate"] = rng.choice((0.0, 0.02))
        faults["empty_page_rate"] = rng.choice((0.0, 0.1, 0.5))
        faults["short_page_rate"] = rng.choice((0.0, 0.2))
        faults["hang_rate"] = rng.choice((0.0, 0.0, 0.01))
    if rng.random() < 0.1:
        habits["shard_reads_per_second"] = 5.0


def _draw_odd_clocks(scenario: Scenario, rng: random.Random) -> None:
    """No clock is to be trusted, nor an empty page, nor that a record comes once."""
    habits = scenario.habits
    habits["ahead_rate"] = rng.choice((0.0, 0.0, 0.05))
    habits["closed_empty"] = rng.choice((0, 0, 0, 15))
    habits["date_skew"] = rng.choice((0.0, 0.0, -180.0))
    habits["date_skew_rate"] = rng.choice((0.3, 1.0))
    if scenario.start == "trim_horizon":  # else it would go back to before the beginning
        scenario.faults["back_rate"] = rng.choice((0.0, 0.0, 0.1))
    scenario.faults["shuffled_rate"] = rng.choice((0.0, 0.0, 0.0, 0.1))


# What may happen, and how often in comparison.
_EVENTS = {
    "split": 6,
    "rotate": 6,
    "rotate all": 2,
    "kill a process": 6,
    "tear a message": 4,
    "stop a process": 3,
    "kill the program": 5,
    "kill at a save": 3,
    "stay away": 1,
    "end the program": 3,
    "disk full": 1,
    "no more processes": 1,
    "trim": 1,
    "drop a shard": 1,
    "suspend": 1,
    "stand still": 1,
    "clock jumps": 2,
    "expire iterators": 1,
    "token expires": 1,
    "no permission": 0.3,
    "a shard fails": 2,
    "listings fail": 1,
    "disable": 0.4,
}


def _draw_events(scenario: Scenario, rng: random.Random) -> None:
    names, weights = list(_EVENTS), list(_EVENTS.values())
    count = rng.choice((0, 2, 5, 9, 14))
    chosen = rng.choices(names, weights, k=count)
    if rng.random() < 0.06:  # a siege: long enough for somebody to wonder
        chosen.append(
            rng.choice(("a shard fails long", "token expires long", "listings fail long"))
        )
    scenario.events = sorted((rng.uniform(0.2, scenario.trouble), name) for name in chosen)
