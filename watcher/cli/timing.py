"""The delays of the command line, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandTiming:
    """The delays of commands and of their log."""

    describe_seconds: float = 0.25
    """The time of one DescribeStream call: it allows 10 a second, shared with everybody else."""
    draw_seconds: float = 0.2
    """The delay between updates of the progress: five a second look alive."""
    line_seconds: float = 0.5
    """The wait for a reader of a log line, once the program is to end."""


COMMAND_TIMING = CommandTiming()
