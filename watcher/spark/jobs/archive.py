"""Appends every change to files, by micro-batch and date, each exactly once."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_date

from watcher.aws.config import AwsConfig
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.mirror.columns import Once
from watcher.records.redaction import redaction_text
from watcher.shutdown import Shutdown
from watcher.spark import session
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import JobTotals, changes, new_stop_file, run, trigger
from watcher.spark.jobs.settings import HERE
from watcher.spark.session import JavaObject

logger = logging.getLogger("watcher")

LOCK: Final = ".watcher-lock"
"""A file in an archive on a disk, which the writing job locks."""
LOCK_SECONDS: Final = 15.0
"""The wait for the lock: a killed job's JVM may write for some more seconds."""
_LOCK_POLL_SECONDS: Final = 0.25
_BATCH: Final = "batch="


def archive(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: Annotated[
        str, Opt("the folder to append to: a path, or a URL that Spark can write", "PATH")
    ],
    start: Annotated[str, settings.start_option("trim-horizon")] = "trim-horizon",
    dynamodb_json: Annotated[bool, Opt("images in DynamoDB's JSON, with all types")] = False,
    checkpoint: settings.Checkpoint = None,
    once: Once = False,
    every: settings.EveryTenSeconds = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.STOP_SECONDS,
    redact: Sequence[str] | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Appends every change to the folder `to`, by micro-batch and date (UTC), until stopped.

    The folder holds whole files only, with each change exactly once across crashes. The job resumes
    from the checkpoint (default: `TO.checkpoint`, beside the folder).

    Raises UsageError, and whatever the source raises.
    """
    stop_file, folder = new_stop_file(), ArchiveFolder(spark, to)
    place = checkpoint or folder.checkpoint
    records = changes(
        spark.readStream,
        stream,
        connection,
        startingPosition=start,
        imageFormat="dynamodb-json" if dynamodb_json else None,
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
        stopFile=str(stop_file),
        checkpointLocation=place,
        redact=redaction_text(redact),
    )
    rows = records.withColumn("date", to_date("approximate_creation_time"))
    with translating_errors(), folder.locked():
        folder.refuse_other(place)
        writer = rows.writeStream.foreachBatch(folder.append)
        writer = writer.option("checkpointLocation", place)
        writer = writer.trigger(**trigger(once=once, every=every, default="10s"))
        logger.info(f"Archiving {stream} to {to}")
        stop = Shutdown(stop_timeout)
        return run(writer.start, "archived", stop=stop, stop_file=stop_file, once=once)


class ArchiveFolder:
    """The archive's folder, of any file system that Spark knows: a disk, HDFS, S3.

    Each micro-batch has a folder of its own in it, `batch=000000012`, which Spark's committers
    write. One that was cut off has no `_SUCCESS`, and is written again as a whole.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self._jvm_view = context._jvm
        self._path = self._jvm_view.org.apache.hadoop.fs.Path(path)
        self._settings = context._jsc.hadoopConfiguration()
        self._system = session.file_system(spark, path)
        self.path = path
        whole = self._system.makeQualified(self._path)
        self._disk_path = whole.toUri().getPath() if whole.toUri().getScheme() == "file" else None
        beside = whole.getParent() is not None and not os.path.ismount(self._disk_path or "")
        self.checkpoint = str(whole.toString()).rstrip("/") + (
            ".checkpoint" if beside else "/_checkpoint"
        )
        """The default: beside the folder; inside where it is a whole bucket or disk."""

    def append(self, rows: DataFrame, number: int) -> None:
        """Appends a micro-batch; does nothing for one that is in: Spark repeats the last one."""
        if not self.is_whole(number):
            folder = self._batch(number).toString()
            rows.write.partitionBy("date").mode("overwrite").parquet(folder)

    def is_whole(self, number: int) -> bool:
        """True for a batch that Spark has completed."""
        path = self._jvm_view.org.apache.hadoop.fs.Path(self._batch(number), "_SUCCESS")
        return bool(self._system.exists(path))

    def _batch(self, number: int) -> JavaObject:
        return self._jvm_view.org.apache.hadoop.fs.Path(self._path, f"{_BATCH}{number:09}")

    def refuse_other(self, checkpoint: str) -> None:
        """Raises UsageError for a checkpoint that is another archive's, or an older copy.

        Spark notes each batch there before it runs it. With another one the folder would lack
        changes, or hold them twice.
        """
        offsets = self._jvm_view.org.apache.hadoop.fs.Path(checkpoint, "offsets")
        planned = max(self._numbers(offsets, ""), default=-1)
        newest = max(self.batches(), default=-1)
        if newest not in (planned, planned - 1):
            raise UsageError(
                f"the checkpoint {checkpoint} has {planned + 1} batches, and {self.path} has "
                f"{newest + 1}: give the checkpoint and the folder that belong "
                "together, as of the same time, or choose a new folder"
            )

    def batches(self) -> Iterator[int]:
        """Yields the numbers of the batches in the folder."""
        return self._numbers(self._path, _BATCH)

    def _numbers(self, folder: JavaObject, prefix: str) -> Iterator[int]:
        system = folder.getFileSystem(self._settings)
        if system.exists(folder):
            for each in system.listStatus(folder):
                name = str(each.getPath().getName())
                if name.startswith(prefix) and name.removeprefix(prefix).isdecimal():
                    yield int(name.removeprefix(prefix))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks it against other jobs, if it is on this machine's disks.

        Other file systems have no locks that end with a process. The JVM holds the lock, as it
        writes the files. Raises UsageError if another job has it.
        """
        if self._disk_path is None:
            yield
            return
        java, path = self._jvm_view.java, self._disk_path
        there = java.io.File(path)
        if not there.mkdirs() and not there.isDirectory():
            raise UsageError(
                f"can't make the folder {path}: a file is in its way, or no permission"
            )
        file = java.io.RandomAccessFile(java.io.File(path, LOCK), "rw")
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while not _has_locked(file):
                if time.monotonic() >= deadline:
                    raise UsageError(
                        f"another job is writing to {self.path}: one at a time; "
                        "end that one, or choose another folder"
                    )
                time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            with suppress(Py4JError, OSError):  # a JVM that has ended, and its locks with it
                file.close()


def _has_locked(file: JavaObject) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Exception as error:
        if "OverlappingFileLockException" in str(error):  # a job of this very JVM
            return False
        raise
