"""Pauses and limits of the Spark room; tests pass their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long the source and the jobs wait, and for what."""

    # The source, in the driver

    idle_answer_seconds: float = 0.04
    """An idle query asks again every 12 ms: it gets its answer so late, or with the first news."""
    first_reads_seconds: float = 0.1
    """Waited for shards that were never read, so that the first micro-batch has all of them."""
    first_answer_seconds: float = 5.0
    """With a slow trigger the first answer counts: it waits so long for the first reads."""
    list_again_seconds: float = 0.25
    """A batch read asks the coordinator so often whether another listing is due."""
    find_streams_seconds: float = 60.0
    """Between looks for new matches of a glob: all streams take a call for each 100 of them."""

    # Reading ahead, in the driver

    idle_poll_seconds: float = 1.0
    """From this pause on a shard counts as idle."""
    idle_poll_per_shard_seconds: float = 0.01
    """A call takes some 5 ms of this one process: with many idle shards each waits longer."""
    behind_seconds: float = 10.0
    """A reader that keeps up has a page within a second or so of its making; older is backlog."""
    look_for_end_seconds: float = 10.0
    """Between two looks for the end of a backlog."""
    left_behind_seconds: float = 10.0
    """The others wait at least so long for a shard that can't be read, and is behind them."""
    thread_stop_seconds: float = 2.0
    """A thread that is in a call may take until its answer; it is left alone after this."""

    # Spark 4.0 and 4.1 (compat.py)

    quiet_seconds: float = 1.5
    """The first micro-batch ends when nothing came for so long; a shard is read every second."""
    quiet_poll_seconds: float = 0.25
    first_batch_seconds: float = 30.0
    """The first micro-batch ends by then, however much comes."""

    # Jobs

    poll_seconds: float = 0.2
    """How often a job looks at its query, and at the request to stop."""
    progress_seconds: float = 5.0
    """Between two lines of progress."""
    last_batch_poll_seconds: float = 0.05
    """How often a job that stops looks whether its last micro-batch is done."""
    latest_offset_seconds: float = 1.0
    """The source waits 0.1 s for first reads: a `latestOffset` that takes longer is cut off."""
    least_close_seconds: float = 2.0
    """After a signal handlers have so long to close, also where the last batch took all of it."""
    cancel_again_seconds: float = 0.1
    """Work that begins after Spark's jobs were cancelled is cancelled as well."""
    close_task_seconds: float = 0.05
    """A task that closes handlers keeps its process so long: the next task gets another one."""

    # Folders

    lock_seconds: float = 15.0
    """The JVM of a job that was killed may live on, and write, for some seconds."""
    lock_poll_seconds: float = 0.25
    listing_seconds: float = 5.0
    """Some reader may still list a folder that was replaced so long ago."""

    # Java

    java_version_seconds: float = 20.0
    """`java -version` answers within this, also on a busy machine."""
    jvm_end_seconds: float = 5.0
    """How long a JVM may take to end as Spark starts, until it is killed."""
    jvm_output_seconds: float = 5.0
    """The output of a JVM that has ended is read to its end by then."""
    unused_archive_seconds: float = 30 * 24 * 3600.0
    """An archive of Java's classes that nobody has used for so long is removed."""
    making_archive_seconds: float = 3600.0
    """An archive still being made after this was left by a kill."""


@dataclass(frozen=True, kw_only=True)
class SourceLimits:
    """How much the source and the jobs handle at once."""

    # Micro-batches

    shard_bytes: int = 16 * _MIB
    """Packed pages of a shard in a micro-batch; they go along with its task, up to 128 MB."""
    batch_bytes: int = 64 * _MIB
    """Packed pages of all shards in a micro-batch."""
    threads: int = 8
    """Threads of the driver that read ahead."""

    # Tasks

    task_bytes: int = 2 * _MIB
    """Packed pages for some 200 ms of one core; a task costs 30 ms."""
    open_shards: int = 8
    """A batch's task has at most so many, read side by side while each waits for its end."""
    reading_tasks: int = 256
    """Ranges that executors read take as long as their shards: each has a task, up to so many."""
    close_tasks_per_core: int = 3
    """A task reads in one Python process and writes in another: one more finds them all."""

    # Compaction

    small_file_bytes: int = 64 * _MIB
    """Smaller files are merged."""
    file_bytes: int = 256 * _MIB
    """A merged file has about this size."""
    row_group_bytes: int = 32 * _MIB
    """Held in memory at once, by the job and by readers of the file."""
    merge_rows: int = 2_000
    """Rows read at once; images may be large."""


TIMING: Final = Timing()
LIMITS: Final = SourceLimits()
