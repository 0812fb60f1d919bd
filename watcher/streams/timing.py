"""The pauses and limits of the core, each with its reason."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Every pause and limit of `watcher.streams`; tests hand in their own."""

    # Reading a shard
    after_records_seconds: float = 0.25
    """After some records more may follow; GetRecords allows four to five reads a second."""
    idle_seconds: float = 1.0
    """An idle shard is polled that often in its first minute; each call is billed."""
    idle_polls: int = 60
    """After so many polls in vain a shard is polled ever less often."""
    tip_seconds: float = 0.2
    """A shard that is read up to now is read again so soon after a page with records."""
    empty_page_seconds: float = 0.02
    """A shard that is read up to now is read again so soon after an empty page."""
    credentials_seconds: float = 0.5
    """Refused credentials are tried again after so long, then ever later: someone may log in."""
    credentials_seconds_max: float = 5.0
    """… but no later than this."""
    read_again_seconds: float = 1.0
    """A shard whose reader ended too early is read again after so long."""
    idle_pages: int = 5
    """Fewer empty pages do not say that there is nothing more: records may follow them."""
    empty_pages_noticed: int = 1000
    """So many empty pages in a row are worth a log line."""
    trimmed_reads: int = 5
    """A trim horizon may move on between iterator and read, but not so many times in a row."""
    failures_until_doubt: int = 3
    """After so many failures an iterator at a timestamp is doubted: moto grants broken ones."""
    coarsest_time_seconds: int = 60
    """Where AT_TIMESTAMP is refused (DynamoDB Local), creation times are whole minutes."""
    later_records: int = 1000
    """One record may be stamped too late; so many in a row are past the end."""
    remembered_numbers: int = 1000
    """A page's worth of the last sequence numbers tells a record that comes late from a repeat."""

    # Pages
    prefetched_seconds: float = 0.1
    """A prefetched answer is as good as one of now for so long."""
    empty_page_bytes: int = 2_000
    """A page without a record is smaller than this."""

    # How often others leave us a read; see `read_rate`
    reads_per_second_max: float = 5.0
    """AWS allows so many to all readers of a shard together."""
    reads_per_second_min: float = 0.8
    """Slower than this a reader does not get, however many others there are."""
    reads_per_second_first: float = 2.5
    """The rate after the first throttled read."""
    throttled_share: float = 0.9
    """A throttled read leaves so much of the rate: few are throttled, nine tenths are had."""
    throttled_again_share: float = 0.5
    """A second one in a row leaves so much."""
    reads_to_recover: int = 40
    """The way back to the last limit takes so many reads."""
    above_limit: float = 1.05
    """From so much above the last limit the steps grow: somebody else may have left."""
    step_growth: float = 1.1
    """Steps above the last limit grow by so much."""
    reads_until_free: int = 1500
    """After so many reads without a throttled one there was no limit."""
    throttled_seconds_max: float = 10.0
    """Throttled reads in a row are no further apart than this."""

    # Listings
    listing_seconds: float = 5.0
    """A small stream is listed that often."""
    listing_seconds_max: float = 60.0
    """A listing that can tell nothing that is needed comes no later than this."""
    listing_retry_seconds: float = 1.0
    """A failed listing is tried again after so long, then ever later, up to `listing_seconds`."""
    listing_pages_per_second: int = 5
    """DescribeStream allows 10 calls a second, shared with everybody else."""
    listed_seconds: float = 5.0
    """So long after a moment, listings show which shards were open or closed by then."""
    late_child_seconds: float = 0.25
    """A finished shard's child is a moment away, or a listing that lags hides it."""
    late_child_seconds_max: float = 1.0
    """… and is looked for no less often than this."""
    late_child_expected_seconds: float = 60.0
    """A child that listings hide for longer is still looked for, every few seconds, for so long."""
    unlisted_parent_seconds: float = 60.0
    """A parent that exists, and that no listing shows for so long, is read without one."""
    unlisted_parent_warn_seconds: float = 10.0
    """A parent that can't be read for so long is worth a warning."""
    probe_parent_seconds: float = 1.0
    """Such a parent is probed that often; where nothing answers, ever less often."""
    probe_parent_seconds_max: float = 4.0
    """… but no less often than this."""

    # The end of an open shard; see `end_detector`
    written_seconds: float = 2.0
    """So long after a write was answered, its record is in its shard."""
    listing_received_seconds: float = 0.5
    """A coordinator has taken in a listing so long after it was made."""
    quiet_seconds: float = 1.0
    """An open shard is left after so long of nothing but empty pages."""
    quiet_pages: int = 36
    """… and so many of one iterator: bloop counts 5 for a shard of 4 hours, this is over a day. A
    young shard may have as many: nothing that AWS documents says that it can't."""
    empty_pages_of_all_iterators: int = 120
    """… or so many of all iterators, where one after the other is refused."""
    spread_pages: int = 3
    """So many of the last empty pages are spread over the time that has to pass."""
    probe_end_seconds: float = 1.0
    """LATEST is probed that often."""
    reads_per_probe: int = 20
    """Of the reads that the service allows, one of so many is a probe."""
    probes: int = 3
    """An iterator may go back, also one at LATEST: not all of so many."""

    # What only the user can mend, and losses
    denied_seconds: float = 60.0
    """A policy that is changed is not everywhere at once; what is denied for longer is meant."""
    between_errors_seconds: float = 10.0
    """Of the time between two errors so much counts: in more, the machine has slept."""
    credentials_news_seconds: float = 60.0
    """Credentials that are refused so long afterwards are other ones, and worth a log line."""
    odd_answers: int = 3
    """Where nothing was read yet, so many odd answers in a row are how this endpoint is."""
    young_seconds: float = 60.0
    """Records out of retention at the beginning are no loss; readers find that out by then."""
    start_tolerance_seconds: float = 60.0
    """A start of 24 hours ago means all that there is, not a minute less."""


TIMING = Timing()
"""The pauses and limits that hold where no others are handed in."""
