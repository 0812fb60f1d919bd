"""The lock on a folder, where what holds it has gone."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")

from watcher.errors import UsageError
from watcher.spark.lock import only_here


def test_what_can_be_no_folder_is_named(tmp_path: Path) -> None:
    spark = MagicMock()
    place = spark.sparkContext._jvm.java.io.File.return_value
    place.mkdirs.return_value = place.isDirectory.return_value = False
    folder = MagicMock(on_this_machine=str(tmp_path))
    with (
        pytest.raises(UsageError, match=f"can't make the folder {tmp_path}"),
        only_here(spark, folder),
    ):
        raise AssertionError


def test_a_jvm_that_has_ended_took_its_lock_along(tmp_path: Path) -> None:
    """A signal to the whole group ends it too, and the job's own end is to be a quiet one."""
    spark = MagicMock()
    file = spark.sparkContext._jvm.java.io.RandomAccessFile.return_value
    file.close.side_effect = ConnectionRefusedError
    with only_here(spark, MagicMock(on_this_machine=str(tmp_path))):
        pass
    file.close.assert_called_once()
