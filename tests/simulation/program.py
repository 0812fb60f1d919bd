"""What all engines have in common: run after run of one program, and what is done to it."""

from __future__ import annotations

import contextlib
import logging
import random
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.simulation.client import SimulatedClient
from tests.simulation.scheduler import Killed, Life, Stalled
from tests.simulation.universe import Universe
from watcher.aws.model import AtTime, Latest, Position, TrimHorizon
from watcher.errors import StreamError, WatcherError
from watcher.records.filters import RecordFilter, record_filter
from watcher.streams.timing import TIMING

UNWANTED = {"dynamodb": {"Keys": {"pk": {"S": [{"anything-but": ["k0"]}]}}}}
LIMITED_RUNS = 3  # only the first runs end early, by `max_records` or a loss
_MOST_CALM_RUNS = 10
_LOOK_SECONDS = 1.0
_WITHIN_SECONDS = 100.0
# … and so long for each page, or micro-batch, of what is not read by then: one may be one record.
_PAGE_SECONDS = 0.5
# Some runs up to now may follow, of which the last ones are to begin in calm weather.
_ENDED_WITHIN_SECONDS = 200.0
# What is lost is said shard by shard, with a listing for each: of many shards that takes a while.
# They wait a minute for a parent that no listing shows, where a clock is off.
_SAID_WITHIN_SECONDS = 75.0
_END_SECONDS = 40.0
_GAP_SECONDS_MAX = 12.0

# No refusal lasts a minute here: once a run has read anything, none of them may end it.
_REFUSALS = ("UnexpectedAnswerError", "DeniedError")


class Ear(logging.Handler):
    def __init__(self, universe: Universe) -> None:
        super().__init__()
        self._universe = universe
        self.life: Life | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.life is None or self.life.killed:
            return
        text = record.getMessage()
        if self._universe.scheduler.trace is not None:
            self._universe.scheduler.tell("the program", f"says: {text}")
        warning, stream = record.levelno >= logging.WARNING, getattr(record, "stream", None)
        if text.startswith("All shards"):  # of all streams; it is said where it was heard first
            stream = None
        self._universe.hears(text, warning=warning, stream=stream)


class Program(ABC):
    """Starts the program, does to it what the seed says, and starts it again."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._scheduler = universe.scheduler
        self._scenario = universe.scenario
        self.judge = self._judge = universe.judge
        self._judges = [each.judge for each in universe.all]
        self._rng = universe.rng
        self._life: Life | None = None
        self._stopping = False
        self._stopped_at = 0.0
        self._to_read: int | None = None  # as the calm begins
        self._slow_seconds = 0.0  # that handlers took since then
        self._over = False
        self._failed_runs = 0
        self._ear = Ear(universe)

    def play(self) -> None:
        """All runs, to the last record; what is wrong is for the judge to know."""
        for judge in self._judges:
            judge.complained = self._give_up
        random.seed(self._scenario.seed)  # the reader's jitter
        with self._heard():
            self._universe.begin(self._happen)
            self._scheduler.after(_LOOK_SECONDS, self._look)
            calm_runs = 0  # trouble may last for minutes, and a run up to now for seconds
            while not (self._over or self._complaints):
                if calm_runs == _MOST_CALM_RUNS:
                    self._judge.complain("late", f"{calm_runs} runs in calm weather, and not done")
                    break
                calm_runs += self._universe.is_calm
                self._play_run()
                if not (self._over or self._complaints):
                    self._pass_gap()
            for judge in self._judges:
                if not self._complaints:
                    judge.check_all_delivered()
                    judge.check_losses()

    @property
    def _complaints(self) -> bool:
        return any(judge.complaints for judge in self._judges)

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        logger = logging.getLogger("watcher")
        level, propagate = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self._ear)
        try:
            yield
        finally:
            logger.removeHandler(self._ear)
            logger.setLevel(level)
            logger.propagate = propagate

    @abstractmethod
    def _live(self, life: Life) -> None:
        """One run of the program, until it ends by itself or is ended."""

    @abstractmethod
    def _end(self) -> None:
        """Let it end in order; SIGTERM, most often."""

    @abstractmethod
    def _clean_up(self) -> None:
        """The run is over, and what the machine does for a dead process is to be done."""

    def _play_run(self) -> None:
        life = self._life = self._ear.life = Life(self._scheduler)
        run, *_ = [judge.run_begins() for judge in self._judges]
        was_calm = self._universe.is_calm
        self._stopping = False
        self._scheduler.tell("the program", f"begins run {run.number}")
        how = "killed"
        try:
            self._live(life)
            how = "stopped" if self._stopping else "done"
        except Killed:
            pass
        except Stalled as error:
            self._judge.complain("stalled", str(error))
        except WatcherError as error:
            if not life.killed:
                how = f"{type(error).__name__}: {error}"
                self._universe.hears(str(error), warning=True)
                if self._stopping and self._universe.others and isinstance(error, StreamError):
                    how = "stopped"  # the status says which stream was refused then
        except BaseException:
            if not life.killed:
                how = "crash"
                self._judge.complain("crash", traceback.format_exc())
        life.killed = True
        self._life = None
        self._clean_up()
        for judge in self._judges:
            judge.run_ends(how)
        self._scheduler.tell("the program", f"has ended: {how}")
        self._failed_runs = self._failed_runs + 1 if ": " in how else 0
        if how != "killed" and not self._over:
            self._check_end(how, was_calm)

    def _check_end(self, how: str, was_calm: bool) -> None:
        number = self._judge.runs[-1].number
        up_to_now = not self._scenario.follow and not self._scenario.max_records
        if how == "done" and up_to_now:
            for judge in self._judges:
                judge.check_up_to_now()
        if how == "done" and was_calm and number >= LIMITED_RUNS:
            self._over = True  # up to the moment when it began, nothing may be missing
        elif how == "done" and self._scenario.follow and not self._scenario.max_records:
            if all(each.table.stream.disabled is not None for each in self._universe.all):
                self._over = True
            else:
                self._judge.complain("ended", "it has ended, though the stream goes on")
        elif how.startswith("StreamGoneError") and not self._is_there():
            self._over = True
        elif how.startswith(_REFUSALS) and self._has_worked():
            if not self._universe.others:  # else one was refused as it began; the others are read
                self._judge.complain("ended", f"what passes has ended it: {how}")
        elif was_calm and how not in ("done", "stopped") and number > LIMITED_RUNS:
            self._judge.complain("ended", f"it has ended in calm weather: {how}")

    def _has_worked(self) -> bool:
        """Whether the last run was past its beginning; Spark may deliver what it planned before."""
        run = self._judge.runs[-1]
        return bool(run.seen and run.saved)

    def _is_there(self) -> bool:
        retention = self._universe.service.faults.retention
        return self._universe.table.streams[0].is_kept(self._universe.world.now() - retention)

    def _pass_gap(self) -> None:
        seconds = self._rng.uniform(0.05, 3.0) * 2.0**self._failed_runs
        self._scheduler.run_until(self._scheduler.now + min(seconds, _GAP_SECONDS_MAX))

    # What it is given

    def _client(self, life: Life) -> SimulatedClient:
        return self._client_of(self._universe, life)

    def _client_of(self, universe: Universe, life: Life) -> SimulatedClient:
        runs = [judge.runs[-1] for judge in self._judges]

        def wait(seconds: float) -> None:
            began = self._scheduler.now
            try:
                life.sleep(seconds)
            finally:  # a kill comes in the middle of a wait, too
                for run in runs:
                    run.blocked += self._scheduler.now - began

        return universe.client(wait)

    def _start(self) -> Position:
        match self._scenario.start:
            case "latest":
                return Latest()
            case "at_time":
                return AtTime(datetime.fromtimestamp(self._universe.start_time, UTC))
        return TrimHorizon()

    @property
    def _filters(self) -> list[Mapping[str, Any]]:
        """Filters that leave out what the judge calls unwanted."""
        return [UNWANTED] if self._scenario.filtered else []

    @property
    def _wanted(self) -> RecordFilter | None:
        return record_filter(self._filters)

    # What happens to it

    def _give_up(self) -> None:
        """A promise is broken: what follows is of no interest."""
        if self._life is not None:
            self._life.killed = True

    def _look(self) -> None:
        """Every second: is it done? Has it been too long?"""
        universe, judge, now = self._universe, self._judge, self._scheduler.now
        self._scheduler.after(_LOOK_SECONDS, self._look)
        if self._life is None or self._complaints:
            return
        if self._stopping and self._scheduler.awake > self._stopped_at + self._end_seconds():
            judge.complain("late", "it was told to end, and does not")
            self._life.killed = True
        for each in self._judges if not self._hangs else ():
            each.check_silence()
        if self._over or not universe.is_calm:
            return
        if self._scenario.engine == "processes" and not self._hangs:
            for each in self._judges:  # one read may get no answer for half a minute
                each.check_starved(max(universe.calm_since, universe.silent_until))
        # What seems to be listed late is waited for by each run anew: one before it may have ended
        # by a loss, or been killed at its first save.
        since = min(now - universe.calm_since, self._scheduler.awake - judge.runs[-1].began)
        missing = [shard for each in self._judges for shard in each.missing()]
        if self._to_read is None:
            self._to_read = sum(each.to_read for each in self._judges)
        page = self._scenario.habits.get("max_records", 1000)
        if self._scenario.engine == "spark":
            page = min(page, self._scenario.limit or page)
        since -= _PAGE_SECONDS * self._to_read / page + self._slow_seconds
        if any(each.runs[-1].rests for each in self._judges):
            since -= TIMING.stream_backoff.longest_seconds
        is_missing = bool(missing) or judge.lacks_items
        if self._hangs:  # what a run up to now leaves to the next one has to wait as well
            due = missing if self._scenario.follow else []
            is_missing = any(not self._stands(shard.id) for shard, _ in due)
        if is_missing and since > _WITHIN_SECONDS:
            for each in self._judges:
                each.check_all_delivered("late")
        elif self._hangs:
            return
        elif since > _ENDED_WITHIN_SECONDS:
            judge.complain("late", "all is delivered, but it does not end")
        elif (
            self._ends_when_told
            and not is_missing
            and (
                since > _SAID_WITHIN_SECONDS
                or not any(each.is_anew_unsaid or each.unsaid() for each in self._judges)
            )
        ):
            self._over = True
            self._stop()
        if self._complaints:
            self._over = True
            self._life.killed = True

    def _slow(self) -> float:
        """How long a handler takes for what it has been given, where that is much."""
        scenario = self._scenario
        if not scenario.slow or self._rng.random() >= scenario.slow_share:
            return 0.0
        self._slow_seconds += scenario.slow if self._universe.is_calm else 0.0
        return scenario.slow

    def _end_seconds(self) -> float:
        return _END_SECONDS

    @property
    def _ends_when_told(self) -> bool:
        return self._scenario.follow

    @property
    def _hangs(self) -> bool:
        return False

    def _stands(self, shard_id: str) -> bool:
        return False

    def _happen(self, name: str) -> bool:
        action = getattr(self, "_" + name.replace(" ", "_"), None)
        if action is None or self._life is None or self._universe.is_calm:
            return False
        return bool(action())

    def _kill(self) -> None:
        if self._life is not None:
            self._scheduler.tell("the program", "is killed")
            self._life.killed = True

    def _stop(self) -> None:
        self._stopping = True
        self._stopped_at = self._scheduler.awake
        self._end()

    def _kill_the_program(self) -> bool:
        self._kill()
        return True

    def _begin_anew_unseen(self) -> bool:
        """It is killed, and what it finds then is another stream, with the date of the old one."""
        self._kill()
        self._universe.lose_all(dated=False)
        return True

    def _stay_away(self) -> bool:
        """It is killed, and nobody starts it again for long."""
        self._kill()
        self._universe.pass_hours("is off for")
        return True

    def _end_the_program(self) -> bool:
        self._stop()
        return True
