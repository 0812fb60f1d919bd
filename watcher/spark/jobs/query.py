"""SQL over the changes of the last 24 hours."""

import base64
import re
import sys
from collections.abc import Sequence
from typing import IO, Annotated

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct, to_json
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.formatting.rows import CsvRaw, write_csv, write_table
from watcher.formatting.text import write_json
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import all_changes
from watcher.spark.jobs.settings import HERE

_OUTPUTS = ("table", "json", "csv")
_START = settings.start_option("trim-horizon", text="where to begin")
_NESTED = (ArrayType, MapType, StructType, VariantType)


def query(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    sql: str,
    *,
    output: Annotated[
        str,
        Opt(
            "table (default), json (a line per row) or csv", "FORMAT", alias="-o", choices=_OUTPUTS
        ),
    ] = "table",
    csv_raw: CsvRaw = False,
    start: Annotated[str, _START] = "trim-horizon",
    until: Annotated[
        str | None, Opt("leave out later changes: an age (2h) or a time", "END")
    ] = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    redact: Sequence[str] | None = None,
    redact_file: str | None = None,
    redact_key_file: str | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> int:
    """Runs SQL over the view `changes`, prints its rows to stdout, and returns their number.

    A view with the table's name shows the same rows.

    Raises UsageError for SQL that Spark refuses, and whatever the source raises.
    """
    if output not in _OUTPUTS:
        raise UsageError("give table, json or csv", "output", output)
    redacted = settings.redacted(redact, redact_file, redact_key_file)
    frame = all_changes(
        spark,
        stream,
        connection,
        startingPosition=start,
        endingPosition=until,
        changedAttributes=True,
        failOnDataLoss=fail_on_data_loss,
        **redacted,
    )
    for name in {"changes", *re.findall(r"^[\w-]+$", table_name(stream))}:
        frame.createOrReplaceTempView(f"`{name}`")
    with translating_errors():
        result = spark.sql(sql)
        return _print(result, output, sys.stdout, csv_raw=csv_raw)


def _print(result: DataFrame, output: str, file: IO[str], *, csv_raw: bool) -> int:
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
        return write_csv(file, names, rows, raw=csv_raw)
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
    match value:
        case None:
            return ""
        case str():
            return value
        case bytes() | bytearray():  # as in the JSON
            return base64.b64encode(value).decode()
    return str(value)
