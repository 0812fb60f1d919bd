"""The pull interface in the simulation: somebody pulls, keeps a token now and then, and dies."""

from __future__ import annotations

import json
from datetime import datetime

from tests.simulation.program import LIMITED_RUNS, Program
from tests.simulation.scheduler import Life
from tests.simulation.universe import Universe
from tests.support.pulled import Pulled
from watcher.aws.model import AtTime, Latest
from watcher.stream import Stream
from watcher.streams import checkpoint_format

_PAUSE_SECONDS = 0.5
# From one read of a shard to the next, where the service is taken to allow one a second.
_READ_SECONDS = 1.25


class Pull(Program):
    """`Stream`, pulled by a program that keeps its tokens in a file."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self._kept: str | None = None

    def _live(self, life: Life) -> None:
        limited = self._judge.runs[-1].number < LIMITED_RUNS
        stream = Pulled(
            self._client(life),
            self._universe.table.streams[0].arn,
            self._kept or self._where(),
            record_filter=self._wanted,
            fail_on_data_loss=self._scenario.fail_on_data_loss and limited,
            clock=life,
        )
        while not self._stopping:
            record = next(stream)
            life.check()
            if record is None:
                self._keep(stream, 0.5)
                life.sleep(self._rng.random() * _PAUSE_SECONDS)
                continue
            if self._scheduler.trace is not None:
                number = record.sequence_number
                self._scheduler.tell("the puller", f"takes {number} of {record.shard_id}")
            key = str(record.key["pk"])
            self._judge.delivered(record.shard_id, record.sequence_number, key)
            self._keep(stream, 0.05)
            if slow := self._slow():
                life.sleep(slow)
            if self._rng.random() < 0.01:
                stream.heartbeat()
        self._keep(stream, 1.0)

    def _where(self) -> str | datetime:
        match self._start():
            case Latest():
                return "latest"
            case AtTime(time):
                return time
        return "trim_horizon"

    def _keep(self, stream: Stream, share: float) -> None:
        if self._rng.random() < share:
            text = json.dumps(stream.token)
            self._judge.saved(checkpoint_format.from_json(text), went_well=True)
            self._judge.forget_repeatable()
            self._kept = text

    def _clean_up(self) -> None:
        """It has neither processes nor files."""

    def _end(self) -> None:
        self._scheduler.tell("the program", "is to end")

    def _end_seconds(self) -> float:
        """One `next` passes over all that the filter leaves out: where it must, a read a second."""
        shards = self._universe.table.streams[0].shards.values()
        passed_over = sum(map(self._judge.unwanted, (key for each in shards for key in each.keys)))
        page: float = self._scenario.habits.get("max_records", 1000)
        return super()._end_seconds() + _READ_SECONDS * passed_over / page

    @property
    def _ends_when_told(self) -> bool:
        return True
