"""Items as they were, written to a table of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from watcher.errors import UsageError
from watcher.past.sources import Sources
from watcher.record.boto3_shape import wire_item
from watcher.service.tables import BATCH, Description, TablesClient


def copy_to(sources: Sources, target: str, images: Iterable[bytes]) -> int:
    """Write the items to a table, made where there is none; how many they were.

    Raises UsageError for a table with other keys, or with items in it.
    """
    assert sources.stream is not None
    tables, _, source, _ = sources.stream.table
    found = tables.describe(target)
    if found is None:
        tables.create(target, source)
    else:
        _refuse_unfit(tables, target, found, source)
    count = 0
    for batch in _batches(iter(images)):
        tables.write(target, [{"PutRequest": {"Item": wire_item(image)}} for image in batch])
        count += len(batch)
    return count


def _refuse_unfit(tables: TablesClient, name: str, found: Description, source: Description) -> None:
    if found.key_types != source.key_types:
        keys = ", ".join(f"{key} ({kind})" for key, _, kind in source.key_types)
        raise UsageError(f"its keys are others than {keys}", "to_table", name)
    if next(tables.scan(name, 0, 1, limit=1)):
        raise UsageError("it is not empty: choose another, or a new name", "to_table", name)


def _batches(images: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(images, BATCH)):
        yield batch
