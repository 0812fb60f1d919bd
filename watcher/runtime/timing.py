"""The delays and limits of the runtime room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

from watcher.observability.heartbeat import LATE_SECONDS
from watcher.retry import Backoff
from watcher.streams.lineage import RETENTION


@dataclass(frozen=True, kw_only=True)
class WorkersTiming:
    """The delays and limits of the manager's work with its worker processes."""

    start_backoff: Backoff = Backoff()
    """The delays before a dead worker's shard is started again."""
    thread_end_seconds: float = 1.0
    """The longest wait for the end of a worker in a thread, which a call may hold up."""
    long_life_seconds: float = 60.0
    """The age from which a worker's death starts a new row of deaths."""
    deaths_at_start: int = 3
    """The number of workers in a row that die at their start before the watch gives up."""
    first_start_seconds: float = 15.0
    """The time during which the first process is retried before the watch gives up."""
    no_more_processes_seconds: float = 60.0
    """The delay before another process is tried after the system has refused one."""
    credentials_seconds: float = 1.0
    """The delay between checks for new credentials, which reach workers minutes ahead of need."""
    count_unread_seconds: float = 0.2
    """The time spent, at the end, on counting unread records."""
    receive_seconds: float = 0.01
    """The wait for each message while they are counted."""


@dataclass(frozen=True, kw_only=True)
class WorkerTiming:
    """The delays and limits of a worker's reads of several shards."""

    reads_at_once: int = 4
    """The number of reads under way: each answer may have a megabyte."""
    reads_at_once_max: int = 32
    """The largest number of reads under way, slow ones included."""
    slow_read_seconds: float = 0.25
    """The time after which a read counts as slow, so that it delays no other shard."""
    late_seconds: float = 0.25
    """The lateness of a turn from which another thread takes it; it is checked as often.

    One thread asks for 16 idle shards within it, where an answer takes 10 ms; several would compete
    for the interpreter at each step.
    """
    spare_seconds: float = 5.0
    """The time after which a thread without a turn ends: a start needs more than what follows."""
    align_seconds: float = 1.0
    """The step to which idle shards' polls are aligned.

    A poll that wakes the process alone costs three times as much.
    """
    pause_seconds: float = 0.5
    """The time for which a shard stays paused, unless the command is repeated."""
    wait_seconds_max: float = 3600.0
    """The longest single wait: some systems can't interrupt a wait without a limit."""


@dataclass(frozen=True, kw_only=True)
class StreamsTiming:
    """The delays of a watch's stream starts and discovery."""

    progress_first_seconds: float = 5.0
    """The time after which a start of many streams logs its progress; DescribeStream is slow."""
    progress_seconds: float = 10.0
    """The delay between these log lines."""
    start_poll_seconds: float = 0.1
    """The delay between checks of first listings that are under way."""
    start_hangs_seconds: float = 1.0
    """The time after which a listing that hangs makes room for the next."""
    discovery_seconds: float = 30.0
    """The delay between searches of the region for new streams."""
    discovery_page_seconds: float = 1.0
    """The delay between two pages of ListStreams: AWS allows an account 5 calls a second."""
    tags_at_once: int = 10
    """The number of tables whose tags are listed without a pause …"""
    tags_seconds: float = 0.1
    """… and the pause before each other one: AWS allows an account 10 calls a second."""
    tags_asked_again: int = 10
    """The number of tables without the wanted tags that each search checks again."""


@dataclass(frozen=True, kw_only=True)
class LoopTiming:
    """The delays of the loop."""

    tick_seconds: float = 0.2
    """The longest wait for a message, by which a listing or a save may be late."""
    tail_tick_seconds: float = 0.02
    """The wait between two looks for the last changes of `--tail`."""
    hopeless_seconds: float = 60.0
    """The time without a successful read after which a watch that does not follow ends."""
    forgotten_seconds: float = RETENTION.total_seconds() + 3600
    """The time after which a removed stream holds no readable record."""


@dataclass(frozen=True, kw_only=True)
class StatsTiming:
    """The delay between display updates, and the limit of an idle shard's lag."""

    show_seconds: float = 0.2
    """The delay between display updates: five a second look alive, and cost little."""
    slow_answer_seconds: float = 2.0
    """The time beyond the poll delay up to which an idle shard's lag counts as none."""


@dataclass(frozen=True, kw_only=True)
class HealthTiming:
    """The limits from which work counts as late."""

    late_seconds: float = LATE_SECONDS
    """The longest time of a read, a listing or a handler's step: a few timeouts in a row."""
    busy_seconds: float = 5.0
    """The pause of the loop (a slow save, a suspended machine) that restarts all these limits."""


WORKERS_TIMING = WorkersTiming()
WORKER_TIMING = WorkerTiming()
STREAMS_TIMING = StreamsTiming()
LOOP_TIMING = LoopTiming()
