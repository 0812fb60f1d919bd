import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from watcher.aws.model import AfterSequence, AtTime, TrimHorizon
from watcher.errors import UsageError
from watcher.pull.ranges import Range
from watcher.spark import offsets
from watcher.spark.offsets import Offset, ShardOffset

FIXTURES = Path(__file__).parents[1] / "fixtures" / "checkpoints"
OLD, NEW = AfterSequence("9" * 21), AfterSequence("1" + "0" * 21)


def offset(**shards: ShardOffset) -> Offset:
    return Offset("arn", shards)


def test_an_offset_comes_back_from_its_json_the_same() -> None:
    moment = datetime(2026, 11, 21, 8, tzinfo=UTC)
    before = offset(b=ShardOffset(AtTime(moment)), a=ShardOffset(NEW, "p", finished=True))

    text = json.dumps(offsets.to_json(before))

    assert offsets.from_json(json.loads(text)) == before
    assert text.index('"a"') < text.index('"b"'), "Spark compares offsets as text"


def test_a_checkpoint_that_is_stored_somewhere_goes_on() -> None:
    text = (FIXTURES / "spark-offset-3.json").read_text()

    read = offsets.from_json(json.loads(text))

    assert read == Offset(
        "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-24T00:00:00.000",
        {
            "shardId-00000001763942400000-0a1b2c3d": ShardOffset(
                AfterSequence("100000000003498069978"),
                "shardId-00000001763928000000-4e5f6071",
                finished=True,
            ),
            "shardId-00000001763956800000-8293a4b5": ShardOffset(
                TrimHorizon(), "shardId-00000001763942400000-0a1b2c3d"
            ),
            "shardId-00000001763956800001-c6d7e8f9": ShardOffset(
                AtTime(datetime(2026, 11, 24, 8, tzinfo=UTC)),
                since=datetime(2026, 11, 24, 7, tzinfo=UTC),
                unlisted=True,
            ),
        },
        images="json",
    )
    assert json.dumps(offsets.to_json(read, read.images)) == text.strip()


def test_nowhere_is_no_offset() -> None:
    assert offsets.from_json(offsets.INITIAL) is None


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"x": 1}, "not of dynamodb_streams"),
        ({"shards": {"a": {}}, "stream": "s"}, "not of dynamodb_streams"),
        ({"shards": {}, "stream": "s", "version": 99}, "another version"),
    ],
)
def test_another_source_s_or_version_s_offset_is_refused(
    plain: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        offsets.from_json(plain)


def test_ranges_are_what_lies_between() -> None:
    start = offset(
        same=ShardOffset(OLD),
        more=ShardOffset(OLD),
        ends=ShardOffset(OLD),
        over=ShardOffset(OLD, None, True),
    )
    end = offset(
        same=ShardOffset(OLD),
        more=ShardOffset(NEW),
        ends=ShardOffset(OLD, finished=True),
        over=ShardOffset(OLD, None, True),
        child=ShardOffset(NEW, "over"),
    )

    assert offsets.ranges(start, end) == [
        Range("more", OLD, NEW.sequence_number),
        Range("ends", OLD, None),
        Range("child", TrimHorizon(), NEW.sequence_number),
    ]


def test_a_parent_s_range_comes_before_its_child_s_whatever_their_names() -> None:
    start = offset(z=ShardOffset(OLD))
    end = offset(
        a=ShardOffset(NEW, "m"), m=ShardOffset(NEW, "z", finished=True), z=ShardOffset(NEW)
    )

    ranges = offsets.ranges(start, end)

    assert [(each.shard_id, each.topmost) for each in ranges] == [
        ("z", None),
        ("m", "z"),
        ("a", "z"),
    ]


def test_a_finished_shard_that_was_open_goes_on_behind_its_last_record() -> None:
    finished = offset(a=ShardOffset(OLD, finished=True))

    assert offsets.ranges(finished, finished) == []
    assert offsets.ranges(finished, offset(a=ShardOffset(NEW))) == [
        Range("a", OLD, NEW.sequence_number)
    ]
