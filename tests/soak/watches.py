"""The programs of a soak: one that is never ended, and two that share a checkpoint."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.simulator import Simulator
from tests.soak.account import Account, Run
from tests.soak.program import Watch
from tests.support.eventually import eventually

KEYS = 500
_WITHIN_SECONDS = 30.0
TAKEOVER_SECONDS = 10.0
"""What is promised after a death."""
POSITIONS = "watcher-positions"
_HAS_LEASE = b"Resuming from"
_BETWEEN = "DATA LOSS: between the table's streams"


class Takeover(NamedTuple):
    """The seconds from a watch's end until the next one had the lease, and until it delivered."""

    lease: float
    delivery: float


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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is written meanwhile."""
        with self._lock:
            yield


class Group:
    """What runs with the same positions have delivered, and how old it was."""

    def __init__(
        self, sim: Simulator, folder: Path, name: str, checkpoint: str, writer: Writer
    ) -> None:
        self.writer = writer
        self.account = Account()
        self.last_run: Run | None = None
        self.oldest = 0.0
        """The age in seconds of the oldest change delivered since it was asked for."""
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

    def _take(self, run: Run, key: str, number: int, created: float) -> None:
        with self._lock:
            now = time.time()
            self.account.take(run, key, number, time.monotonic())
            self.oldest = max(self.oldest, now - created)
            if not run.superseded:
                self.last_run = run

    def take_oldest(self) -> float:
        """The age, and begin anew."""
        oldest, self.oldest = self.oldest, 0.0
        return oldest

    @property
    def behind(self) -> int:
        """How many changes were written, and not delivered."""
        return self.writer.written.total() - self.account.newest.total()

    def complaints(self) -> list[str]:
        """What no run may say."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        # Between two streams of a table there may be changes in neither; here there are none.
        losses = [line for line in lines if "DATA LOSS: " in line and _BETWEEN not in line]
        return losses + [line for line in lines if line.startswith("Traceback")]


class Pair(Group):
    """One delivers, the other stands by; whoever is ended is started again, and stands by."""

    def __init__(self, sim: Simulator, folder: Path, writer: Writer) -> None:
        sim.add_table(POSITIONS, 0, key="name")
        super().__init__(sim, folder, "pair", f"dynamodb://{POSITIONS}/soak", writer)
        self.takeovers: dict[str, list[Takeover]] = {}
        self._since = 0  # where the log of the standby begins
        self.active, self.standby = self.start(), self.start()

    def begin(self) -> None:
        """Wait until one of them delivers."""
        self._await(lambda: self.last_run is not None, "nothing is delivered")
        if self.last_run is self.standby.run:
            self.active, self.standby = self.standby, self.active

    def _start_standby(self) -> None:
        self._since = self._log.stat().st_size
        self.standby = self.start()

    def end_active(self) -> None:
        """SIGTERM to the one that delivers."""
        ended, began = self.active, time.monotonic()
        ended.process.terminate()
        self._taken_over("SIGTERM", began)
        status = ended.wait()
        assert status == 0, f"status {status} after SIGTERM"
        self._start_standby()

    def kill_active(self) -> None:
        """SIGKILL to the one that delivers, and to all its processes."""
        killed, began = self.active, time.monotonic()
        killed.run.cut_off = began
        killed.signal(signal.SIGKILL)
        killed.wait()
        self._taken_over("SIGKILL", began)
        self._start_standby()

    def pause_active(self, seconds: float) -> None:
        """SIGSTOP until another one has taken over: it must deliver nothing more, and end."""
        paused, began = self.active, time.monotonic()
        paused.run.cut_off = began
        paused.signal(signal.SIGSTOP)
        self._taken_over("SIGSTOP", began)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        paused.run.superseded = True
        paused.signal(signal.SIGCONT)
        status = paused.wait()
        assert status == 1, f"status {status} after the lease was lost"
        self._start_standby()

    def cut_off_active(self) -> None:
        """No network for the one that delivers: it must end once it knows its lease is taken."""
        cut_off, began = self.active, time.monotonic()
        cut_off.run.cut_off = began
        with self._sim.faulty(cut_off_access_keys=(cut_off.access_key,)):
            self._taken_over("partition", began)
            cut_off.run.superseded = True
        status = cut_off.wait()
        assert status == 1, f"status {status} after a partition took the lease"
        self._start_standby()

    def replace_ended_standby(self) -> None:
        """As a service manager: one that starts while there is no table ends."""
        if self.standby.process.poll() is not None:
            self._start_standby()

    def replace_standby(self) -> None:
        """SIGTERM to the one that stands by: nothing happens."""
        self.end_standby()
        self._start_standby()

    def end_standby(self) -> None:
        """SIGTERM to the one that stands by, or has not begun yet."""
        status = self.standby.end()
        assert status in (0, -signal.SIGTERM), f"status {status} of the standby"

    def _taken_over(self, how: str, began: float) -> None:
        self.active = self.standby

        def delivers() -> bool:
            return self.last_run is self.active.run

        def has_lease() -> bool:
            with open(self._log, "rb") as log:
                log.seek(self._since)
                return delivers() or _HAS_LEASE in log.read()

        self._await(has_lease, f"no lease after {how}")
        lease = time.monotonic() - began
        self._await(delivers, f"no takeover after {how}")
        self.takeovers.setdefault(how, []).append(Takeover(lease, time.monotonic() - began))

    @property
    def too_slow(self) -> list[Takeover]:
        """The takeovers after a death that took longer than is promised."""
        deaths = [each for how, each in self.takeovers.items() if how != "SIGTERM"]
        return [each for each in itertools.chain(*deaths) if each.delivery > TAKEOVER_SECONDS]

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        eventually(condition, told=lambda: complaint, seconds=_WITHIN_SECONDS)
