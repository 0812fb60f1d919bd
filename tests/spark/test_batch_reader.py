"""Filters that Spark hands down: less is read and made, and the rows are the same."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from tests.simulator import RemoteSimulator
from tests.spark.conftest import options
from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.spark.batch_reader import FilteringReader, PushedFilters, pushed_filters
from watcher.spark.options import parse
from watcher.spark.source import DynamoDBStreams

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Filter:
    """As Spark's are since 4.1."""

    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(Filter): ...


class In(Filter): ...


class GreaterThan(Filter): ...


class LessThanOrEqual(Filter): ...


class StringStartsWith(Filter): ...


@dataclass(frozen=True)
class Not:
    child: Filter


TIME = ("approximate_creation_time",)


def test_what_all_say_together_counts_and_the_rest_is_left_to_spark() -> None:
    found = pushed_filters(
        [
            In(("event_name",), ("INSERT", "REMOVE")),
            EqualTo(("event_name",), "REMOVE"),
            EqualTo(("user_identity", "type"), "Service"),
            StringStartsWith(("shard_id",), "shardId"),
            Not(EqualTo(("table_name",), "orders")),
            GreaterThan(TIME, NOW - 2 * HOUR),
            GreaterThan(TIME, NOW - 3 * HOUR),
            LessThanOrEqual(TIME, NOW - HOUR),
            LessThanOrEqual(TIME, datetime(2020, 1, 1)),  # an instant has a zone
        ]
    )

    assert found == PushedFilters(NOW - 2 * HOUR, NOW - HOUR, {"event_name": frozenset({"REMOVE"})})
    assert not found.allow("event_name", "INSERT") and found.allow("shard_id", "any")


@pytest.mark.parametrize(
    ("asked", "since", "start"),
    [
        ("trim_horizon", NOW - 2 * HOUR, AtTime(NOW - timedelta(minutes=121))),
        ("trim_horizon", NOW + HOUR, AtTime(NOW - timedelta(minutes=1))),
        ("trim_horizon", NOW - 25 * HOUR, TrimHorizon()),
        ("2026-11-21T11:30Z", NOW - 2 * HOUR, AtTime(NOW - HOUR / 2)),
        ("latest", NOW - HOUR, Latest()),
    ],
)
def test_a_time_begins_and_ends_the_reading_near_it(
    asked: str, since: datetime, start: Any
) -> None:
    given = parse({"stream": "orders", "startingPosition": asked}, streaming=False)

    assert PushedFilters(since=since).narrow(given, NOW).start == start
    assert PushedFilters(until=since).narrow(given, NOW).end == since + timedelta(minutes=1)


def test_the_end_of_all_times_is_no_end_of_the_reading() -> None:
    given = parse({"stream": "orders"}, streaming=False)

    assert PushedFilters(until=datetime.max.replace(tzinfo=UTC)).narrow(given, NOW) == given
    assert PushedFilters(since=datetime.min.replace(tzinfo=UTC)).narrow(given, NOW) == given


@pytest.mark.spark
def test_the_rows_are_those_that_spark_would_keep(spark: Any, sim: RemoteSimulator) -> None:
    sim.bulk(120, keys=10, remove_every=5)
    sim.advance(300)
    sim.bulk(60, keys=10, remove_every=3)
    sim.split()
    sim.advance(2)
    frame = spark.read.format("dynamodb_streams").options(**options(sim)).load()
    whole = frame.collect()
    shard, late = whole[0].shard_id, max(row.approximate_creation_time for row in whole)
    conditions = [
        f"shard_id = '{shard}' and event_name in ('INSERT', 'REMOVE')",
        f"approximate_creation_time >= timestamp'{late}' and event_name <> 'REMOVE'",
        f"approximate_creation_time < timestamp'{late}'",
    ]
    for condition in conditions:
        expected = spark.createDataFrame(whole, frame.schema).where(condition).collect()
        found = frame.where(condition)

        assert 0 < len(expected) < len(whole), condition
        assert sorted(found.collect()) == sorted(expected), condition


@pytest.mark.spark
def test_a_session_that_hands_nothing_down_gets_a_reader_that_takes_nothing(spark: Any) -> None:
    """Spark refuses it."""
    plain = DynamoDBStreams({"stream": "orders"})
    schema = StructType.fromDDL(plain.schema())
    assert isinstance(schema, StructType)

    assert not isinstance(plain.reader(schema), FilteringReader)
