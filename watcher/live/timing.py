"""The delays of the live view, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LiveTiming:
    """The delays of the live view and of its watch."""

    frame_seconds: float = 0.1
    """The delay between two looks for something to draw: more a second look no smoother."""
    note_seconds: float = 10.0
    """The time for which a note stays: long enough to read two lines."""
    poll_seconds: float = 0.1
    """The time within which the view's thread notices the user's wish to stop."""


LIVE_TIMING = LiveTiming()
