"""Opens a mirror by its path and format."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final, Literal, TypeAlias

from watcher.errors import UsageError
from watcher.mirror.folder import Folder
from watcher.mirror.table import LIMITS, MirrorLimits, MirrorTable
from watcher.version import install

Format: TypeAlias = Literal["delta", "iceberg"]

CATALOG: Final = "catalog.db"
"""The SQLite file in the folder of an Iceberg mirror that has no other catalog."""
_DELTA_LOG: Final = "_delta_log"
_NAME: Final = "default"


def open_mirror(
    to: str,
    limits: MirrorLimits = LIMITS,
    *,
    form: Format = "delta",
    catalog: str | None = None,
) -> MirrorTable:
    """Returns the mirror at a path, whether it exists already or not. Raises UsageError.

    With a catalog of PyIceberg's configuration, `to` is a table's name there.
    """
    if form == "delta":
        if catalog is not None:
            raise UsageError("it takes --format iceberg", "catalog")
        if Path(to, CATALOG).exists():
            raise UsageError(f"{to} has an Iceberg table: give --format iceberg, or another folder")
        if importlib.util.find_spec("deltalake") is None:
            raise UsageError(f"a Delta table takes delta-rs: {install('mirror')}", "format")
        from watcher.mirror.delta_table import DeltaMirror

        return DeltaMirror(to, Folder.at(to), limits)
    if Path(to, _DELTA_LOG).exists():
        raise UsageError(f"{to} has a Delta table: give another folder, or --format delta")
    return _iceberg(to, limits, catalog)


def found_format(path: Path) -> Format:
    """Returns the format of the mirror in a folder."""
    return "iceberg" if (path / CATALOG).exists() else "delta"


def _iceberg(to: str, limits: MirrorLimits, catalog: str | None) -> MirrorTable:
    if importlib.util.find_spec("pyiceberg") is None:
        raise UsageError(f"an Iceberg table takes PyIceberg: {install('iceberg')}", "format")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    from watcher.mirror.iceberg_table import IcebergMirror

    if catalog is not None:
        *namespace, name = to.split(".")
        if not namespace:
            raise UsageError(f"{to!r} is no table of a catalog: give NAMESPACE.TABLE", "to")
        try:
            found = load_catalog(catalog)
        except ValueError as error:
            raise UsageError(str(error), "catalog", catalog) from None
        return IcebergMirror(to, found, (*namespace, name), limits=limits)
    if "://" in to:
        raise UsageError(f"an Iceberg table in {to} takes a --catalog that knows the place", "to")
    folder = Path(to).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder / CATALOG}"
    made = SqlCatalog(_NAME, uri=uri, warehouse=str(folder.parent))
    return IcebergMirror(to, made, (_NAME, folder.name), location=str(folder), limits=limits)
