"""What an undo writes down, and which changes of the stream are told to be its writes."""

from datetime import UTC, datetime
from pathlib import Path

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.aws.tables import Description
from watcher.time_machine.item_keys import identity
from watcher.time_machine.undo_log import LoggedWrites, RunHeader, UndoLog, save_plan
from watcher.time_machine.undo_plan import UndoStep

KEY = b'{"pk":{"S":"a"}}'
GOOD, BAD = b'{"pk":{"S":"a"},"v":{"N":"1"}}', b'{"pk":{"S":"a"},"v":{"N":"2"}}'
TABLE = Description([], [], 0, datetime.fromtimestamp(0, UTC), "arn now")


def write(path: Path, old: bytes, new: bytes) -> None:
    save_plan(path, RunHeader(TABLE.arn, TABLE.identity, NOON), [])
    log = UndoLog(path, TABLE, HandClock())
    (number,) = log.log_writes([(UndoStep(KEY, new, old, old), old)])
    log.log_result(number, True, None)
    log.close()


def test_of_equal_changes_in_one_minute_those_in_the_logs_order_are_the_undos(
    tmp_path: Path,
) -> None:
    """As DynamoDB Local stamps them: bad, undone, taken back, and good again by somebody else."""
    write(tmp_path / "undo.jsonl", BAD, GOOD)
    write(tmp_path / "undo.back.jsonl", GOOD, BAD)
    writes = LoggedWrites([tmp_path / "undo.jsonl", tmp_path / "undo.back.jsonl"], TABLE.identity)
    item = identity(KEY)
    assert [
        writes.claim(item, old, new, NOON)
        for old, new in ((GOOD, BAD), (BAD, GOOD), (GOOD, BAD), (BAD, GOOD))
    ] == [False, True, True, False]
