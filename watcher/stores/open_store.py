"""Opens the store that a `--checkpoint` names: a file, DynamoDB, S3, a caller's object."""

from __future__ import annotations

import os
import re
from pathlib import Path

from watcher.aws import lease_table, s3
from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.errors import UsageError
from watcher.stores.custom import CustomStore
from watcher.stores.file import CheckpointFile
from watcher.stores.lease import leased_store
from watcher.stores.protocol import CheckpointStorage, Store

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def open_store(
    checkpoint: str | os.PathLike[str] | CheckpointStorage, connection: AwsConfig, stream: object
) -> Store:
    """Returns the store that a caller means: a path, a URL, or an object. Raises UsageError.

    A shared checkpoint is in the stream's region where nothing else says so.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        return CustomStore(checkpoint)
    text = os.fspath(checkpoint)
    if isinstance(checkpoint, Path) or not (found := _URL.match(text)):
        return CheckpointFile(Path(checkpoint))
    if found[0] in (lease_table.SCHEME, s3.SCHEME):
        region = region_in(stream) if isinstance(stream, str) else None
        return leased_store(text, connection, region)
    told = (
        f"no {found[0]} here: give a file, {lease_table.SCHEME}TABLE/NAME, {s3.SCHEME}BUCKET/KEY, "
        "or an object with load() and save()"
    )
    raise UsageError(told, "checkpoint", text)
