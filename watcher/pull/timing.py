"""The pauses and limits of the reading in this process, each with its reason."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Every pause and limit of `watcher.pull`; tests hand in their own."""

    # Polls of a merged stream
    poll_seconds: float = 1.0
    """A poll goes on so long while pages are empty that need not be the last ones."""
    patient_seconds: float = 5.0
    """The first reads, and one that is alone, are waited for so long; one that drips is not."""
    moment_seconds: float = 0.05
    """A read of a shard that has most likely nothing is waited for so long."""
    allowed_seconds: float = 2.5
    """A poll waits so long for a throttled shard that may have more: its turn comes sooner."""
    step_seconds: float = 0.05
    """Other shards' records wait no longer than this for a throttled shard."""
    least_step_seconds: float = 0.01
    """A step is not shorter: the clock of a machine is that coarse."""
    busy_seconds: float = 60.0
    """A shard that had records is polled before those that had none for so long."""
    poll_idle_again_seconds: float = 30.0
    """Records of one shard shorten the pauses of the others at most so often."""
    pause_per_shard_seconds: float = 0.001
    """One process can't read thousands of idle shards every second: each adds to their pause."""

    # How much at a time
    reads_at_once: int = 100
    """More reads side by side bring nothing, and cost a thread each."""
    buffered_bytes: int = 64 * 1024 * 1024
    """Pages that wait to be taken may hold so much memory."""
    threads: int = 32
    """More threads than this keep one core busy with switching."""
    backlog_clients: int = 8
    """So many connections read a backlog: more are no faster, as one core decodes the pages …"""
    shards_per_backlog_client: int = 64
    """… but of many shards most are idle, and wait for answers: one more for each so many …"""
    backlog_clients_max: int = 16
    """… up to these."""
    changes_between_items: int = 1_000
    """A page of a table's items comes after so many changes at most, so that neither starves."""

    # Ranges
    give_up_seconds: float = 300.0
    """A range is given up after so much trouble, so that the user sees why; Spark retries it."""

    # A backlog
    backlog_pause_seconds: float = 0.1
    """A new listing, or an answer, is looked for that often while no read is due."""
    least_backlog_pause_seconds: float = 0.01
    """A shard that is due in a moment is not waited for more precisely."""

    # Listings, and what hangs or fails
    listing_seconds: float = 1.0
    """A small listing is waited for so long; one that comes later is taken in by a later poll."""
    listing_pages: int = 2
    """Listings of more pages, over all streams, are not waited for: four pages take a second."""
    start_seconds: float = 10.0
    """Of several streams, one that is not listed by then keeps the others no longer waiting."""
    start_check_seconds: float = 0.1
    """Streams that are being listed are looked after that often."""
    retry_stream_seconds: float = 30.0
    """Of several streams, one that can't be read is tried again so much later, then ever later."""
    retry_stream_seconds_max: float = 300.0
    """… but no later than this: somebody may have mended a policy."""
    newer_stream_seconds: float = 5.0
    """After the end of a stream its table is asked that often for another one."""
    retry_items_seconds: float = 1.0
    """A table's items that can't be read are tried again first after so long, then ever later."""
    retry_items_seconds_max: float = 30.0
    """… but no later than this."""
    idle_threads_end_seconds: float = 0.2
    """A thread without work ends at once when told; a fork does not wait longer for it."""


TIMING = Timing()
"""The pauses and limits that hold where no others are handed in."""
