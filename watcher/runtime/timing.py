"""The delays and limits of the runtime room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

from watcher.observability.timing import FIGURES_TIMING
from watcher.streams.lineage import RETENTION


@dataclass(frozen=True, kw_only=True)
class WorkersTiming:
    """How the manager starts worker processes, restarts them, and talks to them."""

    long_life_seconds: float = 60.0
    """The age at which a worker's death counts as a first one, and not as one of a row."""
    deaths_at_start: int = 3
    """The number of workers in a row that die at their start before the watch gives up."""
    first_start_seconds: float = 15.0
    """The time for which the first worker is tried again where the system refuses processes."""
    no_more_processes_seconds: float = 60.0
    """The delay before another process is tried where the system allows no more."""
    poll_now_seconds: float = 30.0
    """The shortest time between two commands to poll idle shards at once."""
    credentials_seconds: float = 1.0
    """The delay between checks for new credentials, which reach workers minutes ahead of need."""
    count_unread_seconds: float = 0.2
    """The time spent, at the end, on counting unread records."""
    receive_seconds: float = 0.01
    """The wait for each message while they are counted."""


@dataclass(frozen=True, kw_only=True)
class WorkerTiming:
    """How a worker takes turns between the shards that it reads."""

    reads_at_once: int = 4
    """The reads under way at once: each answer may be a megabyte."""
    reads_at_once_max: int = 32
    """The most reads under way, slow ones included."""
    slow_read_seconds: float = 0.25
    """The time after which a read no longer counts, so that it holds up no other shard."""
    check_seconds: float = 0.25
    """The delay after which another thread takes over from one that a slow read blocks."""
    align_seconds: float = 0.5
    """The step to which idle shards' polls are aligned: a poll that wakes the process alone costs
    three times as much."""
    pause_seconds: float = 0.5
    """The time for which a shard stays paused, unless the command is repeated."""
    wait_seconds_max: float = 3600.0
    """The longest single wait: on some systems a wait without an end can't be interrupted."""


@dataclass(frozen=True, kw_only=True)
class StreamsTiming:
    """How a watch starts its streams, retries them, and finds new ones."""

    progress_first_seconds: float = 5.0
    """The time after which a start of many streams logs its progress; DescribeStream is slow."""
    progress_seconds: float = 10.0
    """The delay between these log lines."""
    start_poll_seconds: float = 0.1
    """The delay between checks of first listings that are under way."""
    start_hangs_seconds: float = 1.0
    """The time after which a listing that hangs makes room for the next."""
    retry_seconds: float = 30.0
    """The first delay before a refused stream is retried; it doubles."""
    retry_seconds_max: float = 300.0
    """The longest of these delays: someone may have fixed a policy."""
    successor_poll_seconds: float = 5.0
    """The delay between checks for a table's next stream."""
    successor_wait_seconds: float = 60.0
    """The wait for the next stream of a disabled one: a new view type takes both steps."""
    discovery_seconds: float = 30.0
    """The delay between searches of the region for new streams."""
    discovery_page_seconds: float = 1.0
    """The delay between two pages of ListStreams: AWS allows an account 5 calls a second."""
    tags_asked_again: int = 10
    """The tables without the tags that each search checks again."""


@dataclass(frozen=True, kw_only=True)
class LoopTiming:
    """How long the loop waits."""

    tick_seconds: float = 0.2
    """The longest wait for a message: the most by which a listing or a save is late."""
    tail_tick_seconds: float = 0.02
    """The same while `--tail` looks for the last changes."""
    hopeless_seconds: float = 60.0
    """The time without one answered read after which a watch that does not follow ends."""
    forgotten_seconds: float = RETENTION.total_seconds() + 3600
    """The time after which nothing of a stream that has left can be read."""


@dataclass(frozen=True, kw_only=True)
class StatsTiming:
    """How often figures are shown, and what counts as late."""

    show_seconds: float = 0.2
    """The delay between two figures: five a second look alive, and cost little."""
    slow_answer_seconds: float = 2.0
    """The time beyond the poll delay up to which an idle shard's lag counts as none."""


@dataclass(frozen=True, kw_only=True)
class SnapshotTiming:
    """When a snapshot's items that could not be read are retried."""

    again_seconds: float = 1.0
    """The first delay; it doubles."""
    again_most_seconds: float = 30.0
    """The longest delay; changes are delivered meanwhile."""


@dataclass(frozen=True, kw_only=True)
class HealthTiming:
    """When something counts as late."""

    late_seconds: float = FIGURES_TIMING.late_seconds
    """The longest time of a read, a listing or a handler's step: a few time-outs in a row."""
    busy_seconds: float = 5.0
    """The gap of the loop (a save that hangs, a machine that slept) after which all that waited
    for the loop gets its whole time anew."""


WORKERS_TIMING = WorkersTiming()
WORKER_TIMING = WorkerTiming()
STREAMS_TIMING = StreamsTiming()
LOOP_TIMING = LoopTiming()
