"""The text of the status line while a watch goes on."""

from __future__ import annotations

import logging
import sys

from watcher.cli.output import Line
from watcher.formatting import style
from watcher.formatting.text import counted, grouped
from watcher.observability.watch_stats import Display, Rate, WatchStats
from watcher.records.record import creation_time
from watcher.times import duration_text

logger = logging.getLogger("watcher")

_BAR_CELLS = 20


class WatchStatus(Display):
    """Draws a watch's figures: shards, records, their rate, lag, and what went wrong."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._rate = Rate()

    def show(self, stats: WatchStats) -> None:
        """Draws the figures."""
        rate = self._rate.at(stats.records + stats.filtered)
        self._line.set(" | ".join(_parts(stats, rate)))

    def close(self) -> None:
        """Erases the line."""
        self._line.close()


def bar(share: float) -> str:
    """Returns a progress bar with the share in percent."""
    full, empty = "█░" if (sys.stderr.encoding or "").lower().startswith("utf") else "#-"
    cells = int(share * _BAR_CELLS)
    return f"{full * cells}{empty * (_BAR_CELLS - cells)} {int(share * 100):3d} %"


def _parts(now: WatchStats, rate: float) -> list[str]:
    shards, records = now.shards, grouped(now.records, "record")
    if not now.bounded:
        parts = [f"{counted(shards.open, 'shard')} open, {shards.finished} finished"]
        if shards.waiting:
            parts[0] += f", {shards.waiting} waiting"
        parts += [records, f"{rate:,.0f}/s", f"lag {duration_text(now.lag)}"]
    else:
        total = shards.open + shards.finished + shards.waiting
        parts = [records, f"{rate:,.0f}/s", f"{shards.finished}/{total} shards"]
        if now.reached is not None and shards.open:
            parts.append(f"up to {style.time_text(creation_time(now.reached))}")
    if now.snapshot is not None:
        parts.insert(0, f"snapshot {bar(now.snapshot)}")
    if now.filtered:
        parts.insert(-1, f"{now.filtered:,} filtered out")
    if now.throttles:
        parts.append(f"{now.throttles:,} throttled")
    for count, what in (
        (now.restarts, "restart"),
        (now.failures, "handler failure"),
        (now.losses, "DATA LOSS"),
    ):
        if count:
            parts.append(counted(count, what))
    return parts
