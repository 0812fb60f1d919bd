"""The parameters that several jobs share, each declared once."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from watcher.flag import Flag
from watcher.service.connection import Connection

HERE = Connection()
"""AWS as the environment says."""

PLACES = "trim-horizon, latest, an age (2h), or a time (2026-11-21T08:00Z)"
"""What a `--from` may be."""

Checkpoint: TypeAlias = Annotated[
    str | None, Flag("PATH", "Spark's checkpoint: where the job goes on after an end or a crash")
]
Once: TypeAlias = Annotated[bool, Flag(None, "end when everything up to now is done")]
Every: TypeAlias = Annotated[str | None, Flag("TIME", "one micro-batch every so often: 10s, 1m")]
EveryTenSeconds: TypeAlias = Annotated[
    str | None, Flag("TIME", "one micro-batch every so often: 1s, 1m; default 10s", "--every")
]
MaxRecords: TypeAlias = Annotated[
    int | None, Flag("N", "at most N changes in a micro-batch", "--max-records-per-trigger")
]
FailOnDataLoss: TypeAlias = Annotated[
    bool,
    Flag(None, "go on with a warning where changes were gone before they were read", "--lossy"),
]
