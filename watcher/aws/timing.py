"""Every pause, time-out and limit of this room, with its reason."""

from __future__ import annotations

import msgspec

from watcher.retry import Backoff


class CredentialsTiming(msgspec.Struct, frozen=True, kw_only=True):
    """When credentials are renewed."""

    ahead_seconds: float = 15 * 60.0
    """Botocore renews what it keeps on disk in its last quarter of an hour, and no earlier."""
    ahead_jitter: tuple[float, float] = (0.7, 0.99)
    """Programs that began together need not renew together."""
    least_seconds: float = 1.0
    """Between two renewals, whatever the credentials say of their end."""
    refused_seconds: float = 3.0
    """Refused keys are looked up anew so often: somebody may have logged in again."""
    backoff: Backoff = Backoff(first_seconds=1.0, longest_seconds=30.0)
    """Between attempts where there are no new ones."""
    wait_seconds: float = 10.0
    """How long a call waits for keys that another thread is getting."""
    settle_seconds: float = 2.0
    """How long a fork waits for the thread that renews them."""


class CallTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The time limits of a call of DynamoDB Streams, and when a slow one is reported."""

    connect_seconds: float = 5.0
    read_seconds: float = 10.0
    """The read timeout: seconds without any byte. A dead peer is found in seconds."""
    loop_read_seconds: float = 3.0
    """The same for a loop that has more to do."""
    whole_call_reads: int = 3
    """A call as a whole may take so many times as long as one that says nothing."""
    repeat_seconds: float = 2.0
    """How long botocore waits at most before its second attempt, and its third."""
    unanswered_seconds: float = 10.0
    """After so long without an answer the log says that a call has none yet."""
    slow_from_seconds: float = 10.0
    """After so long the log tells what keeps the program waiting …"""
    slow_every_seconds: float = 60.0
    """… and again so often."""


class ListingTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long a listing may take, page by page."""

    page_backoff: Backoff = Backoff(first_seconds=0.05, longest_seconds=0.2)
    page_attempts: int = 4
    """A page is asked for again by itself: a large stream has dozens of them."""
    most_pages: int = 1000
    most_seconds: float = 300.0
    """At DescribeStream's 4 a second ten thousand shards (100 pages) take 25 s, and these 250."""
    torn_seconds: float = 3600.0
    """No listing takes so long: between two of its pages the machine has slept."""
    log_from_seconds: float = 10.0
    log_every_seconds: float = 30.0


class BackgroundTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long a background service waits for its threads."""

    settle_seconds: float = 2.0
    """How long a fork waits for these threads to end. One that only waits for bytes holds no lock
    that a fork would copy; one at work is soon done."""
    fresh_seconds: float = 5.0
    """An answer that nobody has taken for so long is asked for anew."""
    probes_at_once: int = 10
    probe_hangs_seconds: float = 0.3
    """A probe without an answer for so long makes room for one more …"""
    listing_hangs_seconds: float = 1.0
    """… and so does a listing, or another question …"""
    most_hanging: int = 100
    """… as long as no more than so many do."""


class TableTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long calls of DynamoDB's tables are tried again."""

    pause: Backoff = Backoff(first_seconds=1.5, longest_seconds=1.5, jitter=2 / 3)
    """Between two attempts: about a second."""
    patience_seconds: float = 300.0
    """For what only time can mend."""
    denied_seconds: float = 60.0
    """For a denial: a policy that is changed is not everywhere at once."""
    batch_backoff: Backoff = Backoff(first_seconds=0.05, longest_seconds=5.0, jitter=0.5)
    """Between the parts of a batch that the table's write capacity lets through."""
    create_seconds: float = 300.0
    """For a table to become active."""
    active_poll_seconds: float = 0.5
    """Between two looks whether it is."""
    items_call_seconds: float = 10.0
    """For one page of a table's items: no change is delivered meanwhile."""
    lease_call_seconds: float = 2.0
    """For one write of a lease, lost within seconds: one that hangs must leave time for another."""
    torn_seconds: float = 0.05
    """Before a checkpoint of several items is read again: a write came between."""


CALLS = CallTiming()
LISTINGS = ListingTiming()
BACKGROUND = BackgroundTiming()
CREDENTIALS = CredentialsTiming()
TABLES = TableTiming()
START_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=1.6)
START_ATTEMPTS = 5
"""A service that answers at all is asked a few times more as a program begins."""
