"""The delays of the core that several files share, or that tests shorten."""

from __future__ import annotations

import msgspec

from watcher.retry import Backoff


class Timing(msgspec.Struct, kw_only=True):
    """The delays of `watcher.streams`; those of one file stand there, each with its reason."""

    listed_seconds: float = 5.0
    """The time after which listings show which shards were open at a given time."""
    late_child_seconds_max: float = 1.0
    """The longest delay before a search for a finished shard's child; listings may lag."""
    written_seconds: float = 2.0
    """The time after which an acknowledged write is in its shard."""
    denied_seconds: float = 60.0
    """The time for which a denial is retried: policy changes take a while to spread."""
    hopeless_seconds: float = 60.0
    """The time without a successful read after which a reading up to now ends."""
    stream_backoff: Backoff = Backoff(first_seconds=30.0, longest_seconds=300.0)
    """The delays between reads of one of several streams that can't be read.

    Someone may have fixed a policy.
    """


TIMING = Timing()
