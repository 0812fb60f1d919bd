"""Lines are sorted beyond memory; counts, a day of an archive and event ids are bounded, too."""

import random
from pathlib import Path

import pytest

from tests.support.memory import traced_memory
from watcher.records.record import Record
from watcher.time_machine import sorted_lines
from watcher.time_machine.counts import Counts
from watcher.time_machine.sources import Sources


@pytest.mark.parametrize("memory", [0, 3_000, 10_000_000])
def test_lines_come_sorted_as_often_as_they_are_read(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_lines, "MEMORY_BYTES", memory)
    chance = random.Random(1)
    lines = [b"%d\n" % chance.randint(0, 900) for _ in range(3_000)]
    found = sorted_lines.SortedLines()
    for line in lines:
        found.add(line)
    assert list(found) == list(found) == sorted(lines)


def a_record(number: int) -> Record:
    return Record.from_json(
        b'{"eventID":"%d","eventName":"INSERT","dynamodb":{"SequenceNumber":"%d",'
        b'"Keys":{"pk":{"S":"item-%d"}},"ApproximateCreationDateTime":1800000000}}'
        % (number, number, number // 2)
    )


def test_counts_by_key_are_right_however_few_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_lines, "MEMORY_BYTES", 100_000)
    found = Counts(["key", "minute"], most_in_memory=500)
    with traced_memory() as most:
        found.add(a_record(number) for number in range(20_001))
        assert len(found) == 10_001
        assert most() < 1_000_000
    assert [row.changes for row in found.rows(0)] == [2] * 10_000 + [1]
    assert [row.values[0] for row in found.rows(2)] == ["pk=item-0", "pk=item-1"]


def test_memory_does_not_grow_with_the_records_that_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    with path.open("wb") as file:
        for number in range(60_000):
            file.write(bytes(a_record(number).raw) + b"\n")
        file.write(bytes(a_record(5).raw) + b"\n")
    sources = Sources([str(path)], None)
    sources.open(None)
    with traced_memory() as most:
        assert sum(1 for _ in sources.records()) == 60_000
        assert most() < 8_000_000
