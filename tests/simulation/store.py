"""A checkpoint in memory: encoded as in a file, with a disk that may be full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.judge import Judge
from tests.simulation.scheduler import Killed, Life, Scheduler
from watcher.errors import UsageError
from watcher.stores.protocol import Store
from watcher.streams.checkpoint_format import Token, all_from_json, encode_all


class Disk:
    """What is left of a run when the next one begins."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.is_full = False
        self.kill_at_save: str = ""
        """Where the next save ends the program: before or after the writing."""


class MemoryStore(Store):
    name = "checkpoint.json"

    def __init__(
        self,
        disk: Disk,
        life: Life,
        scheduler: Scheduler,
        judge_of: Callable[[str], Judge],
        kill: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._life = life
        self._scheduler = scheduler
        self._judge_of = judge_of
        self._kill = kill

    def load(self) -> list[Token]:
        self._life.check()
        return [] if self._disk.data is None else all_from_json(self._disk.data)

    def save(self, tokens: Sequence[Token]) -> None:
        self._life.check()
        self._life.sleep(0.002)
        disk = self._disk
        at, disk.kill_at_save = disk.kill_at_save, ""
        if at == "before":
            self._kill()
            raise Killed
        for token in tokens:
            self._judge_of(token.stream_arn).saved(token, went_well=not disk.is_full)
        self._scheduler.tell("the program", "saves" + ", but the disk is full" * disk.is_full)
        if disk.is_full:
            raise UsageError("can't use checkpoint: No space left on device")
        disk.data = encode_all(tokens)
        if at == "after":
            self._kill()
            raise Killed

    def close(self) -> None:
        """There is no lock to give back."""
