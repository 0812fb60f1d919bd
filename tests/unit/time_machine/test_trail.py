"""A trail's log files: those of the hours that matter, in a folder or in S3."""

import gzip
import logging
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import boto3
import pytest

from tests.support import trails
from tests.support.hand_clock import HandClock
from tests.support.trails import ACCOUNT, deliver
from tests.unit.time_machine.test_callers import change
from watcher.aws.config import AwsConfig
from watcher.errors import UsageError
from watcher.time_machine.callers import Answer, Callers, Certainty, Trail

SECOND = int(datetime(2026, 11, 22, 2, 31, 40, tzinfo=UTC).timestamp())
MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR


def read(place: str | Path, *seconds: float, later: float = DAY) -> tuple[Callers, Trail]:
    callers = Callers()
    for second in seconds or (SECOND,):
        callers.add_change(change(second))
    clock = HandClock()
    clock.passed = SECOND + later - clock.time()
    trail = Trail(str(place), AwsConfig(), clock=clock)
    trail.read(callers)
    return callers, trail


def answer(place: str | Path, second: float = SECOND, *, later: float = DAY) -> Answer:
    callers, _ = read(place, second, later=later)
    return callers.answer(callers.change_key(change(second)))


def names(trail: Trail) -> list[str]:
    return [os.path.basename(each.location) for each in trail.files]


@pytest.mark.parametrize("organization", ["", "o-exampleorgid"])
def test_only_the_files_of_the_time_are_read(tmp_path: Path, organization: str) -> None:
    minutes = -DAY, -20 * MINUTE, 2 * MINUTE, 14 * MINUTE, 40 * MINUTE, DAY, 31 * DAY
    put = partial(deliver, tmp_path, organization=organization)
    made = [put(SECOND + late, trails.put(SECOND)) for late in minutes]
    put(SECOND + 60, trails.put(SECOND), region="eu-west-1")
    put(SECOND + 60, trails.put(SECOND), account="9" * 12)
    wanted = [each.name for each in made[2:4]]
    parts = ["AWSLogs", organization, ACCOUNT, "CloudTrail", "us-east-1", "2026", "11", "22"]
    for depth in range(len(parts) + 1):
        assert names(read(tmp_path.joinpath(*parts[:depth]))[1]) == wanted
    assert answer(tmp_path).certainty is Certainty.CERTAIN


def test_logs_that_may_still_come_are_waited_for(tmp_path: Path) -> None:
    deliver(tmp_path, SECOND + MINUTE, trails.put(SECOND))
    early = answer(tmp_path, later=14 * MINUTE)
    assert (early.certainty, len(early.callers)) == (Certainty.MAY_BE, 1)
    assert early.reason.startswith(
        "logs come 5 to 15 minutes late: ask again after 2026-11-22T02:46:40"
    )
    assert answer(tmp_path, later=15 * MINUTE).certainty is Certainty.CERTAIN


def test_a_broken_file_is_told_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = deliver(tmp_path, SECOND + MINUTE, trails.put(SECOND))
    cut = deliver(tmp_path, SECOND + MINUTE, trails.put(SECOND))
    cut.write_bytes(cut.read_bytes()[:-20])
    text = deliver(tmp_path, SECOND + MINUTE)
    text.write_bytes(gzip.compress(b'{"Records": [{"eventTime'))
    empty = deliver(tmp_path, SECOND + MINUTE)
    empty.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        _, trail = read(tmp_path)
    assert {each.location for each in trail.broken} == {str(cut), str(text), str(empty)}
    assert "ended before the end-of-stream" in caplog.text
    found = answer(tmp_path)
    assert found.certainty is Certainty.MAY_BE
    assert found.reason.endswith("can't be read")
    assert str(good) not in caplog.text


def test_a_broken_file_of_another_time_takes_no_certainty(tmp_path: Path) -> None:
    deliver(tmp_path, SECOND + MINUTE, trails.put(SECOND))
    deliver(tmp_path, SECOND + 2 * HOUR, trails.put(SECOND + 2 * HOUR))
    broken = deliver(tmp_path, SECOND + 3 * HOUR)
    broken.write_bytes(b"{")
    callers, _ = read(tmp_path, SECOND, SECOND + 2 * HOUR + 40 * MINUTE)
    assert callers.answer(callers.change_key(change(SECOND))).certainty is Certainty.CERTAIN


def test_a_bomb_is_no_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(tmp_path, SECOND + MINUTE).write_bytes(gzip.compress(bytes(1_000_000)))
    monkeypatch.setattr("watcher.time_machine.callers.LOG_BYTES", 100_000)
    _, trail = read(tmp_path)
    assert len(trail.broken) == 1


def test_a_plain_file_and_names_of_ones_own(tmp_path: Path) -> None:
    packed = deliver(tmp_path / "logs", SECOND + MINUTE, trails.put(SECOND))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "events.json").write_bytes(trails.content(trails.put(SECOND)))
    (mine / "notes.txt").write_text("no log")
    assert answer(mine).certainty is Certainty.CERTAIN
    assert names(read(mine)[1]) == ["events.json"]
    (mine / "events.json").unlink()
    two = gzip.compress(b"") + packed.read_bytes()  # members of one gzip file
    (mine / "two.json.gz").write_bytes(two)
    assert answer(mine).certainty is Certainty.CERTAIN


def test_a_bucket_is_read_as_a_folder_is(bucket: str, breaks: list[str], tmp_path: Path) -> None:
    for late in (-DAY, -20 * MINUTE, 2 * MINUTE, 14 * MINUTE, 40 * MINUTE, DAY):
        deliver(tmp_path, SECOND + late, trails.put(SECOND), organization="o-exampleorgid")
    client = boto3.client("s3", region_name="us-east-1")
    for path in tmp_path.rglob("*.gz"):
        key = f"logs/{path.relative_to(tmp_path)}"
        client.put_object(Bucket="trail", Key=key, Body=path.read_bytes())
    expected = names(read(tmp_path)[1])
    assert len(expected) == 2
    for place in ("", "/logs", "/logs/AWSLogs/", f"/logs/AWSLogs/o-exampleorgid/{ACCOUNT}"):
        assert names(read(bucket + place)[1]) == expected
        assert answer(bucket + place).certainty is Certainty.CERTAIN
    breaks += ["timed out"] * 2
    assert answer(bucket).certainty is Certainty.CERTAIN
    breaks += ["timed out"] * 3
    assert answer(bucket).reason.endswith(" can't be read")
    for place in ("s3://nowhere", f"{bucket}/log", str(tmp_path / "nowhere")):
        with pytest.raises(UsageError, match="there is no such folder"):
            read(place)
    client.put_object(Bucket="trail", Key="mine/events.json.gz", Body=b"")
    assert answer(f"{bucket}/mine").reason == "events.json.gz can't be read"
