"""Keeps a table in Delta or Iceberg equal to a DynamoDB table, by Spark's MERGE."""

import logging
from collections.abc import Sequence
from typing import Annotated, Final

from pyspark.sql import SparkSession

from watcher.aws.config import AwsConfig
from watcher.declared import Opt
from watcher.errors import DataLossError, StreamGoneError
from watcher.mirror.columns import Baseline, Columns, History, ItemForm, Once
from watcher.shutdown import Shutdown
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import JobTotals, new_stop_file, run, trigger
from watcher.spark.jobs.settings import HERE
from watcher.spark.merge import merge_into
from watcher.spark.session import key_value
from watcher.spark.succession import NAME_THE_NEW

logger = logging.getLogger("watcher")

_RECOPY: Final = "--recopy, which compares all rows"


def mirror(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: Annotated[str, Opt("a Delta table's path, or CATALOG.SCHEMA.TABLE", "TABLE")],
    format: Annotated[  # noqa: A002
        str, Opt("delta (default) or iceberg", "FORMAT", choices=("delta", "iceberg"))
    ] = "delta",
    history: History = False,
    columns: Columns = None,
    item: ItemForm = None,
    partition_by: Annotated[
        str | None,
        Opt("the partitions of a new table: 'bucket(16, PK), days(_at)'", "COLUMNS"),
    ] = None,
    property: Annotated[  # noqa: A002
        list[str] | None, Opt("set a property of the table; can be repeated", "KEY=VALUE")
    ] = None,
    baseline: Baseline = None,
    recopy: Annotated[
        bool, Opt("compare all rows with the table first, as after a loss of changes")
    ] = False,
    checkpoint: Annotated[
        str | None, Opt("save progress here; default _checkpoint in the table's folder", "PATH")
    ] = None,
    once: Once = False,
    every: Annotated[
        str | None, Opt("the interval between merges: 10s, 1m; default 30s", "TIME")
    ] = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.STOP_SECONDS,
    redact: Sequence[str] | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Copies the table's items, then merges every change, until stopped.

    Raises UsageError, StreamError, and what the source raises.
    """
    stop, stop_file = Shutdown(stop_timeout), new_stop_file()
    when = trigger(once=once, every=every, default="30s")
    merge = merge_into(
        spark,
        stream,
        to,
        format=format,
        history=history,
        columns=columns,
        item=item,
        partition_by=partition_by,
        properties=dict(key_value(each, "property") for each in property or ()),
        baseline=baseline,
        recopy=recopy,
        checkpoint=checkpoint,
        redact=redact,
        connection=connection,
    )
    limit = {} if max_records is None else {"maxRecordsPerTrigger": str(max_records)}
    limit |= {"failOnDataLoss": str(fail_on_data_loss).lower(), "stopFile": str(stop_file)}
    with translating_errors():
        reader = spark.readStream.format("dynamodb_streams").options(**merge.options, **limit)
        writer = reader.load().writeStream.foreachBatch(merge)
        writer = writer.option("checkpointLocation", merge.checkpoint)
    logger.info(f"Merging the changes of {stream} into {to}")
    start = writer.trigger(**when).start
    try:
        return run(start, "merged", stop=stop, stop_file=stop_file, once=once)
    except DataLossError as error:
        raise DataLossError(f"{error}; or {_RECOPY}") from error
    except StreamGoneError as error:
        text = str(error).replace(NAME_THE_NEW, f"give {_RECOPY}, and goes on with that")
        raise StreamGoneError(text) from error
