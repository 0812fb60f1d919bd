"""What `.option(name, value)` may say: parsed and checked before anything is read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from watcher.errors import UsageError, blame
from watcher.reading.position import parse_start
from watcher.service.connection import Connection
from watcher.service.model import AtTime, Latest, Position

ImageFormat = Literal["json", "dynamodb-json"]

REMEDY = "; to go on: failOnDataLoss=false"
"""What there is to do about data loss."""

# Spark hands option names over in lower case; these are how people write them.
NAMES = (
    "stream",
    "startingPosition",
    "endingPosition",
    "maxRecordsPerTrigger",
    "failOnDataLoss",
    "imageFormat",
    "imageSchema",
    "changedAttributes",
    "wireRecords",
    "region",
    "endpointUrl",
    "profile",
)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `format("dynamodb_streams")`."""

    stream: str
    start: Position
    """`startingPosition`: as `--from`; default latest for a stream, trim_horizon for a batch."""
    end: datetime | None = None
    """`endingPosition`, only of a batch: a time or an age; None for everything up to now."""
    max_records: int | None = None
    """`maxRecordsPerTrigger`: at most so many rows in a micro-batch."""
    fail_on_data_loss: bool = True
    image_format: ImageFormat = "json"
    image_schema: str | None = None
    """`imageSchema`: a DDL string; the images are then structs of these typed attributes."""
    changed_attributes: bool = False
    """`changedAttributes`: one more column, the names of the attributes that differ."""
    wire_records: bool = False
    """`wireRecords`: only two columns, the shard's id and the record's whole wire JSON."""
    connection: Connection = Connection()


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of one read. Raises UsageError for an unknown name or a value it can't be."""
    known = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for name, value in given.items():
        # load("table") is as good as option("stream", "table").
        spelled = "stream" if name.lower() == "path" else known.get(name.lower())
        if spelled is None:
            raise UsageError(_unknown(name))
        values[spelled] = value
    if not values.get("stream"):
        raise UsageError('give .option("stream", …): a stream ARN, a table ARN or a table name')
    if streaming and "endingPosition" in values:
        raise UsageError("endingPosition is for spark.read; a stream has no end")
    if not streaming and "maxRecordsPerTrigger" in values:
        raise UsageError("maxRecordsPerTrigger is for spark.readStream")
    return SourceOptions(
        stream=values["stream"],
        start=_position(
            "startingPosition",
            values.get("startingPosition", "latest" if streaming else "trim_horizon"),
        ),
        end=_end(values.get("endingPosition")),
        max_records=_count("maxRecordsPerTrigger", values.get("maxRecordsPerTrigger")),
        fail_on_data_loss=_yes("failOnDataLoss", values.get("failOnDataLoss", "true")),
        image_format=_image_format(values.get("imageFormat", "json")),
        image_schema=values.get("imageSchema") or None,
        changed_attributes=_yes("changedAttributes", values.get("changedAttributes", "false")),
        wire_records=_yes("wireRecords", values.get("wireRecords", "false")),
        connection=Connection(
            values.get("region"), values.get("profile"), values.get("endpointUrl")
        ),
    )


def _unknown(name: str) -> str:
    lower = {known.lower(): known for known in NAMES}
    near = difflib.get_close_matches(name.lower(), list(lower), 1)
    hint = f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
    return f"dynamodb_streams has no option {name}: {hint}"


def _position(name: str, text: str) -> Position:
    with blame(name):
        return parse_start(text, datetime.now(UTC))


def _end(text: str | None) -> datetime | None:
    if text is None:
        return None
    match _position("endingPosition", text):
        case AtTime(time):
            return time
        case Latest():
            return None
    raise UsageError(f"endingPosition {text!r}: give latest, an age like 2h, or a time")


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f"{name} {text!r}: give a whole number of 1 or more")
    return int(text)


def _yes(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{name} {text!r}: give true or false")
    return text.lower() == "true"


def _image_format(text: str) -> ImageFormat:
    match text.lower():
        case "json":
            return "json"
        case "dynamodb-json":
            return "dynamodb-json"
    raise UsageError(f"imageFormat {text!r}: give json or dynamodb-json")
