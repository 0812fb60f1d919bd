"""What a consumer missed, had twice or out of order is told from its own list, and nothing else."""

import json
import random
from datetime import UTC, datetime

import pytest

from tests.ledger.ledger import Ledger
from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.time_machine.processed_log import LogCheck, ProcessedLog, check_log


def records(ledger: Ledger) -> list[Record]:
    sources = ledger.sources(strict=False)
    sources.open(None)
    return list(sources.records())


def line(record: Record, form: int) -> bytes:
    return [
        record.sequence_number.encode(),
        f'"{record.wire.eventID}"'.encode(),
        json.dumps({"sequence_number": record.sequence_number}).encode(),
        bytes(record.raw),
    ][form % 4]


def check(ledger: Ledger, lines: list[bytes], start: datetime | None = None) -> LogCheck:
    now = datetime.fromtimestamp(ledger.clock.time(), UTC)
    return check_log(ProcessedLog(lines), records(ledger), start, now)


def test_a_consumer_without_a_fault_has_none_in_any_form() -> None:
    with Ledger(1) as ledger:
        ledger.write(300)
        ledger.settle()
        read = records(ledger)
        lines = [line(record, form) for form, record in enumerate(read)]
        assert check(ledger, lines) == (300, [], 0, check(ledger, lines).since)


def test_seeded_faults_are_found_and_no_other() -> None:
    with Ledger(2) as ledger:
        ledger.write(300)
        ledger.settle()
        read = records(ledger)
        chance = random.Random(3)
        chosen = chance.sample(range(50, 250), 20)
        missed, twice = chosen[:10], chosen[10:]
        lines = [line(each, at) for at, each in enumerate(read) if at not in missed]
        lines += [line(read[at], 0) for at in twice]
        found = check(ledger, [*lines, b"123", b""])
        assert found.changes == 300
        assert found.unknown == 1
        assert {(each.kind, each.change.number) for each in found.faults} == {
            *(("missed", read[at].sequence_number) for at in missed),
            *(("twice", read[at].sequence_number) for at in twice),
        }


def test_a_change_that_came_after_a_later_one_of_its_item_is_out_of_order() -> None:
    with Ledger(3) as ledger:
        for number in range(4):
            ledger.change("a", {"pk": {"S": "a"}, "v": {"N": str(number)}})
            ledger.change("b", {"pk": {"S": "b"}, "v": {"N": str(number)}})
        ledger.settle()
        of_a, of_b = (
            [each for each in records(ledger) if each.key["pk"] == key] for key in ("a", "b")
        )
        order = [of_b[0], of_a[0], of_a[2], of_b[1], of_a[1], of_a[3], of_b[2], of_b[3]]
        (fault,) = check(ledger, [line(each, 0) for each in order]).faults
        assert fault.kind == "out_of_order"
        assert fault.after is not None
        assert [fault.change.number, fault.after.number] == [
            of_a[1].sequence_number,
            of_a[2].sequence_number,
        ]
        assert (fault.change.lines, fault.after.lines) == ([5], [3])


def test_what_was_made_before_the_first_change_of_the_log_is_not_missed() -> None:
    with Ledger(4) as ledger:
        ledger.write(20)
        ledger.clock.sleep(100)
        ledger.write(20)
        ledger.settle()
        read = records(ledger)
        times = [each.created_at for each in read if each.created_at]
        first = min(times)
        late = [
            each
            for each, time in zip(read, times, strict=True)
            if (time - first).total_seconds() > 90
        ]
        lines = [line(each, 0) for each in late]
        assert not check(ledger, lines).faults
        found = check(ledger, lines, first)
        assert len(found.faults) == 20
        assert {each.kind for each in found.faults} == {"missed"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"{", "line 2 is not JSON"), (b'{"x": 1}', "line 2 has neither a sequence_number nor")],
)
def test_a_line_without_an_id_is_named(text: bytes, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        ProcessedLog([b"1", text])
