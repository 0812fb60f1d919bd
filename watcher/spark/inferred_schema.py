"""`inferSchema`: the types of images from a sample of a stream's changes, kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import Service, TrimHorizon, WireItem
from watcher.aws.retry import retry_at_start
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError, blame
from watcher.records import page as pages
from watcher.records.redaction import Redaction
from watcher.spark import compat, image_schema
from watcher.spark.options import SourceOptions
from watcher.spark.several_streams import StreamFinder

_SHARDS = 8
"""So many of a stream's newest shards that have records make a sample, …"""
_SHARDS_TRIED = 40
"""… of so many that are looked into."""
_PAGES = 3
"""A closed shard's first pages may be empty."""
_RECORDS = 500
_FILE = "dynamodb-streams-schema.json"

_image = msgspec.json.Decoder(WireItem)

Connect = Callable[[str, AwsConfig], tuple[Service, str]]


def with_schema(
    options: SourceOptions, connect: Connect = connect, clock: Clock = CLOCK
) -> SourceOptions:
    """Returns options whose `image_schema` is inferred, where they ask for that.

    What `schemaLocation` holds comes first, then `imageSchema`; the sample only adds attributes.
    Raises UsageError where there is nothing to infer from, and what reading the sample raises.
    """
    if not options.infer_schema:
        return options
    location = options.schema_location
    kept = None if location is None else _load(location)
    known = kept or StructType()
    if options.image_schema:
        known = image_schema.extended(known, _told(options.image_schema))
    schema = image_schema.grown(known, _sample(options, connect, clock))
    if not len(schema):
        raise UsageError(
            "the stream holds no change to infer a schema from: give imageSchema, or wait for one",
            "inferSchema",
        )
    if location is not None and schema != kept:
        _save(location, schema)
    return msgspec.structs.replace(options, image_schema=image_schema.ddl_of(schema))


def _told(text: str) -> StructType:
    with blame("imageSchema"):
        return image_schema.parsed(text)


def _sample(options: SourceOptions, connect: Connect, clock: Clock) -> Iterator[WireItem]:
    """Yields the images of some changes: the first of each of the newest shards that have any."""
    streams = StreamFinder(options).find() if options.table_names else [options.stream]
    for stream in streams:
        service, arn = connect(stream, options.connection)
        shards = retry_at_start(partial(service.list_shards, arn), clock).shards
        with_records = 0
        for shard in sorted(shards, key=lambda each: each.id, reverse=True)[:_SHARDS_TRIED]:
            found = list(_images(service, arn, shard.id, options.redaction, clock))
            yield from found
            with_records += bool(found)
            if with_records == _SHARDS:
                break


def _images(
    service: Service, arn: str, shard_id: str, redaction: Redaction | None, clock: Clock
) -> Iterator[WireItem]:
    start, _ = retry_at_start(lambda: service.get_iterator(arn, shard_id, TrimHorizon()), clock)
    iterator: str | None = start
    for _ in range(_PAGES):
        if iterator is None:
            return
        body = retry_at_start(partial(service.get_records, iterator, _RECORDS), clock)
        page = pages.decode(body)
        for record in page.Records:
            change = (record if redaction is None else redaction.wire(record)).dynamodb
            yield from (_image.decode(raw) for raw in (change.NewImage, change.OldImage) if raw)
        if page.Records:
            return
        iterator = page.NextShardIterator


def _load(location: str) -> StructType | None:
    """Returns the schema that an earlier start has saved. Raises UsageError."""
    try:
        system, path = compat.file_system(location)
        with system.open_input_stream(f"{path}/{_FILE}") as stream:
            return image_schema.from_text(stream.read().decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, pa.ArrowException, UsageError) as error:
        raise UsageError(f"can't be read: {error}", "schemaLocation", location) from None


def _save(location: str, schema: StructType) -> None:
    """Saves it whole or not at all. Raises UsageError."""
    try:
        system, path = compat.file_system(location)
        system.create_dir(path, recursive=True)
        with system.open_output_stream(f"{path}/.{_FILE}.new") as stream:
            stream.write(image_schema.to_text(schema).encode())
        system.move(f"{path}/.{_FILE}.new", f"{path}/{_FILE}")
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"can't be written: {error}", "schemaLocation", location) from None
