"""The lock on a folder, where what holds it has gone."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")

from watcher.errors import UsageError
from watcher.spark.folders import Folder


def on_disk(path: Path) -> tuple[Folder, Any]:
    """A folder, and the JVM's `java.io`."""
    spark = MagicMock()
    jvm = spark.sparkContext._jvm
    uri = jvm.org.apache.hadoop.fs.Path().getFileSystem().makeQualified().toUri()
    uri.getScheme.return_value, uri.getPath.return_value = "file", str(path)
    return Folder(spark, str(path)), jvm.java.io


def test_what_can_be_no_folder_is_named(tmp_path: Path) -> None:
    folder, io = on_disk(tmp_path)
    io.File.return_value.mkdirs.return_value = False
    io.File.return_value.isDirectory.return_value = False
    with (
        pytest.raises(UsageError, match=f"can't make the folder {tmp_path}"),
        folder.locked(),
    ):
        raise AssertionError


def test_a_jvm_that_has_ended_took_its_lock_along(tmp_path: Path) -> None:
    """A signal to the whole group ends it too, and the job's own end is to be a quiet one."""
    folder, io = on_disk(tmp_path)
    file = io.RandomAccessFile.return_value
    file.close.side_effect = ConnectionRefusedError
    with folder.locked():
        pass
    file.close.assert_called_once()
