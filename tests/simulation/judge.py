"""What was delivered, saved and said, held against what was written: each promise a check."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.simulation.alarms import Alarms
from tests.simulation.items import Told
from tests.simulation.ledger import Run
from tests.simulator.model import Shard
from watcher.streams.checkpoint_format import Token, TokenShard

SAVE_SECONDS = 1.0  # the interval of the checkpoint
_SLACK_SECONDS = 0.6
SILENT_SECONDS = 75.0
# So many of a shard's reads are throttled before its reader knows what is allowed, and from then on
# this share.
_THROTTLED_AT_FIRST = 8
_STARVED_SECONDS = 20.0
_SEARCH_SECONDS = 35.0
_THROTTLED_SHARE = 0.05


class Judge(Alarms):
    """Hears of everything as it happens. `complaints` is empty as long as all is well."""

    def __init__(self, *universe: Any) -> None:
        super().__init__(*universe)
        self._places: dict[str, dict[int, int]] = {}
        self._last_progress: dict[str, float] = {}
        self._newest: dict[str, int] = {}
        self._passed: set[str] = set()
        self._checked_entries: dict[str, TokenShard] = {}
        self.told = Told(self, self._table)

    def begin(self, start: float) -> None:
        super().begin(start)
        self.told.begin()

    def begins_anew(self, dated: bool, is_seen: bool = False) -> None:
        """The service has lost all: of what was written or read before nothing counts.

        What the program has read since may be anything, unless the numbers tell (`is_seen`).

        Without a date, what is said depends on what a shard's position was, and on later records.
        """
        for shard in self.shards():
            self.former.update(shard.numbers)
            self.former_shards.add(shard.id)
        if not dated:
            self.said.update(self.former_shards)
        elif any(went_well for run in self.runs for _, went_well in run.saved):
            self._anew_at = self._world.now()
        for run in self.runs:
            run.is_excused = not is_seen
            for known in (run.newest, run.passed):
                known.clear()
        indices = (self._old, self._first, self._accounted, self._said_upto, self._newest)
        for each in (*indices, self._checked_entries):
            each.clear()
        self._passed.clear()

    def delivered(self, shard_id: str, sequence_number: str, key: str) -> None:
        run, number = self.runs[-1], int(sequence_number)
        if number in self.former:
            return
        shard = self.shard(shard_id)
        name = f"{sequence_number} of {shard_id}"
        index = None if shard is None else self._index(shard, number)
        if run.is_excused:  # it may come in any order, but is not lost
            if index is not None:
                self._done.setdefault(shard_id, set()).add(number)
            return
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
        self.told.change(key, shard.versions[index])
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
        """An handler has failed on a record, and its policy says that this was all."""
        run, number = self.runs[-1], int(sequence_number)
        if run.is_excused and number in self.former:
            return
        self._done.setdefault(shard_id, set()).add(number)
        if run.is_excused:
            return
        self._last_progress[shard_id] = self._now()
        if (shard := self.shard(shard_id)) is not None:
            self._pass(shard, run)
            index = bisect_left(shard.numbers, number)
            self.told.change(shard.keys[index], shard.versions[index])

    def keeps_start(self) -> None:
        """From now on the program knows where it began: what is written has to come."""
        if not self.runs[-1].saved:
            for shard in self.shards():
                self.granted(shard.id)
        self.runs[-1].saved.append((self._now(), True))

    def knows(self, shard_ids: Iterable[str]) -> None:
        self.stored.update(shard_ids)

    def together(self, tasks: Sequence[Mapping[str, Sequence[str]]]) -> None:
        """Records that come at once: a shard's after those of one above it, in the same task."""
        places = {
            shard_id: (task, place)
            for task, rows in enumerate(tasks)
            for place, shard_id in enumerate(rows)
            if self._is_promised(shard_id, rows[shard_id])
        }
        for shard_id, (task, place) in places.items():
            shard = self.shard(shard_id)
            while shard is not None and shard.parent is not None:
                of_parent, before = places.get(shard.parent, (task, -1))
                if of_parent != task or before > place:
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
        self._age()
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
        is_former = shard is None or int(entry.sequence_number or 0) in self.former
        if self.runs[-1].is_excused or (is_former and entry.shard_id in self.former_shards):
            return
        if shard is None:
            self.complain("ahead", f"a token holds {entry.shard_id}, which there never was")
            return
        if entry.finished and entry.shard_id not in self.seems_closed:
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
        if self.runs[-1].is_excused:
            return
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

    def holds_number(self, shard_id: str) -> bool:
        """Whether what is stored of a shard is a sequence number: what was trimmed there shows."""
        entry = self._checked_entries.get(shard_id)
        stored = any(went_well for run in self.runs[-1:] for _, went_well in run.saved[-1:])
        return stored and entry is not None and entry.sequence_number is not None

    def has_begun(self, shard: Shard) -> bool:
        return shard.id in self._done or not shard.numbers

    def has_failed(self, sequence_number: str) -> bool:
        return self.runs[-1].failures[int(sequence_number)] > 0

    def stood(self, shard_id: str) -> None:
        """A handler has kept this shard up to now: what comes of it begins again."""
        self._last_progress[shard_id] = self._now()

    def check_silence(self) -> None:
        """Where nothing comes for long, there has to have been a word."""
        self.checked["looks for silence"] += 1
        run, now = self.runs[-1], self._now()
        if now - run.began < SILENT_SECONDS:
            return
        # A run up to now leaves to the next one what is written since; a Stream is pulled for ever.
        up_to_now = not self._scenario.follow and self._scenario.engine != "stream"
        for shard, index in self.missing():
            if up_to_now and index >= run.standing.get(shard.id, 0):
                continue
            written = now - (self._world.now() - shard.times[index])
            progress = max(self._last_progress.values(), default=0.0)
            since = max(run.began, progress, written)
            if now - since > SILENT_SECONDS and run.warned < since and not run.rests:
                self.complain("silent", f"{shard.id} waits for {now - since:.0f} s without a word")

    def check_starved(self, calm_since: float) -> None:
        """No shard waits for all that another one has: slow handlers take them in turn."""
        scenario, run, now = self._scenario, self.runs[-1], self._now()
        patience = _STARVED_SECONDS + 3 * scenario.slow_listings
        patience += 2 * scenario.slow * len(self.shards())
        patience += _SEARCH_SECONDS + 10 * scenario.slow_tags if scenario.slow_tags else 0.0
        # Those that share a process wait for each page that it has sent.
        is_due = scenario.follow and scenario.processes > 3 and not run.rests
        missing = self.missing() if is_due else []
        left = {shard.id for shard, _ in missing}
        for shard, index in missing:
            line = [shard.id]
            while (at := self.shard(line[-1])) and at.parent:
                line.append(at.parent)
            for stream in self._table.streams:  # a table's next stream waits for all of the last
                if shard.id in stream.shards:
                    break
                line += stream.shards
            if left.intersection(line[1:]):
                continue
            its_own = [self._last_progress.get(each, 0.0) for each in line]
            written = now - (self._world.now() - shard.times[index])
            since = max(run.began, calm_since, written, *its_own)
            if max(self._last_progress.values(), default=0.0) > since + patience:
                self.complain("starved", f"{shard.id} waits for {now - since:.0f} s for others")

    def check_all_delivered(self, check: str = "lost") -> None:
        """Everything that can still be read has been delivered."""
        for shard, index in self.missing():
            left = len(shard.numbers) - index
            self.complain(check, f"{left} records of {shard.id} from {shard.numbers[index]} on")
        if self._scenario.snapshot and not self.complaints:
            self.told.check()

    @property
    def to_read(self) -> int:
        """How many records are to be read yet.

        Where LATEST was refused at first, a snapshot's changes begin at a time, and all of that
        may have to come before the last state of an item: more than what is promised.
        """
        due = sum(len(shard.numbers) - index for shard, index in self.missing())
        if not self.lacks_items:
            return due
        done = {shard_id: max(numbers, default=0) for shard_id, numbers in self._done.items()}
        behind = [
            len(each.numbers) - bisect_right(each.numbers, done.get(each.id, 0))
            for each in self.shards()
        ]
        return max(due, sum(behind))

    @property
    def lacks_items(self) -> bool:
        return self._scenario.snapshot and bool(self.told.missing())

    def check_up_to_now(self) -> None:
        """A run "up to now" has ended: what there was as it began has been delivered."""
        self.checked["ends up to now"] += 1
        self._age()
        for shard in self.shards():
            if shard.id in self._skipped or self.runs[-1].is_excused:
                continue
            standing = self.runs[-1].standing.get(shard.id, 0)
            if self.accounted(shard) < min(standing, len(shard.numbers)):
                self.complain("lost", f"{shard.id} was there, and it ended without all of it")

    def check_throttled(
        self, reads: Mapping[str, int], throttled: Mapping[str, int], begun: Mapping[str, int]
    ) -> None:
        """Whoever shares a shard with others asks no more often than is left for it.

        Of each shard: how many reads there were, were throttled, and began anew.
        """
        for shard_id, count in throttled.items():
            self.checked["shares of throttled reads"] += 1
            at_first = _THROTTLED_AT_FIRST * max(1, begun[shard_id])
            if count > at_first + _THROTTLED_SHARE * reads[shard_id]:
                self.complain("throttled", f"{count} of {reads[shard_id]} reads of {shard_id}")
