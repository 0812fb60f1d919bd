"""The delays and limits of the observability room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FiguresTiming:
    """The limits of figures, probes and their server."""

    late_seconds: float = 60.0
    """The longest time of a read, a delivery or a save: a few timeouts in a row."""
    rate_seconds: float = 3.0
    """The period over which the rate of records is measured."""
    loop_late_seconds: float = 5.0
    """The age of figures from which a handler most likely blocks the manager."""
    suspended_seconds: float = 5.0
    """The gap between checks, normally half a second, that means a suspension."""
    client_seconds: float = 10.0
    """The timeout of a silent client of the metrics server."""
    log_again_seconds: float = 300.0
    """The delay before an SDK message is logged again: a collector may be away for long."""


@dataclass(frozen=True, kw_only=True)
class ExporterTiming:
    """The delays and limits of the exporter."""

    send_seconds: float = 1.0
    """The delay between two sends: the statistics change faster than any scrape."""
    end_seconds: float = 2.0
    """The time for the exporter's last metrics after the watch's end."""
    least_end_seconds: float = 0.5
    """The shortest such time, where the watch itself took long to stop."""
    most_end_seconds: float = 3600.0
    """The longest such time without a limit: a join accepts no infinity."""


FIGURES_TIMING = FiguresTiming()
