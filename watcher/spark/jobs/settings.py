"""The parameters that several jobs share, each declared once."""

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from watcher.service.connection import Connection

HERE = Connection()
"""AWS as the environment says."""

PLACES = "trim-horizon, latest, an age (2h), or a time (2026-11-21T08:00Z)"
"""What a `--from` may be."""

Checkpoint: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="PATH", help="Spark's checkpoint: where the job goes on after an end or a crash"
    ),
]
Once: TypeAlias = Annotated[bool, Parameter(help="end when everything up to now is done")]
Every: TypeAlias = Annotated[
    str | None, Parameter(metavar="TIME", help="one micro-batch every so often: 10s, 1m")
]
EveryTenSeconds: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="TIME", help="one micro-batch every so often: 1s, 1m; default 10s"),
]
MaxRecords: TypeAlias = Annotated[
    int | None,
    Parameter(
        name="--max-records-per-trigger",
        metavar="N",
        help="at most N changes in a micro-batch",
    ),
]
FailOnDataLoss: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--no-lossy",
        negative="--lossy",
        help="go on with a warning where changes were gone before they were read",
    ),
]
