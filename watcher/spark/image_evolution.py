"""Whether what a query makes of images goes on from what it has made: a schema can only grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from watcher.errors import UsageError
from watcher.spark.options import SourceOptions

Shape: TypeAlias = Any
"""A struct's fields by name, a list around what an array or map holds, or a type's name."""


def images_of(options: SourceOptions, schema: StructType) -> Shape | None:
    """What a query makes of images; None where it makes nothing of them."""
    images = [field.dataType for field in schema if field.name in ("new_image", "old_image")]
    if not images:
        return None
    return shape_of(images[0]) if options.image_schema else options.image_format


def shape_of(kind: DataType) -> Shape:
    """A type as plain JSON values, as an offset keeps it."""
    match kind:
        case StructType():
            return {field.name: shape_of(field.dataType) for field in kind}
        case ArrayType():
            return [shape_of(kind.elementType)]
        case MapType():
            return ["map", shape_of(kind.valueType)]
    return kind.simpleString()


def refuse_changed(before: Shape, now: Shape) -> None:
    """Not on the same checkpoint: who reads what was written would find it out.

    `before` is None where an earlier version has not noted it, `now` where there are no images.
    Raises UsageError.
    """
    if before is None or now is None or before == now:
        return
    what = _difference(before, now, "")
    if what is not None:
        raise UsageError(
            f"imageSchema or imageFormat has changed since the checkpoint was begun: {what}. It "
            "can only grow by attributes: change it back, or begin with another checkpoint"
        )


def _difference(before: Shape, now: Shape, place: str) -> str | None:
    """The first one that is no growth, in words."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name, kind in before.items():
            inside = f"{place}.{name}" if place else name
            if name not in now:
                return f"{inside} is gone"
            if found := _difference(kind, now[name], inside):
                return found
        return None
    if isinstance(before, list) and isinstance(now, list) and before[:-1] == now[:-1]:
        return _difference(before[-1], now[-1], place)
    if before == now:
        return None
    return f"{place or 'an image'} was {_text(before)}, and is {_text(now)}"


def _text(shape: Shape) -> str:
    match shape:
        case dict():
            return "a struct"
        case ["map", inside]:
            return f"a map of {_text(inside)}"
        case [inside]:
            return f"an array of {_text(inside)}"
    return str(shape)
