"""Pauses and limits of the runtime room: each with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass

from watcher.observability.timing import FIGURES_TIMING
from watcher.streams.lineage import RETENTION


@dataclass(frozen=True, kw_only=True)
class WorkersTiming:
    """How the manager starts worker processes, restarts them, and talks to them."""

    long_life_seconds: float = 60.0
    """A process that lived so long did not die of what killed the ones before."""
    deaths_at_start: int = 3
    """So many processes in a row that end as they start: they can't live here at all."""
    first_start_seconds: float = 15.0
    """Where no process can be started for so long from the beginning, none ever can."""
    no_more_processes_seconds: float = 60.0
    """Where the system allows no more processes, another try is worth it after so long."""
    poll_now_seconds: float = 30.0
    """Idle shards that poll at once do so often for twice as long."""
    credentials_seconds: float = 1.0
    """Workers get new credentials within so long: minutes ahead of the end of the others."""
    count_unread_seconds: float = 0.2
    """At the end, so much time may go into counting what was sent and not received."""
    receive_seconds: float = 0.01
    """How long one look into the queue may take while that is counted."""


@dataclass(frozen=True, kw_only=True)
class WorkerTiming:
    """How a worker takes turns between the shards that it reads."""

    reads_at_once: int = 4
    """So many answers are waited for at once: each may bring a megabyte."""
    reads_at_once_max: int = 32
    """So many at most, slow ones included."""
    slow_read_seconds: float = 0.25
    """A read that takes so long does not count any more, or it would hold the other shards."""
    check_seconds: float = 0.25
    """After so long another thread takes the turns that a slow read keeps waiting."""
    align_seconds: float = 0.5
    """Turns of idle shards come together, so often: a read among others costs a third of one for
    which the process has to wake."""
    pause_seconds: float = 0.5
    """A shard whose records wait for delivery is not read for so long, unless told again."""
    wait_seconds_max: float = 3600.0
    """A wait without an end can't be broken off on every system."""


@dataclass(frozen=True, kw_only=True)
class StreamsTiming:
    """How a watch starts its streams, retries them, and looks for further ones."""

    progress_first_seconds: float = 5.0
    """A watch of many starts for a while, as DescribeStream is limited: logs that it gets on."""
    progress_seconds: float = 10.0
    """So often after that."""
    start_poll_seconds: float = 0.1
    """Of many first listings without an answer, so often is asked for them: else each message
    would wait for a round through all."""
    start_hangs_seconds: float = 1.0
    """As long as `BackgroundService` waits for one listing before it asks for another."""
    retry_seconds: float = 30.0
    """A stream that is refused may be allowed again: somebody may have mended a policy."""
    retry_seconds_max: float = 300.0
    """The longest pause before it is tried again."""
    successor_poll_seconds: float = 5.0
    """So often is asked for a table's next stream."""
    successor_wait_seconds: float = 60.0
    """From a stream's disabling to the next one's enabling (another view type takes both)."""
    discovery_seconds: float = 30.0
    """So often the region's streams are listed for new ones."""
    discovery_page_seconds: float = 1.0
    """Between two pages: ListStreams allows 5 calls a second, shared with everybody else, and the
    delivery waits for each."""
    tags_asked_again: int = 10
    """So many tables whose tags did not match are asked again in each listing."""


@dataclass(frozen=True, kw_only=True)
class LoopTiming:
    """How long the loop waits."""

    tick_seconds: float = 0.2
    """The longest wait for a worker's message: listings and saves are no later than that."""
    tail_tick_seconds: float = 0.02
    """The same while the last changes are counted back."""
    hopeless_seconds: float = 60.0
    """A watch up to now, of which no read is answered for so long, ends and says why."""
    forgotten_seconds: float = RETENTION.total_seconds() + 3600
    """By then nothing of a stream that has left can be read again."""


@dataclass(frozen=True, kw_only=True)
class StatsTiming:
    """How often figures are shown, and what counts as late."""

    show_seconds: float = 0.2
    """Five times a second looks alive to a person, and costs little."""
    slow_answer_seconds: float = 2.0
    """An idle shard is read every `poll_max`; up to so much later it is just a slow answer."""


@dataclass(frozen=True, kw_only=True)
class SnapshotTiming:
    """When items that could not be read are asked for again."""

    again_seconds: float = 1.0
    again_most_seconds: float = 30.0
    """After many refusals: changes go on meanwhile."""


@dataclass(frozen=True, kw_only=True)
class HealthTiming:
    """From when on something is late."""

    late_seconds: float = FIGURES_TIMING.late_seconds
    """A read, a listing, a handler's step may take so long: a few time-outs, one after another."""
    busy_seconds: float = 5.0
    """The loop waits for nothing longer than this: after a longer gap (a save that hangs, a machine
    that slept), all that waited for the loop gets the whole time anew."""


WORKERS_TIMING = WorkersTiming()
WORKER_TIMING = WorkerTiming()
STREAMS_TIMING = StreamsTiming()
LOOP_TIMING = LoopTiming()
