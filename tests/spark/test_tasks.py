"""How a micro-batch is shared among tasks."""

import msgspec
import pytest

pytest.importorskip("pyspark")

from watcher.aws.model import TrimHorizon
from watcher.pull.ranges import Range
from watcher.spark.buffered_shard import BufferedPage
from watcher.spark.tasks import BufferedRange, share_among_tasks
from watcher.streams.messages import Page


def held(name: str, sizes: list[int]) -> BufferedRange:
    pages = [BufferedPage(Page(0, 1, "1"), 1, TrimHorizon(), 0.0, 0.0, size) for size in sizes]
    return BufferedRange(Range(name, TrimHorizon(), "1"), pages)


def unread(name: str) -> BufferedRange:
    return BufferedRange(Range(name, TrimHorizon()))


def names(tasks: list[list[BufferedRange]]) -> list[list[str]]:
    return [[each.between.shard_id for each in task] for task in tasks]


def test_each_shard_that_executors_read_has_a_task_of_its_own() -> None:
    """However small the cluster was as the query was made."""
    tasks = share_among_tasks([unread(str(n)) for n in range(64)], 2)

    assert len(tasks) == 64


def test_thousands_of_them_share_tasks() -> None:
    tasks = share_among_tasks([unread(str(n)) for n in range(1000)], 2)

    assert len(tasks) == 256
    assert {len(task) for task in tasks} == {3, 4}


def test_small_shards_share_tasks() -> None:
    tasks = share_among_tasks([held(str(n), [1000]) for n in range(10)], 2)

    assert sorted(map(len, tasks)) == [5, 5]


def test_there_are_as_many_tasks_as_there_is_work_for() -> None:
    tasks = share_among_tasks([held(str(n), [1 << 20]) for n in range(32)], 2)

    assert len(tasks) == 16


def test_a_lineage_is_in_one_task_in_its_order() -> None:
    ranges = [unread("parent"), unread("other"), held("child", [1 << 20] * 8), unread("grandchild")]
    for index in (2, 3):
        between = msgspec.structs.replace(ranges[index].between, topmost="parent")
        ranges[index] = msgspec.structs.replace(ranges[index], between=between)

    tasks = names(share_among_tasks(ranges, 4))

    assert sorted(tasks) == [["other"], ["parent", "child", "grandchild"]]
