"""The fixtures for handler authors."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

from watcher import Record, lambda_function
from watcher.errors import UsageError
from watcher.records.filters import record_filter
from watcher.testing import WatchedTable, record

pytest_plugins = ["watcher.testing"]


def test_a_record_is_made_of_plain_values() -> None:
    order = {"PK": "user-1", "SK": 7, "total": Decimal("2.5"), "tags": {"a"}, "blob": b"x"}
    made_at = datetime(2026, 11, 21, 8, tzinfo=UTC)
    inserted = record(order, key=("PK", "SK"), created_at=made_at, table="orders")
    assert inserted.event_name == "INSERT"
    assert inserted.key == {"PK": "user-1", "SK": 7}
    assert inserted.new == order
    assert inserted.old is None
    assert inserted.created_at == made_at
    assert inserted.table == "orders"
    assert inserted["dynamodb"]["NewImage"]["blob"] == {"B": b"x"}
    assert Record.from_json(bytes(inserted.raw)) == inserted
    paid = record({"pk": "a", "paid": True}, {"pk": "a", "paid": False})
    assert paid.event_name == "MODIFY"
    assert paid.changes == {"paid": (False, True)}
    assert int(paid.sequence_number) > int(inserted.sequence_number)
    removed = record(old={"pk": "a"}, by_ttl=True)
    assert (removed.event_name, removed.new, removed.old) == ("REMOVE", None, {"pk": "a"})
    assert removed.expired_by_ttl
    assert not paid.expired_by_ttl
    assert record_filter(only="ttl")(removed)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "give the item: record"),
        ({"new": {"id": "a"}}, r"key \['pk'\]: both images need the attributes"),
        ({"new": {"pk": "a"}, "old": {"pk": "b"}}, "both images need the attributes"),
        ({"new": {"pk": "a"}, "by_ttl": True}, "by_ttl: it is for removals"),
    ],
)
def test_a_change_that_dynamodb_does_not_make_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        record(**given)


def test_a_record_of_a_dict_names_what_makes_one() -> None:
    with pytest.raises(TypeError, match=r"make a Record with watcher\.testing\.record"):
        Record({"pk": "a"})  # type: ignore[arg-type]


def test_a_handler_sees_each_change_once_and_in_order(watched_table: WatchedTable) -> None:
    seen: list[tuple[str, Any, Any]] = []

    def handle(record: Record) -> None:
        seen.append((record.event_name, record.old, record.new))

    watched_table.put({"pk": "a", "total": 1})
    watched_table.update({"pk": "a"}, total=Decimal("2.5"))
    assert len(watched_table.run(handle)) == 2
    watched_table.delete({"pk": "a"})
    watched_table.run(handle)
    first, second = {"pk": "a", "total": 1}, {"pk": "a", "total": Decimal("2.5")}
    assert seen == [("INSERT", None, first), ("MODIFY", first, second), ("REMOVE", second, None)]


def test_a_built_in_handler_by_its_file(
    watched_table: WatchedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    watched_table.put({"pk": "a", "total": 250})
    file = Path(__file__).parents[2] / "handlers" / "print_json.py"
    watched_table.run(file)
    assert '"total": {"N": "250"}' in capsys.readouterr().out


def test_a_lambda_function_gets_one_batch(watched_table: WatchedTable) -> None:
    events: list[dict[str, Any]] = []
    watched_table.put({"pk": "a"})
    watched_table.put({"pk": "b"})
    watched_table.run(lambda_function(lambda event, context: events.append(event)))
    (event,) = events
    assert [each["eventSourceARN"] for each in event["Records"]] == [watched_table.stream_arn] * 2


def test_the_handlers_own_calls_reach_the_embedded_service(watched_table: WatchedTable) -> None:
    assert watched_table.name in boto3.client("dynamodb").list_tables()["TableNames"]
