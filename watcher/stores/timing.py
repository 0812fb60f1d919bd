"""Pauses and limits of the stores room: each with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_SECONDS = 6.0
"""A watch that was killed is followed after so long: a few writes may fail before it is lost."""
CLAIM_SECONDS = LEASE_SECONDS + 4.0
"""A command waits so long for a lease: one of a watch that was killed has run out by then."""


@dataclass(frozen=True, kw_only=True)
class SaveTiming:
    """How often the checkpoint is saved."""

    save_seconds: float = 1.0
    """After a kill, what was delivered since the last save is delivered again."""
    save_records: int = 1000
    """So many records are saved sooner, …"""
    save_share: float = 0.02
    """… as long as saving takes no more than this part of the time, …"""
    saved_up_seconds: float = 0.05
    """… of which so much is there at once: for a short backlog that is as good as always."""
    waiting_seconds: float = 0.2
    """Unsaved positions are saved sooner before something that takes its time."""
    idle_seconds: float = 300.0
    """So old a stored token may get while nothing moves: its time tells what may be lost."""


@dataclass(frozen=True, kw_only=True)
class LeaseTiming:
    """How often a lease is written and looked at; each a part of `LEASE_SECONDS`."""

    renew_seconds: float = 2.0
    """Two further tries fit into a lease whose renewal fails."""
    again_seconds: float = 0.5
    """After a write that failed."""
    look_seconds: float = 1.0
    """How often one that stands by reads the item."""
    margin_seconds: float = 0.5
    """For clocks of different speed (a twentieth is a lot), and for the record in hand."""
    poll_seconds: float = 0.1
    """How often a wait looks whether the watch has to stop."""
    log_again_seconds: float = 300.0
    """A trouble that lasts is logged again after so long."""
    fork_seconds: float = 2.0
    """A fork waits for a write at most so long: else the child inherits a lock that stays shut."""
