"""The programs of a soak: one that is never ended, and two that share a checkpoint."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.simulator import Simulator
from tests.soak.account import Account, Run
from tests.soak.program import Watch
from tests.support.eventually import eventually

KEYS = 500
_WITHIN_SECONDS = 30.0
TAKEOVER_SECONDS = 10.0
"""What is promised after a death."""
POSITIONS = "watcher-positions"


class Writer:
    """Changes items, in turn; knows how often each was changed."""

    def __init__(self, sim: Simulator) -> None:
        self.written: Counter[str] = Counter()
        self._sim = sim
        self._next = 0
        self._lock = threading.Lock()

    def write(self, count: int) -> None:
        """Change the next so many items; every fifth change of one removes it."""
        with self._lock:
            first, self._next = self._next, self._next + count
            self._sim.bulk(count, keys=KEYS, remove_every=5, begin=first)
            self.written.update(f"k{index % KEYS}" for index in range(first, first + count))


class Group:
    """What runs with the same positions have delivered, and how old it was."""

    def __init__(
        self, sim: Simulator, folder: Path, name: str, checkpoint: str, writer: Writer
    ) -> None:
        self.writer = writer
        self.account = Account()
        self.last_run: Run | None = None
        self._lock = threading.Lock()
        self._started: list[Watch] = []
        self._sim = sim
        self._names = map("{}-{}".format, itertools.repeat(name), itertools.count(1))
        self._log = folder / f"{name}.log"
        self._words = [
            *(sim.table_name, "--print-json", "--from", "trim-horizon", "--poll-max", "0.5"),
            *("--checkpoint", checkpoint, "--metrics-port", "0"),
        ]

    def start(self) -> Watch:
        """Another run."""
        self._started = [each for each in self._started if each.process.poll() is None]
        # Its own key: the network can be cut for one of them.
        environment = {**self._sim.environment, "AWS_ACCESS_KEY_ID": next(self._names)}
        self._started.append(Watch(self._words, environment, self._log, self._take))
        return self._started[-1]

    def clean_up(self) -> None:
        """Leave nothing running, whatever happened."""
        for each in self._started:
            if each.process.poll() is None:
                each.signal(signal.SIGKILL)
            each.wait()

    def _take(self, run: Run, key: str, number: int) -> None:
        with self._lock:
            self.account.take(run, key, number, time.monotonic())
            if not run.superseded:
                self.last_run = run

    @property
    def behind(self) -> int:
        """How many changes were written, and not delivered."""
        return self.writer.written.total() - self.account.newest.total()

    def complaints(self) -> list[str]:
        """What no run may say."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return [line for line in lines if "DATA LOSS: " in line or line.startswith("Traceback")]


class Pair(Group):
    """One delivers, the other stands by; whoever is ended is started again, and stands by."""

    def __init__(self, sim: Simulator, folder: Path, writer: Writer) -> None:
        sim.add_table(POSITIONS, 0, key="name")
        super().__init__(sim, folder, "pair", f"dynamodb://{POSITIONS}/soak", writer)
        self.takeovers: dict[str, list[float]] = {}
        """The seconds from a watch's end until the next one delivered, by how it ended."""
        self.active, self.standby = self.start(), self.start()

    def begin(self) -> None:
        """Wait until one of them delivers."""
        self._await(lambda: self.last_run is not None, "nothing is delivered")
        if self.last_run is self.standby.run:
            self.active, self.standby = self.standby, self.active

    def end_active(self) -> None:
        """SIGTERM to the one that delivers."""
        self._take_over("SIGTERM", 0, lambda watch: watch.process.terminate())

    def kill_active(self) -> None:
        """SIGKILL to the one that delivers, and to all its processes."""
        self._take_over("SIGKILL", -signal.SIGKILL, lambda watch: watch.signal(signal.SIGKILL))

    def pause_active(self, seconds: float) -> None:
        """SIGSTOP until another one has taken over: it must deliver nothing more, and end."""

        def go_on(watch: Watch) -> None:
            time.sleep(seconds)
            watch.run.superseded = True
            watch.signal(signal.SIGCONT)

        self._take_over("SIGSTOP", 1, lambda watch: watch.signal(signal.SIGSTOP), go_on)

    def cut_off_active(self) -> None:
        """No network for the one that delivers: it must end once it knows its lease is taken."""

        def cut_off(watch: Watch) -> None:
            self._sim.set_faults(cut_off_access_keys=(watch.access_key,))

        def reconnect(watch: Watch) -> None:
            watch.run.superseded = True
            self._sim.set_faults(cut_off_access_keys=())

        self._take_over("partition", 1, cut_off, reconnect)

    def _take_over(
        self,
        how: str,
        status: int,
        end: Callable[[Watch], object],
        and_then: Callable[[Watch], object] = lambda watch: None,
    ) -> None:
        """End the active one, have the other one deliver, and start a third, to stand by."""
        ended, began = self.active, time.monotonic()
        if how != "SIGTERM":
            ended.run.cut_off = began
        end(ended)
        self.active = self.standby
        self._await(lambda: self.last_run is self.active.run, f"no takeover after {how}")
        self.takeovers.setdefault(how, []).append(time.monotonic() - began)
        and_then(ended)
        found = ended.wait()
        assert found == status, f"status {found} after {how}"
        self.standby = self.start()

    def end_standby(self) -> None:
        """SIGTERM to the one that stands by, or has not begun yet."""
        status = self.standby.end()
        assert status in (0, -signal.SIGTERM), f"status {status} of the standby"

    @property
    def too_slow(self) -> list[float]:
        """The takeovers after a death that took longer than is promised."""
        deaths = [each for how, each in self.takeovers.items() if how != "SIGTERM"]
        return [each for each in itertools.chain(*deaths) if each > TAKEOVER_SECONDS]

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        eventually(condition, told=lambda: complaint, seconds=_WITHIN_SECONDS)
