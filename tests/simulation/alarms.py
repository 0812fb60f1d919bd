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
_ANEW = "created again"
_LOST_STREAM = re.compile(r"no stream arn|DATA LOSS: between the table's streams")


class Alarms(Ledger):
    def __init__(self, *universe: Any) -> None:
        super().__init__(*universe)
        self.said: set[str] = set()  # the shards that are said to have lost something
        self.stored: set[str] = set()  # the shards that a token has held
        self._said_upto: dict[str, int] = {}
        """Up to which index a shard's records are gone by a word for the whole stream."""
        self._said_of_all_at = -math.inf
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
            self._said_of_all_at = self._world.now()  # nobody can see any more that it began anew
            former = self._table.streams[:-1] if "between" in text else self._table.streams
            self.said.update(name for stream in former for name in stream.shards)
            # One that came and went while another was read is not gone on with: that is said.
            for stream in former if "between" in text else ():
                if stream.arn not in text:
                    self._skipped.update(stream.shards)
        elif _LOST_ALL.search(text):
            self._said_of_all(text)

    def _said_of_all(self, text: str) -> None:
        """A word for the whole stream has to do for what has gone of shards that it did not know.

        Of a stream that was created again it knows none.
        """
        self._said_of_all_at = self._world.now()
        self._age()
        for shard in self.shards():
            if _ANEW in text or shard.id not in self.stored:
                self._said_upto[shard.id] = len(shard.numbers) if shard.gone else shard.first

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
        return self._said_of_all_at < self._anew_at

    def unsaid(self) -> list[tuple[Shard, int]]:
        """The shards of which records have gone unread without a word, and how many."""
        unsaid = []
        for shard in self.shards():
            self.checked["shards judged"] += 1
            if shard.id in self.said or self._is_said_in_line(shard):
                continue
            first = max(self.first(shard), self._said_upto.get(shard.id, 0))
            done = self._done.get(shard.id, set())
            lost = [
                number
                for number, key in zip(shard.numbers[first:], shard.keys[first:], strict=True)
                if number not in done and not self.unwanted(key)
            ]
            if lost and not self._was_never_ours(shard, lost[0]):
                unsaid.append((shard, len(lost)))
        return unsaid

    def _is_said_in_line(self, shard: Shard) -> bool:
        """Whether Spark did not know the shard, and says a loss of one above it, or below."""
        if shard.id in self.stored or self._scenario.engine != "spark":
            return False
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
