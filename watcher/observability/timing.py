"""Pauses and limits of the observability room: each with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FiguresTiming:
    """The limits after which figures and their server call something late, suspended or known."""

    late_seconds: float = 60.0
    """A read, a delivery or a save may take so long: a few time-outs, one after another."""
    rate_seconds: float = 3.0
    """Over so long the rate of records is taken."""
    loop_late_seconds: float = 5.0
    """Figures that are older: most likely a handler blocks the manager."""
    suspended_seconds: float = 5.0
    """A server that looks twice a second, and was silent for so long, was suspended."""
    client_seconds: float = 10.0
    """A client of the metrics may be silent for so long."""
    log_again_seconds: float = 300.0
    """A collector may be away for long: the SDK's message is logged again after this."""


@dataclass(frozen=True, kw_only=True)
class ExporterTiming:
    """The pauses of the exporter."""

    send_seconds: float = 1.0
    """Between two sends: the statistics change faster than anybody scrapes them."""
    end_seconds: float = 2.0
    """The time that the exporter's process has to send its last metrics after the watch's end."""
    least_end_seconds: float = 0.5
    """The least of that time, where the watch itself took long to stop."""
    most_end_seconds: float = 3600.0
    """The most of that time, where the user sets no limit: a join takes no infinity."""


FIGURES_TIMING = FiguresTiming()
