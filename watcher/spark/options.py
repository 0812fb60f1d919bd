"""The options of the source: parsed and checked before anything is read."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from watcher.aws.arns import is_stream
from watcher.aws.config import AwsConfig
from watcher.aws.connect import parse_stream_name
from watcher.aws.model import AtTime, Latest, Position
from watcher.errors import UsageError, blame
from watcher.records.redaction import Redaction, redaction
from watcher.streams.start_times import parse_start
from watcher.times import parse_seconds

REMEDY: Final = "; to continue: failOnDataLoss=false"
"""The remedy that a data loss names."""


def _stream(text: str) -> str:
    if "," in text:
        raise UsageError("a read takes one stream: make one for each, and union them", value=text)
    parse_stream_name(text)
    return text


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


class _Option(NamedTuple):
    """How people write an option, whose name Spark hands over in lower case, and its parser."""

    name: str
    parse: Callable[[str], Any]
    only: Literal["", "read", "readStream"] = ""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `format("dynamodb_streams")`."""

    stream: Annotated[str, _Option("stream", _stream)]
    of_table: bool = False
    """True if `stream` names a table: the query then moves on to its next stream."""
    start: Annotated[Position, _Option("startingPosition", _position)]
    """As `--from`; default latest for a stream, trim_horizon for a batch."""
    end: Annotated[datetime | None, _Option("endingPosition", _end, "read")] = None
    """A time or an age; None for everything up to now."""
    max_records: Annotated[int | None, _Option("maxRecordsPerTrigger", _count, "readStream")] = None
    """The most rows of a micro-batch."""
    max_event_time_skew: Annotated[
        float, _Option("maxEventTimeSkew", parse_seconds, "readStream")
    ] = 60.0
    """The most seconds that one shard may be ahead of another."""
    checkpoint: Annotated[str | None, _Option("checkpointLocation", str, "readStream")] = None
    """The query's, for Sparks that do not tell where a micro-batch begins."""
    fail_on_data_loss: Annotated[bool, _Option("failOnDataLoss", _boolean)] = True
    image_format: Annotated[
        Literal["json", "dynamodb-json"], _Option("imageFormat", _one_of("json", "dynamodb-json"))
    ] = "json"
    changed_attributes: Annotated[bool, _Option("changedAttributes", _boolean)] = False
    """One more column, the names of the attributes that differ."""
    columns: Annotated[tuple[str, ...] | None, _Option("columns", _names)] = None
    """Only these, in this order; None for all."""
    items: Annotated[bool, _Option("items", _boolean, "read")] = False
    """The table's present items, instead of changes."""
    segments: Annotated[int | None, _Option("segments", _count, "read")] = None
    """The number of segments, and tasks, of the scan of the items."""
    read_limit: Annotated[int | None, _Option("readLimit", _count, "read")] = None
    """The read units a second of that scan, all tasks together."""
    stop_file: Annotated[str | None, _Option("stopFile", str, "readStream")] = None
    """Once this file exists, no other micro-batch begins."""
    wire_records: Annotated[bool, _Option("wireRecords", _boolean)] = False
    """Only two columns, the shard's id and the record's whole wire JSON."""
    redaction: Redaction | None = None
    """`redact`: what nobody is to see, as `--redact` says it."""
    connection: AwsConfig = AwsConfig()
    """`region`, `profile`, `endpointUrl`."""


_DECLARED: Final[Mapping[str, tuple[str, _Option]]] = {
    option.name: (field, option)
    for field, kind in typing.get_type_hints(SourceOptions, include_extras=True).items()
    for option in getattr(kind, "__metadata__", ())
}
_CONNECTION: Final = ("region", "profile", "endpointUrl")
_KNOWN: Final = {name.lower(): name for name in (*_DECLARED, "redact", *_CONNECTION)}
_OF_ITEMS: Final = ("segments", "readLimit")
_OF_CHANGES: Final = ("startingPosition", "endingPosition", "wireRecords")


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Returns the options of one read. Raises UsageError for an unknown name or a wrong value."""
    values: dict[str, str] = {}
    for name, value in given.items():
        # load("table") is as good as option("stream", "table").
        spelled = "stream" if name.lower() == "path" else _KNOWN.get(name.lower())
        if spelled is None:
            raise UsageError(_unknown(name))
        values[spelled] = value
    if not values.get("stream"):
        raise UsageError('give .option("stream", …): a stream ARN, a table ARN or a table name')
    _refuse_mixed(values)
    values.setdefault("startingPosition", "latest" if streaming else "trim_horizon")
    fields: dict[str, Any] = {"of_table": not is_stream(values["stream"])}
    for name, (field, option) in _DECLARED.items():
        if name in values:
            if option.only == ("read" if streaming else "readStream"):
                raise UsageError(f"{name} is for spark.{option.only}")
            with blame(name):
                fields[field] = option.parse(values[name])
    start, end = fields["start"], fields.get("end")
    if isinstance(start, AtTime) and end is not None and end < start.time:
        raise UsageError(
            "it is before startingPosition", "endingPosition", values["endingPosition"]
        )
    fields["redaction"] = redaction(values.get("redact"))
    region, profile, endpoint_url = map(values.get, _CONNECTION)
    return SourceOptions(connection=AwsConfig(region, profile, endpoint_url), **fields)


def _refuse_mixed(values: Mapping[str, str]) -> None:
    """Raises UsageError for options of changes in a read of items, and the other way round."""
    is_of_items = values.get("items", "").lower() == "true"
    for name in _OF_CHANGES if is_of_items else _OF_ITEMS:
        if name in values:
            raise UsageError(f"{name} is for " + ("changes, not items" if is_of_items else "items"))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), _KNOWN, 1)
    hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"there are {', '.join(_KNOWN.values())}"
    return f"dynamodb_streams has no option {name}: {hint}"
