"""Changes counted by what they have in common."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.simulator import Simulator
from tests.support.program import told
from watcher.errors import UsageError
from watcher.formatting import style
from watcher.records.record import Record
from watcher.time_machine.counts import Counts, dimensions

BEGIN = datetime(2026, 11, 22, 10, 0, 30, tzinfo=UTC)


def change(kind: str, key: str, seconds: float = 0, **images: object) -> Record:
    dynamodb: dict[str, object] = {
        "Keys": {"pk": {"S": key}},
        "SequenceNumber": "1",
        "ApproximateCreationDateTime": (BEGIN + timedelta(seconds=seconds)).timestamp(),
        **images,
    }
    return Record.from_json(json.dumps({"eventName": kind, "dynamodb": dynamodb}).encode())


def rows(by: str, *records: Record, top: int = 0) -> list[tuple[str, ...]]:
    style.set_up(utc=True)
    try:
        made = Counts(dimensions(by)).add(records)
        return [(*row.values, str(row.changes)) for row in made.rows(top)]
    finally:
        style.set_up()


def test_by_a_time_the_order_is_that_of_time_and_the_largest_are_of_each() -> None:
    changes = [change("INSERT", "a", 29), change("INSERT", "b", 30)]
    changes += [change("MODIFY", "b", 31), change("MODIFY", "b", 32)]
    assert rows("kind,minute", *changes, top=1) == [
        ("INSERT", "2026-11-22T10:00:00+00:00", "1"),
        ("MODIFY", "2026-11-22T10:01:00+00:00", "2"),
    ]
    assert [row[0] for row in rows("hour", *changes)] == ["2026-11-22T10:00:00+00:00"]


def test_what_programs_get_has_no_escapes(simulator: Simulator) -> None:
    """Text on a terminal has; a tab in a name is a tab for a program."""
    one = {"N": "1"}
    simulator.put({"pk": {"S": "a\tb"}, "x\ty": one, "a.b": one, "a": {"M": {"b": one}}})
    simulator.advance(60)

    def rows_of(*words: str) -> list[dict[str, object]]:
        return list(json.loads(told(0, *words, "-o", "json").printed))

    assert [row["key"] for row in rows_of("count", "orders", "--by", "key")] == ["pk=a\tb"]
    names = {row["attribute"] for row in rows_of("count", "orders", "--by", "attribute")}
    assert names >= {"x\ty", "a.b", "a"}
    (inserted, *_) = rows_of("history", "orders", "--key", "pk=a\tb")
    assert isinstance(inserted["differences"], list)
    assert {each["attribute"] for each in inserted["differences"]} >= {"`x\ty`", "`a.b`", "a"}


@pytest.mark.parametrize(("by", "says"), [("shape", "there are kind, key"), ("key,key", "once")])
def test_what_can_t_be_counted_by_is_refused(by: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        dimensions(by)


def test_on_the_command_line(simulator: Simulator) -> None:
    simulator.write("a", 3)
    simulator.write("b", 2)
    simulator.remove("b", ttl=True)
    simulator.rotate("all")
    simulator.advance(60)
    counted = told(0, "count", "orders", "--by", "kind").out
    assert [*map(str.split, counted[2:])] == [["MODIFY", "3"], ["INSERT", "2"], ["TTL", "1"]]
    found = json.loads(
        told(0, "count", "orders", "--by", "key", "--only", "modify", "-o", "json").printed
    )
    assert found == [{"key": "pk=a", "changes": 2}, {"key": "pk=b", "changes": 1}]
    assert told(0, "count", "orders", "--until", "30m", "-o", "json").out == ["[]"]
    assert "--key id: no such key attribute" in told(2, "count", "orders", "--key", "id=a").said
