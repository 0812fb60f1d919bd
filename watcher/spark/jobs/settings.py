"""The parameters that several jobs share, each declared once."""

from typing import Annotated, TypeAlias

from pyspark.sql import SparkSession

from watcher.aws.config import AwsConfig
from watcher.declared import Opt
from watcher.errors import UsageError

HERE = AwsConfig()
"""AWS as the environment says."""


def start_option(default: str, *, text: str = "where to begin without a checkpoint") -> Opt:
    """Returns a job's `--from`; `text` begins its help."""
    places = "trim-horizon, latest, an age (2h), or a time (2026-11-21T08:00Z)"
    return Opt(f"{text}: {places}; default {default}", "START", name="--from")


Checkpoint: TypeAlias = Annotated[
    str | None, Opt("save progress here, to resume after a crash", "PATH")
]
Every: TypeAlias = Annotated[str | None, Opt("the interval between micro-batches: 10s, 1m", "TIME")]
EveryTenSeconds: TypeAlias = Annotated[
    str | None, Opt("the interval between micro-batches: 1s, 1m; default 10s", "TIME")
]
MaxRecords: TypeAlias = Annotated[
    int | None, Opt("at most N changes in a micro-batch", "N", name="--max-records-per-trigger")
]
STOP_SECONDS = 8.0
"""The default of `--stop-timeout`; docker kills after 10 s, systemd after 90."""
StopTimeout: TypeAlias = Annotated[
    float,
    Opt("how long the current micro-batch may take after Ctrl-C or SIGTERM; default 8", "SECONDS"),
]
FailOnDataLoss: TypeAlias = Annotated[
    bool, Opt("warn and continue if changes expired before they were read")
]


def refuse_speculation(spark: SparkSession) -> None:
    """Raises UsageError where Spark may run a task twice at once.

    The slower one would end behind later micro-batches: an older state of an item in a replica,
    changes that handlers get again, out of order.
    """
    if spark.conf.get("spark.speculation", "false") == "true":
        raise UsageError(
            "this job takes spark.speculation=false: its tasks write as they go", "conf"
        )
