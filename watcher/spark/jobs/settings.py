"""The parameters that several jobs share, each declared once."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, TypeAlias, TypedDict

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.tables import TablesClient
from watcher.declared import Parameter
from watcher.errors import ServiceError, StreamError, UsageError, blame
from watcher.records.redaction import redaction
from watcher.spark import compat, image_schema
from watcher.spark.columns import refuse_unfit_types, refuse_wrong_key
from watcher.spark.error_mapping import one_line
from watcher.spark.options import wanted_streams
from watcher.spark.timing import TIMING

HERE = AwsConfig()
"""AWS as the environment says."""

PLACES = "trim-horizon, latest, an age (2h), or a time (2026-11-21T08:00Z)"
"""The values of a `--from`."""


def start_option(default: str, *, text: str = "where to begin without a checkpoint") -> Parameter:
    """Returns a job's `--from`; `text` begins its help."""
    return Parameter(name="--from", metavar="START", help=f"{text}: {PLACES}; default {default}")


Checkpoint: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="PATH", help="save progress here, to resume after a crash"),
]
Once: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--no-follow",
        alias="--once",
        negative="--follow",
        help="end when everything up to now is done",
    ),
]
Every: TypeAlias = Annotated[
    str | None, Parameter(metavar="TIME", help="the interval between micro-batches: 10s, 1m")
]
EveryTenSeconds: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="TIME", help="the interval between micro-batches: 1s, 1m; default 10s"),
]
MaxRecords: TypeAlias = Annotated[
    int | None,
    Parameter(
        name="--max-records-per-trigger",
        metavar="N",
        help="at most N changes in a micro-batch",
    ),
]
StopTimeout: TypeAlias = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        help="how long the current micro-batch may take after Ctrl-C or SIGTERM; default 8",
    ),
]
ImageSchema: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="DDL", help="typed images: --image-schema 'pk string, qty decimal(38,0)'"),
]
FailOnDataLoss: TypeAlias = Annotated[
    bool,
    Parameter(
        help="warn and continue if changes expired before they were read",
    ),
]


class Redacted(TypedDict):
    """The source's options for what nobody is to see."""

    redact: str | None
    redactFile: str | None
    redactKeyFile: str | None


def redacted(
    redact: Sequence[str] | None, redact_file: str | None, redact_key_file: str | None
) -> Redacted:
    """Returns the source's options; raises UsageError, in the command line's words."""
    redaction(redact, redact_file, redact_key_file)
    # Spark's own Pythons may work in another folder.
    file, key_file = (each and os.path.abspath(each) for each in (redact_file, redact_key_file))
    lines = "\n".join(redact or ()) or None
    return Redacted(redact=lines, redactFile=file, redactKeyFile=key_file)


def refuse_bad_schema(text: str | None, stream: str, connection: AwsConfig) -> None:
    """Raises UsageError for a DDL that Spark refuses, or whose types no attribute can become.

    Also for a type that a key of the stream's table can't have.
    """
    if text is None:
        return
    with blame("image_schema"):
        image_schema.parsed(text)
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise UsageError(one_line(error), "image_schema", repr(text)) from error
    assert isinstance(schema, StructType)
    refuse_unfit_types(StructType().add("new_image", schema))
    image = pa.struct(list(compat.arrow_schema(schema)))
    for key, kind in _key_types(stream, connection):
        refuse_wrong_key(image, key, kind)


def _key_types(stream: str, connection: AwsConfig) -> Iterator[tuple[str, str]]:
    """Yields the keys of tables, as far as they may be described: else the first change tells."""
    for name in wanted_streams(stream).names:
        with suppress(StreamError, ServiceError):
            service, arn = connect(name, connection)
            tables = TablesClient(
                connection, region_in(arn), attempts=2, call_seconds=TIMING.describe_seconds
            )
            _, table = tables.named(service.table(arn))
            yield from table.types.items()
