"""Tokens, and the file that always holds a whole one."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.times import NOON
from watcher.aws.model import AfterSequence, AtSequence, AtTime, Latest, Shard, TrimHorizon
from watcher.clock import CLOCK
from watcher.errors import UsageError
from watcher.stores.file import CheckpointFile
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token, TokenSegment, TokenShard, TokenSnapshot
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard

NUMBER = "1000000000000000000042"

NOW = CLOCK.now()


def token(number: str = NUMBER) -> Token:
    return Token("arn", ["s"], [TokenShard("s", "after_sequence", number)], NOON)


def test_active_are_the_shards_that_wait_for_no_parent() -> None:
    lineage = Lineage(TrimHorizon())
    lineage.update([Shard("a"), Shard("b", "a"), Shard("c")])
    assert checkpoint_format.make("arn", lineage, NOON).active == ["a", "c"]


def test_no_position_is_stored_as_a_time_that_is_still_to_come() -> None:
    """A single answer's `Date` may be hours ahead: what is written until then would be left out."""
    lineage = Lineage(AtTime(NOON + timedelta(hours=3)))
    lineage.update([Shard("s")])
    (stored,) = checkpoint_format.make("arn", lineage, NOON).shards
    assert stored.time == NOON


def test_a_token_of_bloop_is_read() -> None:
    plain = {
        "stream_arn": "arn",
        "active": ["s"],
        "shards": [
            {"shard_id": "s", "iterator_type": "after_sequence", "sequence_number": NUMBER},
            {"shard_id": "t", "iterator_type": "trim_horizon", "parent": "s"},
            {"shard_id": "u", "iterator_type": "latest"},
            {"shard_id": "v", "something": "else"},
        ],
    }
    assert [
        shard.position
        for shard in checkpoint_format.resume(checkpoint_format.from_json(plain), NOW)
    ] == [AfterSequence(NUMBER), TrimHorizon(), Latest(), TrimHorizon()]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", "{", '{"stream_arn": 1}', b"\xff", "[" * 5000),
        '{"stream_arn":"a","active":[],"shards":[{"shard_id":"s","iterator_type":"x"}]}',
        '{"stream_arn":"a","active":[],"shards":' + "[" * 5000,
        *('{"streams": []}', '{"version": 1, "streams": []}'),
        '{"stream_arn":"a","active":[],"shards":[],"version":0}',
        '{"stream_arn":"a","active":[],"shards":[],"version":"1"}',
    ],
)
def test_what_is_no_token_is_refused(text: str | bytes) -> None:
    with pytest.raises(UsageError, match="not a stream token"):
        checkpoint_format.all_from_json(text)


@pytest.mark.parametrize("number", [None, "", "-1", "1e5", "٣", "x"])
def test_a_position_without_a_proper_number_is_refused(number: str | None) -> None:
    with pytest.raises(UsageError, match="no sequence number"):
        checkpoint_format.resume(Token("arn", [], [TokenShard("s", "after_sequence", number)]), NOW)


# Forms of other versions

FIXTURES = Path(__file__).parents[2] / "fixtures" / "checkpoints"


def named(number: int) -> str:
    return f"shardId-0000000179544958901{number}-5e6f7a8{number}"


def numbered(number: int) -> str:
    return f"490000000001234567890{number}"


@pytest.mark.parametrize("form", ["1", "1-segments"])
def test_a_stored_checkpoint_of_every_version_is_read(form: str) -> None:
    saved_at = datetime.fromisoformat("2026-11-23T18:00:00Z")
    (found,) = checkpoint_format.all_from_json((FIXTURES / f"{form}.json").read_bytes())
    assert found.saved_at == saved_at
    segments = [TokenSegment({"PK": {"S": "order#17"}}), TokenSegment(done=True), TokenSegment()]
    several = TokenSnapshot(items=1200, segments=segments)
    assert found.snapshot == (several if form == "1-segments" else None)
    assert checkpoint_format.resume(found, saved_at) == [
        TrackedShard(named(0), None, AfterSequence(numbered(1))),
        TrackedShard(named(1), named(0), TrimHorizon(), since=saved_at - timedelta(hours=3)),
        TrackedShard(named(2), None, AtSequence(numbered(2))),
        TrackedShard(named(3), None, AtTime(saved_at)),
        TrackedShard(named(4), None, AtTime(saved_at - timedelta(hours=2))),
        TrackedShard(named(5), None, AfterSequence(numbered(3)), ShardStatus.FINISHED),
        TrackedShard(named(6), None, TrimHorizon(), expected=False),
        TrackedShard(named(7), named(6), TrimHorizon()),
    ]


def test_what_is_written_names_its_version() -> None:
    one, two = token("1" * 22), token("2" * 22)
    assert json.loads(checkpoint_format.encode_all([one]))["version"] == 1
    several = json.loads(checkpoint_format.encode_all([one, two]))
    assert several["version"] == 1
    assert [each["version"] for each in several["streams"]] == [1, 1]
    assert checkpoint_format.all_to_dict([one, two]) == several
    assert checkpoint_format.all_from_json(several) == [one, two]
    assert checkpoint_format.all_to_dict([one]) == several["streams"][0]


NEWER = [
    '{"version": 2}',
    '{"version": 2, "streams": []}',
    '{"version": 17, "stream_arn": "arn", "active": [], "shards": {"s": 1}}',
]


@pytest.mark.parametrize("text", NEWER)
def test_a_token_of_a_newer_version_is_refused_with_what_to_do(text: str) -> None:
    version = json.loads(text)["version"]
    for form in (text, text.encode(), json.loads(text)):
        with pytest.raises(UsageError) as told:
            checkpoint_format.all_from_json(form)
        assert str(told.value) == (
            f"the token was written by a newer watcher (version {version}; this one reads up to "
            "1): upgrade this one"
        )


def test_nobody_is_told_to_remove_a_checkpoint_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(NEWER[0])
    with contextlib.closing(CheckpointFile(path)) as file, pytest.raises(UsageError) as told:
        file.load()
    assert str(told.value).startswith(f"checkpoint {path}: it was written by a newer watcher (")
    assert str(told.value).endswith("upgrade this one")


# The file


def test_a_second_program_on_the_same_file_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    first = CheckpointFile(tmp_path / "c.json")
    with pytest.raises(UsageError, match="another watch uses it"):
        CheckpointFile(tmp_path / "c.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "c.json")
    with pytest.raises(UsageError, match="another watch uses it"):
        CheckpointFile(tmp_path / "link.json")
    first.close()
    CheckpointFile(tmp_path / "c.json").close()


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    first = CheckpointFile(tmp_path / "c.json")
    reading, writing = os.pipe()
    ready, says_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.write(says_ready, b"1")
        os.read(reading, 1)  # lives until the test is over
        os._exit(0)
    os.read(ready, 1)
    first.close()
    CheckpointFile(tmp_path / "c.json").close()
    os.close(writing)
    os.waitpid(child, 0)
    for descriptor in (reading, ready, says_ready):
        os.close(descriptor)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "c.json").symlink_to(tmp_path / "real" / "c.json")
    file = CheckpointFile(tmp_path / "c.json")
    file.save([token()])
    assert (tmp_path / "c.json").is_symlink()
    assert (tmp_path / "real" / "c.json").exists()
    file.close()


def test_a_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{")
    file = CheckpointFile(path)
    with pytest.raises(UsageError, match=r"c\.json: can't be read .* remove it"):
        file.load()
    file.close()


def test_a_folder_in_the_place_of_the_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "c.json").mkdir()
    file = CheckpointFile(tmp_path / "c.json")
    with pytest.raises(UsageError, match="Is a directory"):
        file.load()
    with pytest.raises(UsageError, match=r"checkpoint .*/c\.json: can't be used: "):
        file.save([token()])
    file.close()


def test_on_a_full_disk_the_previous_token_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = CheckpointFile(tmp_path / "c.json")
    file.save([token()])
    large = Token("arn", [], [TokenShard(f"s{n}") for n in range(1000)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python does not see that it has written half of a module.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # The kernel's "file too large" comes at the same places as "no space left".
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"checkpoint .*/c\.json: can't be used: "):
            file.save([large])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.load() == [token()]
    file.save([large])
    assert file.load() == [large]
    file.close()


def test_what_is_renamed_into_place_is_on_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        done.append("fsync " + Path(f"/proc/self/fd/{descriptor}").resolve().name)
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        done.append(f"rename to {target.name}")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    file = CheckpointFile(tmp_path / "c.json")
    file.save([token()])
    file.close()
    assert done == ["fsync c.json.new", "rename to c.json", f"fsync {tmp_path.name}"]


@pytest.mark.parametrize(
    "time", ["2026-11-21T12:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59"]
)
def test_a_naive_time_of_saving_is_one_or_refused(time: str) -> None:
    """Without a zone it is in local time; then it is compared with the service's."""
    text = json.dumps({"stream_arn": "arn", "active": [], "shards": [], "saved_at": time})
    with contextlib.suppress(UsageError):
        loaded = checkpoint_format.from_json(text)
        assert loaded.saved_at is not None and loaded.saved_at - NOON is not None
        loaded.shards = [TokenShard("s", "trim_horizon", time=NOON)]
        checkpoint_format.resume(loaded, NOW)
