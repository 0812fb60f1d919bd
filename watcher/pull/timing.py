"""The delays and limits of reading in this process, each with its unit and its reason."""

from __future__ import annotations

import msgspec

from watcher.retry import Backoff


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The delays and limits of `watcher.pull`; tests pass their own."""

    # Polls of a merged stream
    poll_seconds: float = 1.0
    """The longest poll during empty pages, which records may follow."""
    patient_seconds: float = 5.0
    """The longest wait for a stream's first reads, and for its only shard's."""
    moment_seconds: float = 0.05
    """The wait for a read of a shard that is most likely idle."""
    allowed_seconds: float = 2.5
    """The longest wait for a throttled shard that may have more records."""
    step_seconds: float = 0.05
    """The longest time that a throttled shard delays other shards' records."""
    least_step_seconds: float = 0.01
    """The shortest wait: clocks are no finer."""
    await_step_seconds: float = 0.1
    """The delay between a waiting task's checks for due reads."""
    busy_seconds: float = 60.0
    """The time for which a shard that had records is polled before the idle ones."""
    delay_per_shard_seconds: float = 0.001
    """The delay that each idle shard adds: one process can't poll thousands every second."""

    # Amounts
    reads_at_once: int = 100
    """The largest number of reads side by side: more are no faster, and each costs a thread."""
    buffered_bytes: int = 64 * 1024 * 1024
    """The size of buffered pages at which reading pauses."""
    threads: int = 32
    """The largest number of threads: more keep one core busy with switching."""
    backlog_clients: int = 8
    """The connections that read a backlog: one core decodes the pages, so more are no faster …"""
    shards_per_backlog_client: int = 64
    """… unless most shards are idle: one more connection for each 64 …"""
    backlog_clients_max: int = 16
    """… up to 16."""
    backlog_turn_shards: int = 16
    """The largest number of idle shards that one thread reads side by side.

    With more, the first answers wait too long to tell that a shard is read up to now.
    """
    changes_between_items: int = 1_000
    """The largest number of changes between two pages of a snapshot's items: neither starves."""

    # Ranges
    give_up_seconds: float = 300.0
    """The time without progress after which a range fails with its cause; Spark retries it."""

    # A backlog
    backlog_wait_seconds: float = 0.1
    """The longest wait for an answer while no read is due."""
    least_backlog_wait_seconds: float = 0.01
    """The shortest wait for a shard that is due soon."""

    # Listings, and calls that hang or fail
    listing_seconds: float = 1.0
    """The longest wait for a small listing; a later poll takes the answer of a slower one."""
    listing_pages: int = 2
    """The number of pages, of all streams, up to which a listing is worth a wait: four take 1 s."""
    start_seconds: float = 10.0
    """The longest time that a stream without a listing delays the others' start."""
    start_check_seconds: float = 0.1
    """The delay between checks of the streams that are being listed."""
    successor_poll_seconds: float = 5.0
    """The delay between checks for a table's next stream, once a stream has ended."""
    successor_wait_seconds: float = 60.0
    """The wait for a disabled stream's successor: to change the view type takes both steps."""
    items_backoff: Backoff = Backoff(first_seconds=1.0, longest_seconds=30.0)
    """The delays between attempts at a page of a snapshot's items."""
    idle_threads_end_seconds: float = 0.2
    """The longest time that a fork waits for idle threads to end."""


TIMING = Timing()
"""The delays and limits of a real run."""
