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


@pytest.mark.parametrize(
    ("ranges", "count", "sizes"),
    [
        # However small the cluster was as the query was made.
        pytest.param([unread(str(n)) for n in range(64)], 64, {1}, id="executors read: its own"),
        pytest.param([unread(str(n)) for n in range(1000)], 256, {3, 4}, id="thousands share"),
        pytest.param([held(str(n), [1000]) for n in range(10)], 2, {5}, id="small ones share"),
        pytest.param([held(str(n), [1 << 20]) for n in range(32)], 16, {2}, id="by their work"),
    ],
)
def test_there_are_as_many_tasks_as_there_is_work_for(
    ranges: list[BufferedRange], count: int, sizes: set[int]
) -> None:
    tasks = share_among_tasks(ranges, 2)

    assert (len(tasks), {len(task) for task in tasks}) == (count, sizes)


def test_a_lineage_is_in_one_task_in_its_order() -> None:
    ranges = [unread("parent"), unread("other"), held("child", [1 << 20] * 8), unread("grandchild")]
    for index in (2, 3):
        between = msgspec.structs.replace(ranges[index].between, topmost="parent")
        ranges[index] = msgspec.structs.replace(ranges[index], between=between)

    tasks = names(share_among_tasks(ranges, 4))

    assert sorted(tasks) == [["other"], ["parent", "child", "grandchild"]]
