"""The lock on a folder, where what holds it has gone."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")

from watcher.spark.lock import only_here


def test_a_jvm_that_has_ended_took_its_lock_along(tmp_path: Path) -> None:
    """A signal to the whole group ends it too, and the job's own end is to be a quiet one."""
    spark = MagicMock()
    file = spark.sparkContext._jvm.java.io.RandomAccessFile.return_value
    file.close.side_effect = ConnectionRefusedError
    with only_here(spark, MagicMock(on_this_machine=str(tmp_path))):
        pass
    file.close.assert_called_once()
