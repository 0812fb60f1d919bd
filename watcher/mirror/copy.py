"""A mirror as `verify` compares it with its table: its rows, at the position of their commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.dataset

from watcher.errors import UsageError
from watcher.mirror.columns import KIND, Item, item_of
from watcher.mirror.open_mirror import found_format, open_mirror
from watcher.records.typed_values import RESCUED, Converter, converter
from watcher.streams import checkpoint_format
from watcher.time_machine.copied_items import Form, parsed_value, plain_value
from watcher.time_machine.copies import CopyPosition

# Rows may have 400 KB, and several times that as objects.
_BATCH: Final = 250
_Cell: TypeAlias = Any
"""A value of a row as pyarrow gives it: its column, which only a schema knows, has its type."""
_JSON_KINDS: Final = ("M", "L", "NS", "BS")


class MirrorCopy:
    """The mirror in a folder, at its newest version. Raises UsageError if there is none."""

    form = Form.JSON
    columns = None

    def __init__(self, folder: str) -> None:
        self._mirror = open_mirror(folder, form=found_format(Path(folder)))
        state = self._mirror.state
        if state is None:
            raise UsageError("it is no mirror", "with_", folder)
        if not state.copied:
            raise UsageError("its copy is not finished: let mirror go on first", "with_", folder)
        if state.redaction:
            text = "its values are redacted: it can't be compared with its table"
            raise UsageError(text, "with_", folder)
        self._history = state.history
        self.label = f"mirror at version {self._mirror.version}"
        self.position = CopyPosition(
            token=checkpoint_format.from_json(state.token),
            stored_at=self._mirror.stored_at,
            copied_at=state.copied_at,
        )
        # The columns whose types a user has chosen.
        self._chosen: dict[str, tuple[pa.DataType, Converter]] = {
            field.name: (field.type, converter(field.type))
            for field in self._mirror.schema
            if KIND not in (field.metadata or {}) and field.name not in _own(self._history)
        }

    def items(self) -> Iterator[Item]:
        """Yields the items of its rows; of a mirror with `--history`, those of valid versions."""
        own = _own(self._history)
        kinds = {
            field.name: (field.metadata or {}).get(KIND, b"").decode()
            for field in self._mirror.schema
            if field.name not in own
        }
        valid = pyarrow.dataset.field("_valid_to").is_null() if self._history else None
        read = self._mirror.rows().to_batches(
            filter=valid, batch_size=_BATCH, batch_readahead=1, fragment_readahead=1
        )
        for batch in read:
            yield from (_item(row, kinds) for row in batch.to_pylist())

    def as_copied(self, image: msgspec.Raw) -> Item:
        """Returns an item as its row has it: without nulls, with the types that a user chose."""
        item = {name: value for name, value in item_of(image).items() if "NULL" not in value}
        for name, (kind, convert) in self._chosen.items():
            if name in item and (found := convert(item[name])) is not None:
                item[name] = _value("", pa.scalar(found, kind).as_py())
        return item


def _item(row: dict[str, Any], kinds: Mapping[str, str]) -> Item:
    item = item_of(row[RESCUED].encode()) if row[RESCUED] else {}
    for name, kind in kinds.items():
        if (value := row[name]) is not None:
            item[name] = _value(kind, value)
    return item


def _own(history: bool) -> tuple[str, ...]:
    versions = ("_valid_from", "_valid_to", "_sequence_number") if history else ()
    return (RESCUED, *versions)


def _value(kind: str, value: _Cell) -> dict[str, Any]:
    # A chosen column of text holds maps and lists as JSON, too.
    if kind in _JSON_KINDS or (not kind and isinstance(value, str) and value[:1] in ("{", "[")):
        return dict(parsed_value(value))
    return {kind: value} if kind in ("SS", "S") else dict(plain_value(value))
