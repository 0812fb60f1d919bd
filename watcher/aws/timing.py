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


CREDENTIALS = CredentialsTiming()
