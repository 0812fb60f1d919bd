"""Opens the store that a `--checkpoint` names: a file, a DynamoDB table, a caller's object."""

from __future__ import annotations

import os
import re
from pathlib import Path

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.lease_table import SCHEME
from watcher.errors import UsageError
from watcher.stores.custom import CustomStore
from watcher.stores.dynamodb_lease import leased_store
from watcher.stores.file import CheckpointFile
from watcher.stores.protocol import CheckpointStorage, Store

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def open_store(
    checkpoint: str | os.PathLike[str] | CheckpointStorage, connection: AwsConfig, stream: object
) -> Store:
    """Returns the store that a caller means: a path, a URL, or an object. Raises UsageError.

    A table of positions is in the stream's region where nothing else says so.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        return CustomStore(checkpoint)
    text = os.fspath(checkpoint)
    if isinstance(checkpoint, Path) or not (found := _URL.match(text)):
        return CheckpointFile(Path(checkpoint))
    if found[0] == SCHEME:
        region = region_in(stream) if isinstance(stream, str) else None
        return leased_store(text, connection, region)
    told = (
        f"no {found[0]} here: give a file, {SCHEME}TABLE/NAME, or an object with load() and save()"
    )
    raise UsageError(told, "checkpoint", text)
