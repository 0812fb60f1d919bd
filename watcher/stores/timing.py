"""The delays and limits of the stores room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_SECONDS = 6.0
"""The time after which a standby takes over from a watch that was killed; several renewals fit."""
CLAIM_SECONDS = LEASE_SECONDS + 4.0
"""The longest wait of a command for a lease: a killed watch's has expired by then."""


@dataclass(frozen=True, kw_only=True)
class SaveTiming:
    """How often the checkpoint is saved."""

    save_seconds: float = 1.0
    """The delay between saves: a kill repeats what was delivered since the last one."""
    save_records: int = 1000
    """The number of records after which a save comes sooner, …"""
    save_share: float = 0.02
    """… while saving takes no more than this share of the time, …"""
    saved_up_seconds: float = 0.05
    """… of which this much may be spent at once: enough for a short backlog."""
    waiting_seconds: float = 0.2
    """The age of unsaved positions at which they are saved before a long wait."""
    idle_seconds: float = 300.0
    """The longest time between saves: the checkpoint's time tells what may be lost."""


@dataclass(frozen=True, kw_only=True)
class LeaseTiming:
    """How often a lease is written and read; each a part of `LEASE_SECONDS`."""

    renew_seconds: float = 2.0
    """The delay between renewals: two more tries fit into a lease."""
    again_seconds: float = 0.5
    """The delay after a failed write."""
    look_seconds: float = 1.0
    """The delay between a standby's reads of the lease."""
    margin_seconds: float = 0.5
    """The time before its end from which a lease no longer counts: clocks run at different speeds
    (a twentieth is a lot), and a record may be in a handler."""
    poll_seconds: float = 0.1
    """The delay between checks whether the watch stops."""
    log_again_seconds: float = 300.0
    """The delay before a lasting error is logged again."""
    fork_seconds: float = 2.0
    """The longest that a fork waits for a write, whose lock the child would inherit shut."""
