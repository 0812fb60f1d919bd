"""SQL over the changes of the last 24 hours, and before them those of an archive."""

import base64
import json
import logging
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Annotated

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, struct, to_json, udf
from pyspark.sql.functions import max as max_
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, VariantType

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import AtTime, Latest
from watcher.aws.retry import first_listing
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.formatting.rows import write_csv, write_table
from watcher.formatting.text import write_json
from watcher.records.redaction import redaction_text
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.archive import ArchiveFolder
from watcher.spark.jobs.run import changes
from watcher.spark.jobs.settings import HERE
from watcher.streams.lineage import RETENTION
from watcher.streams.start_times import parse_start
from watcher.time_machine.sources import source_path

logger = logging.getLogger("watcher")

_OUTPUTS = ("table", "json", "csv")
_START = settings.start_option("trim-horizon", text="where to begin")
_NESTED = (ArrayType, MapType, StructType, VariantType)


def query(
    sources: str | Sequence[str],
    sql: str,
    *,
    output: Annotated[
        str,
        Opt(
            "table (default), json (a line per row) or csv", "FORMAT", alias="-o", choices=_OUTPUTS
        ),
    ] = "table",
    start: Annotated[str, _START] = "trim-horizon",
    until: Annotated[
        str | None, Opt("leave out later changes: an age (2h) or a time", "END")
    ] = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    redact: Sequence[str] | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> int:
    """Runs SQL over the view `changes`, prints its rows to stdout, and returns their number.

    The sources are a stream, or folders that `archive` wrote, in Parquet, and at last a stream, or
    none: the view has each of their changes once. A view with the table's name shows the same rows.

    Raises UsageError for SQL that Spark refuses, and whatever the source raises.
    """
    hidden = redaction_text(redact)
    names = [sources] if isinstance(sources, str) else [*sources]
    streams = [name for name in names if not source_path(name)]
    if streams not in ([], names[-1:]):
        raise UsageError("give folders of archives, and then one stream, at most")
    if len(names) > len(streams) and hidden:
        raise UsageError("it is for streams: an archive has what it was written with", "redact")
    with translating_errors():
        frame: DataFrame | None = None
        for name in names[: len(names) - len(streams)]:
            archived = _between(_archive(spark, name), start, until)
            frame = archived if frame is None else _with_new(frame, archived)
        for name in streams:
            found = changes(
                spark.read,
                name,
                connection,
                startingPosition=start,
                endingPosition=until,
                changedAttributes=True,
                failOnDataLoss=fail_on_data_loss,
                redact=hidden,
            )
            if frame is not None:
                _warn_of_gap(frame, name, connection)
            frame = found if frame is None else _with_new(frame, found)
        assert frame is not None
        for name in {"changes", *re.findall(r"^[\w-]+$", table_name(names[-1]))}:
            frame.createOrReplaceTempView(f"`{name}`")
        result = spark.sql(sql)
        return _print(result, output, sys.stdout)


def _archive(spark: SparkSession, path: str) -> DataFrame:
    """Returns the changes in an archive, without the batch that is not whole."""
    folder = ArchiveFolder(spark, path)
    try:
        newest, rows = max(folder.batches()), spark.read.parquet(path)
    except (ValueError, AnalysisException) as error:  # no batches, or no changes in them
        text = f"{path} has no changes that python -m watcher archive wrote"
        raise UsageError(text) from error
    if not folder.is_whole(newest):
        rows = rows.where(rows["batch"].cast("int") < newest)
    changed = _changed("event_name", "old_image", "new_image")
    return rows.drop("batch", "date").withColumn("changed_attributes", changed)


def _changed_names(event_name: str, old: str | None, new: str | None) -> list[str] | None:
    """Returns the names of the attributes that differ; None where an image is not known."""
    if (old is None and event_name != "INSERT") or (new is None and event_name != "REMOVE"):
        return None
    before, after = (
        json.loads(image, parse_int=Decimal, parse_float=Decimal) if image else {}
        for image in (old, new)
    )
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))


_changed = udf(_changed_names, ArrayType(StringType()), useArrow=False)


def _between(rows: DataFrame, start: str, until: str | None) -> DataFrame:
    """Returns an archive's changes of the time that is asked for."""
    now, time = datetime.now(UTC), rows["approximate_creation_time"]
    match parse_start(start, now):
        case AtTime(since):
            rows = rows.where(time >= lit(since))
        case Latest():
            rows = rows.where("false")
    if until is not None and isinstance(end := parse_start(until, now), AtTime):
        rows = rows.where(time <= lit(end.time))
    return rows


def _with_new(known: DataFrame, more: DataFrame) -> DataFrame:
    """Returns rows with those of others that are not among them."""
    change = ["shard_id", "sequence_number"]
    return known.unionByName(more.join(known.select(change), change, "left_anti"))


def _warn_of_gap(archived: DataFrame, stream: str, connection: AwsConfig) -> None:
    """Warns where the stream no longer reaches back to the archive's newest change."""
    newest = archived.select(max_("approximate_creation_time")).first()
    service, arn = connect(stream, connection)
    oldest = first_listing(service, arn).time - RETENTION
    if newest and newest[0] and newest[0].astimezone(UTC) < oldest:
        logger.warning(
            f"The archive ends {newest[0].astimezone(UTC):%Y-%m-%dT%XZ}, and the stream begins "
            f"{oldest:%Y-%m-%dT%XZ}: changes in between are in neither"
        )


def _print(result: DataFrame, output: str, file: IO[str]) -> int:
    names = result.columns
    if output == "json":
        count = 0
        whole = to_json(struct("*"), {"ignoreNullFields": "false"})
        for (line,) in result.select(whole).toLocalIterator():
            write_json(f"{line}\n", file)
            count += 1
        return count
    rows = ([_text(value) for value in row] for row in _exact(result).toLocalIterator())
    if output == "csv":
        return write_csv(file, names, rows)
    return write_table(file, names, list(rows))


def _exact(result: DataFrame) -> DataFrame:
    """Returns structs, arrays and maps as JSON, as `-o json` has them, with all digits."""
    kinds = [field.dataType for field in result.schema.fields]
    numbered = result.toDF(*map(str, range(len(kinds))))  # two columns may have one name
    columns = [numbered[str(index)] for index in range(len(kinds))]
    return numbered.select(
        *[
            to_json(each, {"ignoreNullFields": "false"}) if isinstance(kind, _NESTED) else each
            for each, kind in zip(columns, kinds, strict=True)
        ]
    )


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):  # as in the JSON
        return base64.b64encode(value).decode()
    return "" if value is None else str(value)
