"""The delays and limits of the core, each with its unit and its reason."""

from __future__ import annotations

import msgspec

from watcher.retry import Backoff


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The delays and limits of `watcher.streams`; tests pass their own."""

    # Reading a shard
    after_records_seconds: float = 0.25
    """The delay after some records: GetRecords allows four to five reads a second."""
    idle_seconds: float = 1.0
    """The delay between polls of an idle shard in its first minute; each call is billed."""
    idle_polls: int = 60
    """The number of polls without a record after which the delay starts to double."""
    near_end_seconds: float = 0.2
    """The delay after a page with records, while the reader looks for the shard's end."""
    empty_page_seconds: float = 0.02
    """The delay after an empty page, while the reader looks for the shard's end."""
    read_backoff: Backoff = Backoff()
    """The delays after failed reads."""
    credentials_backoff: Backoff = Backoff(first_seconds=0.5, longest_seconds=5.0)
    """The delays after refused credentials: someone may log in again."""
    read_again_seconds: float = 1.0
    """The delay before a new reader of a shard whose reader ended too early."""
    idle_pages: int = 5
    """The number of empty pages that make a shard idle: records may follow a few of them."""
    empty_pages_noticed: int = 1000
    """The number of empty pages in a row from which they are logged."""
    trimmed_reads: int = 5
    """The number of trimmed reads in a row after which a shard counts as gone.

    The trim horizon can move between the iterator and the read, but not that often.
    """
    failures_until_doubt: int = 3
    """The number of failures after which an iterator at a time is dropped (moto's never work)."""
    coarsest_time_seconds: int = 60
    """The precision of creation times where AT_TIMESTAMP is refused (DynamoDB Local's minutes)."""
    later_records: int = 1000
    """The number of records in a row after `end` that ends the reading.

    A single one may have a wrong time.
    """
    remembered_numbers: int = 1000
    """The number of remembered sequence numbers, about a page's."""

    # Pages
    prefetched_seconds: float = 0.1
    """The age up to which a prefetched answer is as good as a new one."""
    empty_page_bytes: int = 2_000
    """The size that every page with a record exceeds."""

    # The rate limit of a shard; see `read_rate`
    reads_per_second_max: float = 5.0
    """The reads that AWS allows to all readers of a shard together."""
    reads_per_second_min: float = 0.8
    """The slowest rate, however many other readers there are."""
    reads_per_second_first: float = 2.5
    """The rate after the first throttled read."""
    throttled_share: float = 0.9
    """The share of the rate that is left after a throttled read."""
    throttled_again_share: float = 0.5
    """The share that is left after a second throttled read in a row."""
    reads_to_recover: int = 40
    """The number of reads in which the rate climbs back to the last limit."""
    above_limit: float = 1.05
    """The multiple of the last limit from which the rate grows faster.

    Another reader may have left.
    """
    step_growth: float = 1.1
    """The growth of each step above that."""
    reads_until_free: int = 1500
    """The number of reads without a throttled one after which the limit is lifted."""
    throttled_seconds_max: float = 10.0
    """The longest delay between throttled reads in a row."""

    # Listings
    listing_seconds: float = 5.0
    """The delay between listings of a small stream."""
    listing_seconds_max: float = 60.0
    """The longest delay before a listing that shows nothing needed at the moment."""
    listing_backoff: Backoff = Backoff(first_seconds=1.0, longest_seconds=5.0)
    """The delays after failed listings."""
    listing_pages_per_second: int = 5
    """Half of the 10 DescribeStream calls a second that AWS allows to an account."""
    listed_seconds: float = 5.0
    """The time after which listings show which shards were open at a given time."""
    late_child_seconds: float = 0.25
    """The first delay before a search for a finished shard's child; listings may lag."""
    late_child_seconds_max: float = 1.0
    """The longest of these delays."""
    late_child_expected_seconds: float = 60.0
    """The time for which an unlisted child is searched."""
    unlisted_parent_seconds: float = 60.0
    """The time after which an existing parent is read although no listing shows it."""
    unlisted_parent_warn_seconds: float = 10.0
    """The time after which an unreadable parent is logged."""
    parent_probe_backoff: Backoff = Backoff(first_seconds=1.0, longest_seconds=4.0)
    """The delays between probes of such a parent while nothing answers."""

    poll_idle_seconds: float = 30.0
    """The shortest time between two polls of all idle shards because of another's records."""

    # The end of an open shard; see `end_detector`
    written_seconds: float = 2.0
    """The time after which an acknowledged write is in its shard."""
    listing_received_seconds: float = 0.5
    """The time in which a listing reaches the coordinator."""
    quiet_seconds: float = 1.0
    """The time without a record after which an open shard may be left, …"""
    quiet_pages: int = 36
    """… and the number of empty pages of one iterator.

    bloop counts 5 in 4 hours; this covers more than a day. It holds for young shards too: AWS
    documents no smaller number.
    """
    empty_pages_of_all_iterators: int = 120
    """… or of several iterators, each refused after a while."""
    spread_pages: int = 3
    """The number of last empty pages that are spread over the remaining time."""
    probe_end_seconds: float = 1.0
    """The delay between probes of LATEST."""
    reads_per_probe: int = 20
    """The number of allowed reads for each probe."""
    probes: int = 3
    """The number of iterators at LATEST whose answers count: a single one may go back."""

    # Errors that only the user can fix, and losses
    denied_seconds: float = 60.0
    """The time for which a denial is retried: policy changes take a while to spread."""
    between_errors_seconds: float = 10.0
    """The longest counted time between two errors: in a longer one the machine slept."""
    credentials_news_seconds: float = 60.0
    """The time after which still refused credentials are logged again."""
    odd_answers: int = 3
    """The number of odd answers in a row, before any good one, that ends the reading."""
    stream_backoff: Backoff = Backoff(first_seconds=30.0, longest_seconds=300.0)
    """The delays between reads of one of several streams that can't be read.

    Someone may have fixed a policy.
    """
    young_seconds: float = 60.0
    """The time after the start in which records that leave retention are no loss."""
    start_tolerance_seconds: float = 60.0
    """The tolerance of a start 24 hours ago: it means everything in retention."""


TIMING = Timing()
"""The delays and limits of a real run."""
