"""What was delivered, saved and said, held against what was written: each promise a check."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.simulation.scenario import Scenario
from tests.simulator.model import Shard, World
from watcher.reading.token import Token, TokenShard

SAVE_SECONDS = 1.0
"""The interval of the checkpoint."""
_SLACK_SECONDS = 0.6
# What left retention as a watch from the horizon began was never promised.
_YOUNG_SECONDS = 60.0
SILENT_SECONDS = 75.0
_RETENTION = 24 * 3600.0
_LOST = re.compile(r"DATA LOSS: shard ([\w-]+)")
_FINISHED = re.compile(r"Finished shard: (\S+)")
_LOST_ALL = re.compile(r"DATA LOSS: the (?:checkpoint|last listing) is of")
_LOST_STREAM = re.compile(r"no stream arn|DATA LOSS: between the table's streams")


class Complaint(NamedTuple):
    """A broken promise: which check saw it, and what it saw."""

    check: str
    text: str


class Run:
    """One run of the program."""

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.ended = 0.0
        self.blocked = 0.0
        """How long its main thread has waited for the service."""
        self.how = ""
        self.seen: dict[int, tuple[float, float]] = {}
        """Sequence number → when it was delivered, and how long was waited by then."""
        self.newest: dict[str, int] = {}
        self.passed: set[str] = set()
        self.failures: Counter[int] = Counter()
        self.warned: float = -1.0
        self.standing: dict[str, int] = {}
        """How many records there were in each shard as it began."""
        self.finished: list[str] = []
        """The shards that are said to be finished since the last save."""
        self.saved: list[tuple[float, bool]] = []
        self.kept: set[int] | None = None
        """What was delivered when somebody kept a token by hand."""


class Judge:
    """Hears of everything as it happens. `complaints` is empty as long as all is well."""

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        now: Callable[[], float],
        tell: Callable[[str, str], None],
    ) -> None:
        self.complaints: list[Complaint] = []
        self.runs: list[Run] = []
        self.complained: Callable[[], object] = lambda: None
        """Called with the first complaint, and each that follows."""
        self.checked: Counter[str] = Counter()
        """How often each promise was put to the test."""
        self.said: set[str] = set()
        """The shards that are said to have lost something."""
        self.stored: dict[str, float] = {}
        """The shards that a token has held, and when the first one was stored (epoch seconds)."""
        self.said_of_all: list[float] = []
        self._scenario = scenario
        self._world = world
        self._table = next(iter(world.tables.values()))
        self._now = now
        self._tell = tell
        self._start = 0.0
        self._has_begun = False
        self._first_stream = 0
        self._old: dict[str, int] = {}
        self._places: dict[str, dict[int, int]] = {}
        self._done: dict[str, set[int]] = {}
        self._accounted: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._last_progress: dict[str, float] = {}
        self._newest: dict[str, int] = {}
        self._passed: set[str] = set()
        self._finished: set[str] = set()
        self._skipped: set[str] = set()
        self._checked_entries: dict[str, TokenShard] = {}

    # What is to come

    def begin(self, start: float) -> None:
        """The watch begins: where it is from a time on, that is `start` (epoch seconds)."""
        self._start = start
        self._has_begun = False
        # A watch of a table begins with its newest stream.
        self._first_stream = len(self._table.streams) - 1 if self._scenario.of_table else 0
        self._age()
        self._first.clear()
        self._accounted.clear()
        self._old = {shard.id: shard.first for shard in self.shards()}

    def listed(self) -> None:
        """Shards are listed; what the very first listing shows is there as the watch begins."""
        if not self._has_begun:
            self._has_begun = True
            self._old.update({shard.id: shard.first for shard in self.shards()})

    def granted(self, shard_id: str) -> None:
        """A shard is read from LATEST: what is written from now on has to come."""
        shard = self.shard(shard_id)
        if shard is not None and self._scenario.start == "latest" and shard_id in self._old:
            self._first.setdefault(shard_id, len(shard.numbers))

    def shards(self) -> list[Shard]:
        """All that are the watch's to read, or were."""
        streams = self._table.streams[self._first_stream :]
        return [shard for stream in streams for shard in stream.shards.values()]

    def shard(self, shard_id: str) -> Shard | None:
        """The shard of that name."""
        for stream in reversed(self._table.streams):
            if found := stream.shards.get(shard_id):
                return found
        return None

    def first(self, shard: Shard) -> int:
        """The index of the first record that has to come."""
        known = self._first.get(shard.id)
        if known is not None:
            return known
        if shard.id not in self._old:
            self._first[shard.id] = 0
            return 0
        match self._scenario.start:
            case "trim_horizon":
                first = self._old[shard.id]
            case "at_time":
                first = max(self._old[shard.id], bisect_left(shard.times, self._start))
            case _:
                return len(shard.numbers)  # nothing is promised yet
        self._first[shard.id] = first
        return first

    # What happens

    def run_begins(self) -> Run:
        """Another run of the program."""
        if not any(went_well for run in self.runs for _, went_well in run.saved):
            self.begin(self._start)  # of the run before nothing is left: it begins anew
        else:
            for shard in self.shards():
                self.granted(shard.id)
        run = Run(len(self.runs), self._now())
        run.standing = {shard.id: len(shard.numbers) for shard in self.shards()}
        self.runs.append(run)
        return run

    def run_ends(self, how: str) -> None:
        """The last run is over: done, stopped, killed, or an error's text."""
        run = self.runs[-1]
        run.how, run.ended = how, self._now()

    def delivered(self, shard_id: str, sequence_number: str, key: str) -> None:
        """An observer has taken a record."""
        run, number = self.runs[-1], int(sequence_number)
        shard = self.shard(shard_id)
        name = f"{sequence_number} of {shard_id}"
        index = None if shard is None else self._index(shard, number)
        if shard is None or index is None:
            self.complain("unknown", f"{name} was never written there")
            return
        self.checked["records delivered"] += 1
        if number in run.seen:
            self.complain("repeated", f"{name} delivered twice in one run")
            return
        done = self._done.setdefault(shard_id, set())
        if number in done:
            self._check_repeat(number, name)
        if index >= self.first(shard):  # what is older than a start at LATEST may come, or not
            self._check_order(shard, number, key, is_first=number not in done)
        run.seen[number] = (self._now(), run.blocked)
        done.add(number)
        self._last_progress[shard_id] = self._now()

    def _check_order(self, shard: Shard, number: int, key: str, *, is_first: bool) -> None:
        run, name = self.runs[-1], f"{number} of {shard.id}"
        if number < run.newest.get(key, 0) or (is_first and number < self._newest.get(key, 0)):
            self.complain("order", f"{name} came after a later change of {key}")
        if shard.id in run.passed or (is_first and shard.id in self._passed):
            self.complain("lineage", f"{name} came after a record of a shard below")
        run.newest[key] = number
        self._newest[key] = max(number, self._newest.get(key, 0))
        self._pass(shard, run)

    def failed(self, shard_id: str, sequence_number: str) -> None:
        """An observer has failed on a record, and its policy says that this was all."""
        self._done.setdefault(shard_id, set()).add(int(sequence_number))
        self._last_progress[shard_id] = self._now()
        if (shard := self.shard(shard_id)) is not None:
            self._pass(shard, self.runs[-1])

    def keeps_start(self) -> None:
        """From now on the program knows where it began: what is written has to come."""
        if not self.runs[-1].saved:
            for shard in self.shards():
                self.granted(shard.id)
        self.runs[-1].saved.append((self._now(), True))

    def knows(self, shard_ids: Iterable[str]) -> None:
        """These shards are in what is stored."""
        for shard_id in shard_ids:
            self.stored.setdefault(shard_id, self._world.now())

    def together(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Records that come at once: none of a shard and of one that is below it."""
        promised = {shard_id for shard_id in rows if self._is_promised(shard_id, rows[shard_id])}
        for shard_id in promised:
            shard = self.shard(shard_id)
            while shard is not None and shard.parent is not None:
                if shard.parent in promised:
                    self.complain("lineage", f"{shard_id} comes together with {shard.parent}")
                shard = self.shard(shard.parent)

    def _is_promised(self, shard_id: str, numbers: Sequence[str]) -> bool:
        shard = self.shard(shard_id)
        index = None if shard is None else self._index(shard, int(numbers[-1]))
        return shard is not None and index is not None and index >= self.first(shard)

    def replayed(
        self, batch: int, before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
    ) -> None:
        """A micro-batch is done again: it has to be the same one, unless retention has passed."""
        self.checked["batches done again"] += 1
        for shard_id in before.keys() | now.keys():
            old, new = before.get(shard_id, ()), now.get(shard_id, ())
            shard = self.shard(shard_id)
            if old != new and not (shard and (shard.first or shard.gone)):
                self.complain(
                    "replay", f"batch {batch} has other records of {shard_id} than before"
                )

    def forget_repeatable(self) -> None:
        """Whoever keeps a token by hand: what was delivered before it must never come again."""
        run = self.runs[-1]
        run.kept = set(run.seen)

    def _pass(self, shard: Shard, run: Run) -> None:
        """Nothing of what is above a shard may come any more."""
        parent = shard.parent
        while parent and parent not in run.passed:
            run.passed.add(parent)
            self._passed.add(parent)
            above = self.shard(parent)
            parent = above.parent if above else None

    @staticmethod
    def _index(shard: Shard, number: int) -> int | None:
        index = bisect_left(shard.numbers, number)
        return index if shard.numbers[index : index + 1] == [number] else None

    def _check_repeat(self, number: int, name: str) -> None:
        """What was delivered before may come again only if a kill came before its save."""
        self.checked["repeats after a kill"] += 1
        for before in reversed(self.runs[:-1]):
            if number in before.seen:
                break
        else:
            return  # a failure that was tried again
        if self._scenario.engine == "spark":
            self.complain("repeats", f"{name} came again, in another batch")
            return
        if before.kept is not None or self._scenario.engine == "stream":
            if any(run.kept and number in run.kept for run in self.runs[:-1]):
                self.complain("repeats", f"{name} came again, though a token was kept after it")
            return
        moment, blocked = before.seen[number]
        if before.how != "killed":
            if before.saved and not before.saved[-1][1]:
                return  # its last save met a full disk
            self.complain("repeats", f"{name} came again, though run {before.number} was ended")
            return
        age = (before.ended - moment) - (before.blocked - blocked)
        if any(not went_well and at >= moment - SAVE_SECONDS for at, went_well in before.saved):
            return
        if age > SAVE_SECONDS + _SLACK_SECONDS + self._scenario.slow:
            self.complain("repeats", f"{name} came again, {age:.1f} s old as its run was killed")

    def says(self, text: str, *, warning: bool) -> None:
        """A line of the log, or the error that has ended a run."""
        run = self.runs[-1]
        if warning:
            run.warned = self._now()
        if found := _FINISHED.match(text):
            run.finished.append(found[1])
        if found := _LOST.search(text):
            self.said.add(found[1])
            self._check_alarm(found[1])
        elif _LOST_STREAM.search(text):
            former = self._table.streams[:-1] if "between" in text else self._table.streams
            self.said.update(name for stream in former for name in stream.shards)
            # One that came and went while another was read is not gone on with: that is said.
            for stream in former if "between" in text else ():
                if stream.arn not in text:
                    self._skipped.update(stream.shards)
        elif _LOST_ALL.search(text):
            self.said_of_all.append(self._world.now())

    def _check_alarm(self, shard_id: str) -> None:
        self.checked["losses said"] += 1
        shard = self.shard(shard_id)
        if shard is None:
            self.complain("false alarm", f"a loss in {shard_id}, which there never was")
        elif not (shard.first or shard.gone or self._is_old(shard)):
            self.complain("false alarm", f"a loss in {shard_id}, which has all its records")
        elif shard_id in self._finished:
            self.complain("false alarm", f"a loss in {shard_id}, which was finished and saved")

    def _is_old(self, shard: Shard) -> bool:
        """Whether retention has passed since the shard was opened."""
        stream = next(each for each in self._table.streams if shard.id in each.shards)
        return stream.disabled is not None or shard.created < self._world.now() - _RETENTION

    def saved(self, token: Token, *, went_well: bool) -> None:
        """The positions are stored: nothing in them may be ahead of the delivery."""
        self.runs[-1].saved.append((self._now(), went_well))
        self.checked["tokens"] += 1
        if went_well:
            self._finished.update(self.runs[-1].finished)
            self.runs[-1].finished.clear()
            self.knows(entry.shard_id for entry in token.shards if not entry.unlisted)
        self._age()
        for entry in token.shards:
            if self._checked_entries.get(entry.shard_id) != entry:
                self._check_entry(entry)
                self._checked_entries[entry.shard_id] = entry
        self._check_absent(token)

    def _check_entry(self, entry: TokenShard) -> None:
        shard = self.shard(entry.shard_id)
        if shard is None:
            self.complain("ahead", f"a token holds {entry.shard_id}, which there never was")
            return
        if entry.finished:
            upto = len(shard.numbers)
            if shard.closed is None:
                self.complain("ahead", f"a token calls {shard.id} finished, which is open")
        elif entry.iterator_type == "after_sequence":
            upto = bisect_right(shard.numbers, int(entry.sequence_number or 0))
        elif entry.iterator_type == "at_sequence":
            upto = bisect_left(shard.numbers, int(entry.sequence_number or 0))
        elif entry.time is not None:
            upto = bisect_left(shard.times, entry.time.timestamp())
        elif entry.iterator_type == "latest":
            upto = len(shard.numbers)
        else:
            upto = 0
        if upto > self.accounted(shard):
            self.complain("ahead", f"a token is ahead of the delivery in {shard.id}: {entry}")

    def _check_absent(self, token: Token) -> None:
        """A shard that a token leaves out, but not what is below it, counts as read."""
        held = {entry.shard_id for entry in token.shards}
        for entry in token.shards:
            parent = entry.parent
            while parent and parent not in held:
                held.add(parent)
                above = self.shard(parent)
                if above is None:
                    break
                if self.accounted(above) < len(above.numbers):
                    self.complain("ahead", f"a token leaves out {parent}, which is not delivered")
                parent = above.parent

    def accounted(self, shard: Shard) -> int:
        """Up to which index a shard's records are delivered, not wanted, or gone."""
        index = max(self._accounted.get(shard.id, 0), self.first(shard))
        if shard.id in self._old and shard.id not in self._first:
            return index
        done = self._done.get(shard.id, set())
        numbers, keys = shard.numbers, shard.keys
        while index < len(numbers) and (
            numbers[index] in done or self._is_excused(shard, index) or self.unwanted(keys[index])
        ):
            index += 1
        self._accounted[shard.id] = index
        return index

    def _age(self) -> None:
        """What is out of retention is gone, whether the service was asked since or not."""
        horizon = self._world.now() - _RETENTION
        for stream in self._table.streams:
            stream.expire(horizon)
            if not stream.is_kept(horizon):
                for shard in stream.shards.values():
                    shard.gone = True

    def unwanted(self, key: str) -> bool:
        """Whether the filter leaves a record out."""
        return self._scenario.filtered and key == "k0"

    @staticmethod
    def _is_excused(shard: Shard, index: int) -> bool:
        return index < shard.first or shard.gone

    def holds_number(self, shard_id: str) -> bool:
        """Whether what is stored of a shard is a sequence number: what was trimmed there shows."""
        entry = self._checked_entries.get(shard_id)
        stored = any(went_well for run in self.runs[-1:] for _, went_well in run.saved[-1:])
        return stored and entry is not None and entry.sequence_number is not None

    def has_begun(self, shard: Shard) -> bool:
        """Whether something of a shard was delivered, or there is nothing in it."""
        return shard.id in self._done or not shard.numbers

    # Now and then, and at the end

    def missing(self) -> list[tuple[Shard, int]]:
        """The shards of which something readable is not delivered, and the first such record."""
        missing = []
        self._age()
        for stream in self._table.streams[self._first_stream :]:
            if self._scenario.engine != "processes" and stream is not self._table.streams[0]:
                continue  # it does not follow the table
            for shard in stream.shards.values():
                index = self.accounted(shard)
                if index < len(shard.numbers) and shard.id not in self._skipped:
                    missing.append((shard, index))
        return missing

    def check_silence(self) -> None:
        """Where nothing comes for long, there has to have been a word."""
        self.checked["looks for silence"] += 1
        run, now = self.runs[-1], self._now()
        if now - run.began < SILENT_SECONDS:
            return
        for shard, index in self.missing():
            written = now - (self._world.now() - shard.times[index])
            progress = max(self._last_progress.values(), default=0.0)
            since = max(run.began, progress, written)
            if now - since > SILENT_SECONDS and run.warned < since:
                self.complain("silent", f"{shard.id} waits for {now - since:.0f} s without a word")

    def check_all_delivered(self, check: str = "lost") -> None:
        """Everything that can still be read has been delivered."""
        for shard, index in self.missing():
            left = len(shard.numbers) - index
            self.complain(check, f"{left} records of {shard.id} from {shard.numbers[index]} on")

    def check_up_to_now(self) -> None:
        """A run "up to now" has ended: what there was as it began has been delivered."""
        self.checked["ends up to now"] += 1
        self._age()
        for shard in self.shards():
            standing = self.runs[-1].standing.get(shard.id, 0)
            if self.accounted(shard) < min(standing, len(shard.numbers)):
                self.complain("lost", f"{shard.id} was there, and it ended without all of it")

    def check_losses(self) -> None:
        """What has left retention unread was said, by shard."""
        for shard, count in self.unsaid():
            self.complain("unsaid", f"{count} records of {shard.id} are gone without a word")

    def unsaid(self) -> list[tuple[Shard, int]]:
        """The shards of which records have gone unread without a word, and how many."""
        unsaid = []
        for shard in self.shards():
            self.checked["shards judged"] += 1
            if shard.id in self.said or self._is_said_of_all(shard):
                continue
            first, done = self.first(shard), self._done.get(shard.id, set())
            lost = [
                number
                for number, key in zip(shard.numbers[first:], shard.keys[first:], strict=True)
                if number not in done and not self.unwanted(key)
            ]
            if lost and not self._was_never_ours(shard, lost[0]):
                unsaid.append((shard, len(lost)))
        return unsaid

    def _is_said_of_all(self, shard: Shard) -> bool:
        """Whether a word for the whole stream has to do: the program did not know the shard."""
        known = self.stored.get(shard.id, math.inf)
        if any(said - known < _RETENTION for said in self.said_of_all):
            return True
        return known == math.inf and self._scenario.engine == "spark" and self._is_in_line(shard)

    def _is_in_line(self, shard: Shard) -> bool:
        """Whether a loss is said of a shard above it: it goes on to what comes next."""
        above: Shard | None = shard
        while above is not None and above.parent is not None:
            if above.parent in self.said:
                return True
            above = self.shard(above.parent)
        below = {shard.id}
        for each in self.shards():
            if each.parent in below:
                below.add(each.id)
        return not below.isdisjoint(self.said)

    def _was_never_ours(self, shard: Shard, lost: int) -> bool:
        """Left retention just as the watch began, at the horizon: that is no loss."""
        ended = self.runs[0].ended or self._now()
        return (
            self._scenario.start != "latest"
            and shard.id in self._old
            and shard.numbers[self.first(shard)] == lost
            and ended - self.runs[0].began < _YOUNG_SECONDS
        )

    def complain(self, check: str, text: str) -> None:
        """A promise is broken."""
        self._tell("THE JUDGE", f"{check}: {text}")
        self.complained()
        self.complaints.append(Complaint(check, text))
