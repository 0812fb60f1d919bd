"""What was said to be lost, held against what is: no loss without a word, no word for nothing."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.simulation.ledger import RETENTION, Ledger
from tests.simulator.model import Shard

# What left retention as a watch from the horizon began was never promised.
_YOUNG_SECONDS = 60.0
_LOST = re.compile(r"DATA LOSS: shard ([\w-]+)")
_FINISHED = re.compile(r"Finished shard: (\S+)")
_OF_ALL = "checkpoint|token|last listing|stream that was read"
_LOST_ALL = re.compile(f"DATA LOSS: the (?:{_OF_ALL}) is of")
_LOST_STREAM = re.compile(r"no stream arn|DATA LOSS: between the table's streams")


class Alarms(Ledger):
    def __init__(self, *universe: Any) -> None:
        super().__init__(*universe)
        self.said: set[str] = set()  # the shards that are said to have lost something
        self.stored: dict[str, float] = {}
        """The shards that a token has held, and when the first one was stored (epoch seconds)."""
        self.said_of_all: list[float] = []
        self._finished: set[str] = set()
        self._anew_at = -math.inf  # when a service began anew of which something was stored
        self.seems_closed: set[str] = set()
        """The shards of which one answer had no next iterator while they were open."""

    def says(self, text: str, *, warning: bool) -> None:
        """A line of the log, or the error that has ended a run."""
        run = self.runs[-1]
        if warning:
            run.warned = self._now()
        if "the other streams continue" in text:
            run.rests = True
        elif "can be read again" in text:
            run.rests = False
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
        if self.runs[-1].is_excused or shard_id in self.former_shards:
            return
        if shard is None:
            self.complain("false alarm", f"a loss in {shard_id}, which there never was")
        elif not (shard.first or shard.gone or self._is_old(shard)):
            self.complain("false alarm", f"a loss in {shard_id}, which has all its records")
        elif shard_id in self._finished - self.seems_closed:
            self.complain("false alarm", f"a loss in {shard_id}, which was finished and saved")

    def _is_old(self, shard: Shard) -> bool:
        stream = next(each for each in self._table.streams if shard.id in each.shards)
        return stream.disabled is not None or shard.created < self._world.now() - RETENTION

    def check_losses(self) -> None:
        """What has left retention unread was said, by shard."""
        if self.is_anew_unsaid:
            self.complain("unsaid", "the service began anew, without a word")
        for shard, count in self.unsaid():
            self.complain("unsaid", f"{count} records of {shard.id} are gone without a word")

    @property
    def is_anew_unsaid(self) -> bool:
        return not any(at >= self._anew_at for at in (*self.said_of_all, -math.inf))

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
        if any(said - known < RETENTION for said in self.said_of_all):
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
        ended = self.runs[0].ended or self._now()
        return (
            self._scenario.start != "latest"
            and shard.id in self._old
            and shard.numbers[self.first(shard)] == lost
            and ended - self.runs[0].began < _YOUNG_SECONDS
        )
