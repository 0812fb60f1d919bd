"""The delays and limits of the stores room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_SECONDS = 6.0
"""The time after which a standby takes over from a watch that was killed; several renewals fit."""
CLAIM_SECONDS = LEASE_SECONDS + 4.0
"""The longest wait of a command for a lease: a killed watch's has expired by then."""


@dataclass(frozen=True, kw_only=True)
class SaveTiming:
    """The delays between saves of the checkpoint."""

    save_seconds: float = 1.0
    """The delay between saves: a kill repeats what was delivered since the last one."""
    save_records: int = 1000
    """The number of records after which a save comes earlier, while the budget lasts."""
    budget_share: float = 0.02
    """The share of the time that early saves may take."""
    budget_seconds: float = 0.05
    """The most of it that they may take at once: enough for a short backlog."""
    waiting_seconds: float = 0.2
    """The age of unsaved positions at which they are saved before a long wait."""
    idle_seconds: float = 300.0
    """The longest time between saves: a checkpoint's age tells which records may be lost."""


@dataclass(frozen=True, kw_only=True)
class LeaseTiming:
    """The delays of a lease's writes and reads, most of them parts of `LEASE_SECONDS`."""

    renew_seconds: float = 2.0
    """The delay between renewals: two more tries fit into a lease."""
    again_seconds: float = 0.5
    """The delay after a failed write."""
    look_seconds: float = 1.0
    """The delay between a standby's reads of the lease."""
    margin_seconds: float = 0.5
    """The time for which a standby waits beyond a lease's end: clocks run at different speeds (a
    twentieth is a lot), and a handler may still have a record."""
    poll_seconds: float = 0.1
    """The delay between checks whether the watch stops."""
    log_again_seconds: float = 300.0
    """The delay before a lasting error is logged again."""
    fork_seconds: float = 2.0
    """The longest that a fork waits for a write, whose lock the child would inherit locked."""
    renewer_end_seconds: float = 5.0
    """The longest wait, at the end, for a renewal that is under way."""
