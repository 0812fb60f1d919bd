"""Loss is never silent: each way to lose records has its warning and its count."""

import json
from pathlib import Path

import pytest

from tests.simulator import Simulator, judge
from tests.support.program import Program, Ran, numbers, run


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint.json")


def losses(program: Program | Ran) -> list[str]:
    return [line for line in program.err if "DATA LOSS:" in line]


def watched_once(sim: Simulator, checkpoint: str) -> None:
    """One run that has read ten records, and saved where it stands."""
    sim.bulk(10)
    first = ("--from", "trim-horizon", "--no-follow", "--checkpoint", checkpoint)
    assert run("orders", "-pj", *first, env=sim.environment).status == 0


def resumed_until(sim: Simulator, checkpoint: str, lines: int) -> Program:
    """A run that is ended once it has printed so much (--no-follow waits for late children)."""
    with Program("orders", "-pj", "--checkpoint", checkpoint, env=sim.environment) as program:
        program.wait_for_lines(lines)
        assert program.end() == 0
    return program


def resumed(sim: Simulator, checkpoint: str, *more: str, stream: str = "orders") -> Ran:
    arguments = (stream, "-pj", "--no-follow", "--checkpoint", checkpoint, *more)
    return run(*arguments, env=sim.environment)


def test_records_trimmed_before_they_were_read(sim: Simulator, checkpoint: str) -> None:
    watched_once(sim, checkpoint)
    last = sim.records[-1].sequence_number
    sim.bulk(20)
    sim.trim(15)
    program = resumed(sim, checkpoint)
    assert program.status == 0
    (line,) = losses(program)
    assert f"shard {sim.shards[0].id} from sequence number {last}" in line
    assert program.err[-1].endswith("1 DATA LOSS")
    assert numbers(program) == [record.sequence_number for record in sim.records[15:]]


def test_a_shard_gone_before_it_was_finished(sim: Simulator, checkpoint: str) -> None:
    watched_once(sim, checkpoint)
    old = sim.shards[0].id
    sim.bulk(5)
    sim.rotate(old)
    sim.drop_shard(old)
    sim.bulk(5)
    program = resumed_until(sim, checkpoint, 5)
    assert any(f"shard {old} " in line for line in losses(program))
    assert numbers(program) == [record.sequence_number for record in sim.records[15:]]


def test_a_checkpoint_older_than_retention(sim: Simulator, checkpoint: str) -> None:
    watched_once(sim, checkpoint)
    saved = json.loads(Path(checkpoint).read_text())
    saved["saved_at"] = "2020-01-01T00:00:00Z"
    Path(checkpoint).write_text(json.dumps(saved))
    program = resumed(sim, checkpoint)
    assert program.status == 0
    assert "the checkpoint is of 2020-01-01T00:00:00+00:00" in losses(program)[0]
    assert "DATA LOSS" in program.err[-1]


def test_a_reenabled_stream_is_gone_on_with_and_the_gap_is_said(sim: Simulator) -> None:
    old = sim.stream_arn
    with Program("orders", "-pj", env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.bulk(10)
        program.wait_for_lines(10)
        sim.disable_stream()
        sim.bulk(3)  # nobody records these
        new = sim.enable_new_stream(shards=2)
        sim.bulk(10)
        program.wait_for_lines(20)
        assert program.end() == 0
    assert not any(judge(sim.records, numbers(program)))
    (line,) = losses(program)
    assert old in line and new in line
    assert program.err[-1].endswith("1 DATA LOSS")


def test_a_stream_named_by_its_arn_ends_with_the_new_ones_name(
    sim: Simulator, checkpoint: str
) -> None:
    old = sim.stream_arn
    sim.bulk(5)
    new = sim.enable_new_stream()
    program = run(old, "-pj", "--from", "trim-horizon", env=sim.environment)
    assert program.status == 0 and len(program.out) == 5
    assert any(f"python -m watcher {new} --from trim-horizon" in line for line in program.err)


def test_a_stream_deleted_while_it_is_watched(sim: Simulator) -> None:
    with Program(sim.stream_arn, "-pj", env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.bulk(5)
        program.wait_for_lines(5)
        sim.delete_stream()
        assert program.wait() == 0
    assert len(losses(program)) == 1
    assert program.err[-1].endswith("1 DATA LOSS")


@pytest.mark.parametrize("command", [["-ps"], ["count"], ["history", "--key", "pk=a"]])
def test_a_start_before_all_there_is_is_said_before_anything_else(
    sim: Simulator, command: list[str]
) -> None:
    sim.write("a")
    more = ["--no-follow"] if command == ["-ps"] else []
    program = run(*command, "orders", "--from", "30h", *more, env=sim.environment)
    assert program.status == 0
    # `history` says first which times it has understood.
    err = [line for line in program.err if not line.startswith("Changes from 20")]
    assert "orders holds changes from 20" in err[0]
    assert [line for line in err[1:] if "holds changes" in line] == []
