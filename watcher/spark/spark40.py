"""The streaming read on Spark 4.0 and 4.1.

These ask a source where a stream ends without telling where it begins, and know no row limits.
Where it begins stands in their own log of offsets, which is read here once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyspark
from pyarrow import fs
from pyspark.sql.datasource import InputPartition

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.spark import offsets
from watcher.spark.offsets import OffsetJson
from watcher.spark.stream_reader import StreamReader

# The first micro-batch ends after so long without news, as a shard is read every second; …
_QUIET_SECONDS: Final = 1.5
_QUIET_POLL_SECONDS: Final = 0.25
# … at the latest after this.
_FIRST_BATCH_SECONDS: Final = 30.0


class Spark40Reader(StreamReader):
    """The streaming read as Spark 4.0 and 4.1 call it."""

    clock: Clock = CLOCK
    _end: OffsetJson | None = None
    _start: OffsetJson = {}  # noqa: RUF012 (it is never changed in place)

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]
        """Returns the end of the next micro-batch.

        The first has records, since `availableNow` makes no second: its end says where it began.
        """
        if self._end is not None:
            self._start, self._end = self._end, self._next(self._end)
            return self._end
        if self._options.checkpoint is None:
            raise UsageError(
                f'Spark {pyspark.__version__} needs .option("checkpointLocation", …) on '
                "readStream, the same as on writeStream (4.2 and newer do not)"
            )
        self._start = stored_offset(self._options.checkpoint, self.reads)
        if self._start:
            self._end = self._first(self._start)
        else:
            initial = self._next(self._start)
            self._end = offsets.with_begun(self._first(initial), initial)
        return self._end

    def _next(self, start: OffsetJson) -> OffsetJson:
        return self._latest(start, self._options.max_records)

    def _first(self, start: OffsetJson) -> OffsetJson:
        """Returns the end of a process's first micro-batch: all that comes until nothing more does.

        It may be the only one.
        """
        began = quiet_since = self.clock.monotonic()
        end = self._next(start)
        while end["stream"] != start["stream"]:  # all of that stream is done: the next one's turn
            start, end = end, self._next(end)
        while True:
            now = self.clock.monotonic()
            if self.awaits_others:
                began = quiet_since = now
            elif now >= min(began + _FIRST_BATCH_SECONDS, quiet_since + _QUIET_SECONDS):
                return end
            self.clock.sleep(_QUIET_POLL_SECONDS)
            grown = self._next(start)
            if grown != end:
                end, quiet_since = grown, now

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Returns the reader's. Raises UsageError where another checkpoint was read."""
        if end == self._end and start != self._start:
            raise UsageError(
                "checkpointLocation is not the query's own: give the same to readStream and "
                "writeStream, and remove the newest file of its folder offsets"
            )
        return super().partitions(start, end)


def stored_offset(checkpoint: str, reads: Callable[[str], bool]) -> OffsetJson:
    """Returns the newest offset in a query's checkpoint; an empty one before the first.

    Of the source that `reads` the offset's stream. Raises UsageError where the folder can't be
    read.
    """
    try:
        system, path = file_system(checkpoint)
        found = system.get_file_info(fs.FileSelector(f"{path}/offsets", allow_not_found=True))
        numbers = [int(each.base_name) for each in found if each.base_name.isdecimal()]
        if not numbers:
            return {}
        with system.open_input_stream(f"{path}/offsets/{max(numbers)}") as stream:
            lines = stream.read().decode().splitlines()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"can't be read: {error}", "checkpointLocation", checkpoint) from error
    # A version, what Spark notes, and then an offset for each source.
    stored = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    mine = [each for each in stored if reads(str(each.get("stream")))]
    if len(mine) > 1:
        raise UsageError(f"Spark {pyspark.__version__} reads a stream once in a query, not twice")
    return mine[0] if mine else {}


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a path as Spark takes it, and the path in it."""
    for theirs, ours in (("s3a://", "s3://"), ("dbfs:/", "/dbfs/"), ("file:/", "/")):
        if path.startswith(theirs):
            path = ours + path.removeprefix(theirs).lstrip("/")
    if "://" not in path:
        path = os.path.abspath(path)
    system, inside = fs.FileSystem.from_uri(path)
    return system, inside.rstrip("/")
