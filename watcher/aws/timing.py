"""The delays, timeouts and limits of the aws room, each with its unit and its reason."""

from __future__ import annotations

import msgspec

from watcher.retry import Backoff


class CredentialsTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The delays of renewals of credentials."""

    ahead_seconds: float = 15 * 60.0
    """The time before they expire: botocore renews its cached ones in the last 15 minutes."""
    ahead_jitter: tuple[float, float] = (0.7, 0.99)
    """The random share of it, so that programs that started together renew apart."""
    least_seconds: float = 1.0
    """The shortest delay between renewals, whatever the credentials' expiry."""
    refused_seconds: float = 3.0
    """The delay between lookups of refused keys: someone may have logged in again."""
    backoff: Backoff = Backoff(first_seconds=1.0, longest_seconds=30.0)
    """The delays between attempts without new keys."""
    wait_seconds: float = 10.0
    """The longest wait of a call for keys that another thread fetches."""
    settle_seconds: float = 2.0
    """The longest wait of a fork for the thread that renews them."""


class CallTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The time limits of a DynamoDB Streams call, and of the report of a slow one."""

    connect_seconds: float = 5.0
    """The connect timeout."""
    read_seconds: float = 10.0
    """The read timeout, for a pause between bytes: it detects a dead peer."""
    loop_read_seconds: float = 3.0
    """The read timeout in the loop, which has other streams to serve."""
    whole_call_reads: int = 3
    """The limit of a whole call, in read timeouts: bytes may come slowly, one by one."""
    repeat_seconds: float = 2.0
    """The longest delay of botocore before its second and its third attempt."""
    unanswered_seconds: float = 10.0
    """The time after which an unanswered call is logged."""
    slow_from_seconds: float = 10.0
    """The time after which a wait is logged with its cause …"""
    slow_every_seconds: float = 60.0
    """… and the delay before it is logged again."""


class ListingTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a listing, page by page."""

    page_backoff: Backoff = Backoff(first_seconds=0.05, longest_seconds=0.2)
    """The delays between the attempts at one page."""
    page_attempts: int = 4
    """The attempts at one page: a large stream has dozens, and need not start over."""
    most_pages: int = 1000
    """The largest number of pages of a listing: 100,000 shards."""
    most_seconds: float = 300.0
    """The longest time of a listing: 1,000 pages take 250 s at four calls a second."""
    torn_seconds: float = 3600.0
    """The time between two pages from which the listing is read again: the machine slept."""
    log_from_seconds: float = 10.0
    """The time after which a listing logs its progress …"""
    log_every_seconds: float = 30.0
    """… and the delay before it does so again."""


class TableTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of retries of table calls."""

    retry_backoff: Backoff = Backoff(first_seconds=1.5, longest_seconds=1.5, jitter=2 / 3)
    """The delays between two attempts: about a second."""
    patience_seconds: float = 300.0
    """The time for which passing errors are retried."""
    denied_seconds: float = 60.0
    """The time for which a denial is retried: policy changes take a while to spread."""
    batch_backoff: Backoff = Backoff(first_seconds=0.05, longest_seconds=5.0, jitter=0.5)
    """The delays between the parts of a batch that exceeds the write capacity."""
    create_seconds: float = 300.0
    """The longest wait for a table to become active."""
    active_poll_seconds: float = 0.5
    """The delay between checks whether a table is active."""
    credit_seconds: float = 1.0
    """The time of unused read units that a delayed scan may catch up with at once."""
    items_call_seconds: float = 10.0
    """The timeout of one page of a table's items, during which no change is delivered."""
    lease_call_seconds: float = 2.0
    """The timeout of a lease's write: a slow one must leave time for another."""


CALLS = CallTiming()
LISTINGS = ListingTiming()
CREDENTIALS = CredentialsTiming()
TABLES = TableTiming()
START_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=1.6)
START_ATTEMPTS = 5
"""The number of attempts at a program's first call, if the service answers at all."""
