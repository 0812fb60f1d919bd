"""Finds the problems of a watch, for /livez, /readyz and the program that it runs in."""

from __future__ import annotations

from typing import NamedTuple

from watcher.observability.heartbeat import HeartbeatState, Phase
from watcher.observability.timing import FIGURES_TIMING
from watcher.observability.watch_stats import WatchStats

_PHASE_NAMES = {
    Phase.STARTING: "the start",
    Phase.STANDING_BY: "standing by",
    Phase.WATCHING: "the watch's loop",
    Phase.READING_ITEMS: "a read of the table's items",
    Phase.DELIVERING: "a handler",
    Phase.SAVING: "a save of the positions",
}
_STANDS_BY = "standing by: another watch has the lease"


class ProbeAnswers(NamedTuple):
    """The problems that each probe reports, one line each; none where all is well."""

    live: list[str]
    """Problems that a restart may solve."""
    ready: list[str]
    remark: str = ""
    """What a watch that is ready does instead of delivering."""


def assess(stats: WatchStats, state: HeartbeatState, now: float) -> ProbeAnswers:
    """Finds the problems of a watch in its latest statistics and its heartbeat."""
    health, live = stats.health, list(stats.health.stuck)
    if state.stopping_since:
        return ProbeAnswers([], ["the watch is ending"])
    phase = _PHASE_NAMES[state.phase]
    if state.phase is Phase.DELIVERING:
        phase += f" ({' or '.join(stats.handlers)})" if stats.handlers else ""
    if now - state.tried_at > FIGURES_TIMING.late_seconds:
        live.insert(0, f"{phase} has stood for {now - state.tried_at:.0f} s")
    if state.phase is Phase.STANDING_BY:
        if health.trouble:
            return ProbeAnswers(live, [*live, f"can't stand by: {health.trouble}"])
        return ProbeAnswers(live, live, _STANDS_BY)
    ready = list(live)
    if not live and now - state.progressed_at > FIGURES_TIMING.late_seconds:
        ready.append(f"{phase} is tried again and again, for {now - state.progressed_at:.0f} s")
    return ProbeAnswers(live, [*ready, *health.unready])
