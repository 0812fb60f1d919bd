"""The lock on a folder, where what holds it has gone."""

import re
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


@pytest.mark.spark
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("s3a://lake/orders", "has no s3a://; give --packages org.apache.hadoop:hadoop-aws:3."),
        ("s3://lake/orders", "Hadoop calls it s3a://"),
        ("gs://lake/orders", "Spark knows no gs://; --packages can bring it"),
    ],
)
def test_a_file_system_that_is_not_there_is_named_with_what_brings_it(
    spark: Any, path: str, text: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        Folder(spark, path)
