"""Shares what a micro-batch holds among tasks."""

from __future__ import annotations

import math

import msgspec
from pyspark.sql.datasource import InputPartition

from watcher.aws.credentials import Keys
from watcher.spark.offsets import Range
from watcher.spark.read_ahead import SHARD_BYTES, HeldPage

# What a core works on for some 200 ms; a task costs 30. So there are as many as there is work for,
# also where the cluster has grown since the query was made.
_TASK_BYTES = 2 * 1024 * 1024
# Ranges that executors read take as long as their shards: each gets its own task.
_MOST_READING = 256


class HeldRange(msgspec.Struct, frozen=True):
    """A range, and its pages where the driver has read them already."""

    between: Range
    pages: list[HeldPage] | None = None

    @property
    def size(self) -> int:
        """How much there is to do, in bytes of packed pages."""
        # A range whose pages are not at hand may be of any size.
        return SHARD_BYTES if self.pages is None else sum(each.size for each in self.pages)


class TaskPartition(InputPartition):
    """What one task reads: some ranges, each in its order; and the keys to read them with.

    Keys have their place here since Spark writes a partition nowhere: it is no part of an offset,
    a plan or an event, and goes to its executor only. (A reader is part of the task's binary.)
    """

    def __init__(self, arn: str, ranges: list[HeldRange], keys: Keys | None) -> None:
        self.arn = arn
        self.ranges = ranges
        self.keys = keys if any(each.pages is None for each in ranges) else None


def shared(
    ranges: list[HeldRange], parallelism: int, at_least: int | None
) -> list[list[HeldRange]]:
    """The ranges of each task; no task has more pages than Spark lets through.

    With `at_least` (`minPartitions`), what the driver holds of a shard is parted where there are
    fewer ranges than that.
    """
    reading = [each for each in ranges if each.pages is None]
    held = [each for each in ranges if each.pages is not None]
    alone = _packed(reading, _MOST_READING)
    missing = (at_least or 0) - len(alone)
    if len(held) < missing:
        held = [part for each in held for part in _parted(each, math.ceil(missing / len(held)))]
    work = sum(each.size for each in held) // _TASK_BYTES
    return alone + _packed(held, max(parallelism, work, missing))


def _parted(held: HeldRange, count: int) -> list[HeldRange]:
    pages = held.pages or []
    step = math.ceil(len(pages) / count)
    return [HeldRange(held.between, pages[at : at + step]) for at in range(0, len(pages), step)]


def _packed(ranges: list[HeldRange], most: int) -> list[list[HeldRange]]:
    bins: list[tuple[int, list[HeldRange]]] = []
    for each in sorted(ranges, key=lambda each: -each.size):
        smallest = min(range(len(bins)), key=lambda index: bins[index][0], default=-1)
        full = len(bins) >= most and (
            each.pages is None or bins[smallest][0] + each.size <= 2 * SHARD_BYTES
        )
        if full:
            size, inside = bins[smallest]
            inside.append(each)
            bins[smallest] = (size + each.size, inside)
        else:
            bins.append((each.size, [each]))
    return [inside for _, inside in bins]
