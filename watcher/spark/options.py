"""The options of the source: parsed and checked before anything is read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from watcher.aws.arns import is_stream
from watcher.aws.config import AwsConfig
from watcher.aws.connect import parse_stream_name
from watcher.aws.discovery import WantedStreams
from watcher.aws.model import AtTime, Latest, Position
from watcher.errors import UsageError, blame
from watcher.records.redaction import Redaction, redaction
from watcher.streams.start_times import parse_start
from watcher.times import parse_seconds

ImageFormat = Literal["json", "dynamodb-json"]

RescuedData = Literal["unfit", "all"]

REMEDY = "; to continue: failOnDataLoss=false"
"""The remedy that a data loss names."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `format("dynamodb_streams")`."""

    stream: str
    of_table: bool = False
    """True if `stream` names a table: the query then moves on to its next stream."""
    start: Position
    """`startingPosition`: as `--from`; default latest for a stream, trim_horizon for a batch."""
    end: datetime | None = None
    """`endingPosition`, only of a batch: a time or an age; None for everything up to now."""
    max_records: int | None = None
    """`maxRecordsPerTrigger`: the most rows of a micro-batch."""
    max_bytes: int | None = None
    """`maxBytesPerTrigger`: a micro-batch ends with the record that reaches it."""
    min_records: int | None = None
    """`minOffsetsPerTrigger`: a micro-batch waits for this number of records, …"""
    max_trigger_delay: float = 900.0
    """… up to `maxTriggerDelay` after the previous one."""
    max_event_time_skew: float = 60.0
    """`maxEventTimeSkew`: the most seconds that one shard may be ahead of another."""
    min_partitions: int | None = None
    """`minPartitions`: the least number of tasks, if there are enough records."""
    checkpoint: str | None = None
    """`checkpointLocation`: the query's, for Sparks that do not tell where a micro-batch begins."""
    fail_on_data_loss: bool = True
    image_format: ImageFormat = "json"
    image_schema: str | None = None
    """`imageSchema`: a DDL string; the images are then structs of these typed attributes."""
    infer_schema: bool = False
    """`inferSchema`: `image_schema` comes from a sample of changes."""
    schema_location: str | None = None
    """`schemaLocation`: the folder that keeps an inferred schema, which only grows."""
    rescued_data: RescuedData = "unfit"
    """`rescuedData`: `all` includes attributes without a column; else only unfit values."""
    changed_attributes: bool = False
    """`changedAttributes`: one more column, the names of the attributes that differ."""
    columns: tuple[str, ...] | None = None
    """`columns`: only these, in this order; None for all."""
    table_names: bool = False
    """True for a column that names the table: where `stream` may be several."""
    snapshot: bool = False
    """`snapshot`: the table's items come first, then the changes since then."""
    wire_records: bool = False
    """`wireRecords`: only two columns, the shard's id and the record's whole wire JSON."""
    redaction: Redaction | None = None
    """`redact`, `redactFile`, `redactKeyFile`: what nobody is to see, as `--redact` says it."""
    connection: AwsConfig = AwsConfig()

    @property
    def is_limited(self) -> bool:
        """True if the driver has to count the records of a micro-batch."""
        return self.max_records is not None or self.max_bytes is not None


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Returns the options of one read. Raises UsageError for an unknown name or a wrong value."""
    known = {name.lower(): name for name in (*_FIELDS, *_REDACT, *_CONNECTION)}
    values: dict[str, str] = {}
    for name, value in given.items():
        # load("table") is as good as option("stream", "table").
        spelled = "stream" if name.lower() == "path" else known.get(name.lower())
        if spelled is None:
            raise UsageError(_unknown(name, known))
        values[spelled] = value
    _refuse_misplaced(values, streaming=streaming)
    values.setdefault("startingPosition", "latest" if streaming else "trim_horizon")
    fields: dict[str, Any] = {
        "table_names": wanted_streams(values["stream"]).are_several,
        "of_table": not is_stream(values["stream"]),
    }
    for name, (field, parsed) in _FIELDS.items():
        if name in values:
            with blame(name):
                fields[field] = parsed(values[name])
    start, end = fields["start"], fields.get("end")
    if isinstance(start, AtTime) and end is not None and end < start.time:
        raise UsageError(
            "it is before startingPosition", "endingPosition", values["endingPosition"]
        )
    if fields.get("infer_schema"):
        fields.setdefault("rescued_data", "all")
    fields["redaction"] = redaction(
        redact=values.get("redact"),
        redact_file=values.get("redactFile"),
        redact_key_file=values.get("redactKeyFile"),
    )
    region, profile, endpoint_url = map(values.get, _CONNECTION)
    return SourceOptions(connection=AwsConfig(region, profile, endpoint_url), **fields)


def _refuse_misplaced(values: Mapping[str, str], *, streaming: bool) -> None:
    if not values.get("stream"):
        raise UsageError('give .option("stream", …): a stream ARN, a table ARN or a table name')
    if streaming and "endingPosition" in values:
        raise UsageError("endingPosition is for spark.read; a stream has no end")
    for name in _STREAMING:
        if not streaming and name in values:
            raise UsageError(f"{name} is for spark.readStream")
    if values.get("snapshot", "").lower() == "true" and "startingPosition" in values:
        raise UsageError("snapshot and startingPosition can't be combined")
    if "schemaLocation" in values and values.get("inferSchema", "").lower() != "true":
        raise UsageError("schemaLocation is for inferSchema=true")


def wanted_streams(text: str) -> WantedStreams:
    """Returns the streams that `option("stream", …)` names, with commas between them.

    Raises UsageError, and StreamError for what can be no stream's name.
    """
    wanted = WantedStreams.parse([each.strip() for each in text.split(",") if each.strip()])
    for name in wanted.names:
        parse_stream_name(name)
    return wanted


def _unknown(name: str, known: Mapping[str, str]) -> str:
    if name.lower() in _OF_TABLES or name.lower().startswith("option."):
        return (
            "CREATE TABLE … USING dynamodb_streams is not possible: use CREATE TEMPORARY VIEW … "
            "USING dynamodb_streams OPTIONS (…)"
        )
    names = [*known] if name.lower() not in _KAFKA else [_KAFKA[name.lower()]]
    near = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
    return f"dynamodb_streams has no option {name}: {hint}"


def _position(text: str) -> Position:
    return parse_start(text, datetime.now(UTC))


def _end(text: str) -> datetime | None:
    match _position(text):
        case AtTime(time):
            return time
        case Latest():
            return None
    raise UsageError("give latest, an age like 2h, or a time", value=repr(text))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError("give a whole number of 1 or more", value=repr(text))
    return int(text)


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) < 1:
        raise UsageError("give a size like 512k, 64m or 1g", value=repr(text))
    return int(found[1]) * int(1024 ** " kmg".index(found[2] or " "))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if "" in names or len(set(names)) < len(names):
        raise UsageError("give names with commas between them, each once", value=repr(text))
    return names


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _one_of(first: str, second: str) -> Callable[[str], str]:
    def parsed(text: str) -> str:
        if text.lower() not in (first, second):
            raise UsageError(f"give {first} or {second}", value=repr(text))
        return text.lower()

    return parsed


_SIZE = re.compile(r"(\d{1,15})([kmg]?)b?", re.ASCII)
# Spark hands option names over in lower case; these are how people write them.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "stream": ("stream", str),
    "startingPosition": ("start", _position),
    "endingPosition": ("end", _end),
    "maxRecordsPerTrigger": ("max_records", _count),
    "maxBytesPerTrigger": ("max_bytes", _bytes),
    "minOffsetsPerTrigger": ("min_records", _count),
    "maxTriggerDelay": ("max_trigger_delay", parse_seconds),
    "maxEventTimeSkew": ("max_event_time_skew", parse_seconds),
    "minPartitions": ("min_partitions", _count),
    "checkpointLocation": ("checkpoint", str),
    "failOnDataLoss": ("fail_on_data_loss", _boolean),
    "imageFormat": ("image_format", _one_of("json", "dynamodb-json")),
    "imageSchema": ("image_schema", lambda text: text or None),
    "inferSchema": ("infer_schema", _boolean),
    "schemaLocation": ("schema_location", str),
    "rescuedData": ("rescued_data", _one_of("unfit", "all")),
    "changedAttributes": ("changed_attributes", _boolean),
    "columns": ("columns", _names),
    "snapshot": ("snapshot", _boolean),
    "wireRecords": ("wire_records", _boolean),
}
_STREAMING: Final = (
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxEventTimeSkew",
    "minPartitions",
    "checkpointLocation",
    "snapshot",
)
# What Spark adds to the options of a table in a catalog.
_OF_TABLES: Final = ("provider", "owner")
# The nearest name would mean the opposite.
_KAFKA: Final = {"maxoffsetspertrigger": "maxrecordspertrigger"}
_REDACT: Final = ("redact", "redactFile", "redactKeyFile")
_CONNECTION: Final = ("region", "profile", "endpointUrl")
