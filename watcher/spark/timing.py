"""The delays and limits of the Spark room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The delays of the source and of the jobs."""

    # The source, in the driver

    idle_answer_seconds: float = 0.04
    """The time until an idle query gets its answer, as Spark asks every 12 ms; news end it."""
    first_reads_seconds: float = 0.1
    """The wait for the first reads of shards, so that the first micro-batch has all of them."""
    first_answer_seconds: float = 5.0
    """The longest wait of the very first answer for them: with a slow trigger it counts most."""
    list_again_seconds: float = 0.25
    """The delay between a batch read's checks whether another listing is due."""
    find_streams_seconds: float = 60.0
    """The delay between searches for new matches of a glob: a call for each 100 streams."""

    # Reading ahead, in the driver

    idle_poll_seconds: float = 1.0
    """The pause between two reads from which a shard counts as idle."""
    idle_poll_per_shard_seconds: float = 0.01
    """The part of this pause for each shard: a call takes some 5 ms of this one process."""
    behind_seconds: float = 10.0
    """The age from which a page is backlog: a reader that keeps up has it within seconds."""
    look_for_end_seconds: float = 10.0
    """The delay between two searches for the end of a backlog."""
    left_behind_seconds: float = 10.0
    """The least time that other shards wait for one that can't be read and is behind them."""
    thread_stop_seconds: float = 2.0
    """The longest wait, at the end, for a thread in a call."""

    # Spark 4.0 and 4.1 (compat.py)

    quiet_seconds: float = 1.5
    """The time without news that ends the first micro-batch; a shard is read every second."""
    quiet_poll_seconds: float = 0.25
    """The delay between checks for news."""
    first_batch_seconds: float = 30.0
    """The longest first micro-batch."""

    # Jobs

    poll_seconds: float = 0.2
    """The delay between a job's checks of its query and of the request to stop."""
    progress_seconds: float = 5.0
    """The delay between two lines of progress."""
    last_batch_poll_seconds: float = 0.05
    """The delay between checks whether a stopping job's last micro-batch is done."""
    latest_offset_seconds: float = 1.0
    """The longest wait, at a stop, for a `latestOffset`; the source waits 0.1 s for first reads."""
    least_close_seconds: float = 2.0
    """The time for handlers to close after a signal, even if the last batch took all of it."""
    cancel_again_seconds: float = 0.1
    """The delay between cancellations: work that starts after one needs another."""
    close_task_seconds: float = 0.05
    """The time that a task which closes handlers keeps its process: the next gets another one."""

    last_batch_seconds: float = 8.0
    """The default of `--stop-timeout`; docker kills after 10 s, systemd after 90."""
    describe_seconds: float = 5.0
    """The timeout of the call that tells a key's type."""

    # Folders

    lock_seconds: float = 15.0
    """The wait for a folder's lock: a killed job's JVM may write for some more seconds."""
    lock_poll_seconds: float = 0.25
    """The delay between checks of that lock."""

    # Java

    java_version_seconds: float = 20.0
    """The longest wait for `java -version`, on a busy machine."""
    jvm_end_seconds: float = 5.0
    """The time until a JVM that does not end, as Spark starts, is killed."""
    jvm_output_seconds: float = 5.0
    """The longest wait for the rest of an ended JVM's output."""
    unused_archive_seconds: float = 30 * 24 * 3600.0
    """The age from which an unused archive of Java's classes is removed."""
    making_archive_seconds: float = 3600.0
    """The age from which an unfinished archive was left by a kill."""


@dataclass(frozen=True, kw_only=True)
class SourceLimits:
    """The limits of what the source and the jobs handle at once."""

    # Micro-batches

    shard_bytes: int = 16 * _MIB
    """The packed pages of a shard in a micro-batch; Spark sends up to 128 MB with a task."""
    batch_bytes: int = 64 * _MIB
    """The packed pages of all shards in a micro-batch."""
    threads: int = 8
    """The threads of the driver that read ahead."""

    # Tasks

    task_bytes: int = 2 * _MIB
    """The packed pages of a task: some 200 ms of one core; a task costs 30 ms."""
    open_shards: int = 8
    """The most open shards of a batch's task, which reads them side by side."""
    reading_tasks: int = 256
    """The most tasks that read ranges; up to this number, each range has its own."""
    close_tasks_per_core: int = 3
    """The tasks that close handlers: Spark has two Python processes a core; one more finds all."""


TIMING: Final = Timing()
LIMITS: Final = SourceLimits()
