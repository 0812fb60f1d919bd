"""Opens a mirror where it is: in a folder."""

from __future__ import annotations

import pyarrow.fs

from watcher.mirror.delta_table import DeltaMirror
from watcher.mirror.folder import Folder
from watcher.mirror.table import LIMITS, MirrorLimits, MirrorTable


def open_mirror(to: str, limits: MirrorLimits = LIMITS) -> MirrorTable:
    """Returns the mirror at a path, whether it exists already or not. Raises UsageError."""
    return DeltaMirror(to, Folder(pyarrow.fs.LocalFileSystem(), to), limits)
