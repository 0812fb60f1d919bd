"""The simulator behaves as DynamoDB Streams does, seen through a real boto3 client."""

import asyncio
import contextlib
import http.client
import json
import math
import multiprocessing
import random
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    HTTPClientError,
)

from tests.simulator import Faults, Simulator, judge

START = 1_700_000_000.25
HOUR = 3600.0


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """One shard, and a clock that stands still unless advanced."""
    with Simulator(clock=lambda: START) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Any:
    return sim.client()


def iterator(
    sim: Simulator, client: Any, shard: str = "", kind: str = "TRIM_HORIZON", **at: Any
) -> str:
    answer = client.get_shard_iterator(
        StreamArn=sim.stream_arn,
        ShardId=shard or sim.shards[0].id,
        ShardIteratorType=kind,
        **at,
    )
    return str(answer["ShardIterator"])


def read_from(
    sim: Simulator, client: Any, shard: str = "", kind: str = "TRIM_HORIZON", **at: Any
) -> Any:
    return client.get_records(ShardIterator=iterator(sim, client, shard, kind, **at))


def numbers(page: Any) -> list[str]:
    return [record["dynamodb"]["SequenceNumber"] for record in page["Records"]]


def listed(sim: Simulator, client: Any, **options: Any) -> list[Any]:
    answer = client.describe_stream(StreamArn=sim.stream_arn, **options)
    return list(answer["StreamDescription"]["Shards"])


def error_of(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


# Records


def test_an_item_is_inserted_modified_and_removed(sim: Simulator, client: Any) -> None:
    sim.write("a", 2, size=3)
    sim.remove("a")
    first, second, third = read_from(sim, client)["Records"]
    assert [r["eventName"] for r in (first, second, third)] == ["INSERT", "MODIFY", "REMOVE"]
    assert first["dynamodb"] == {
        "ApproximateCreationDateTime": datetime.fromtimestamp(int(START), UTC),
        "Keys": {"pk": {"S": "a"}},
        "NewImage": {"pk": {"S": "a"}, "v": {"N": "1"}, "pad": {"S": "xxx"}},
        "SequenceNumber": sim.records[0].sequence_number,
        "SizeBytes": first["dynamodb"]["SizeBytes"],
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    assert second["dynamodb"]["OldImage"] == first["dynamodb"]["NewImage"]
    assert third["dynamodb"]["OldImage"] == second["dynamodb"]["NewImage"]
    assert "NewImage" not in third["dynamodb"]
    assert first["eventSource"] == "aws:dynamodb" and first["awsRegion"] == "us-east-1"
    assert [record.version for record in sim.records] == [1, 2, 3]


@pytest.mark.parametrize(
    ("view_type", "images"),
    [
        ("KEYS_ONLY", set()),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
    ],
)
def test_a_view_type_decides_which_images_a_record_has(view_type: str, images: set[str]) -> None:
    with Simulator(view_type=view_type) as sim:
        sim.write("a", 2)
        record = read_from(sim, sim.client())["Records"][1]
        assert {"NewImage", "OldImage"} & set(record["dynamodb"]) == images
        assert record["dynamodb"]["StreamViewType"] == view_type


def test_an_item_may_have_any_attributes(sim: Simulator, client: Any) -> None:
    sim.put(
        {"pk": {"S": "a"}, "b": {"B": "AAE="}, "l": {"L": [{"NULL": True}, {"SS": ["é\u001b"]}]}}
    )
    sim.modify("a", {"b": {"BS": ["AA=="]}})
    first, second = (r["dynamodb"]["NewImage"] for r in read_from(sim, client)["Records"])
    assert first["b"] == {"B": b"\x00\x01"}
    assert second == {**first, "b": {"BS": [b"\x00"]}}


def test_items_may_have_a_sort_key_and_keys_of_other_types() -> None:
    with Simulator(key_names=("pk", "sk")) as sim:
        sim.put({"pk": {"N": "1"}, "sk": {"B": "AAE="}, "x": {"BOOL": True}})
        sim.write("a")
        first, second = read_from(sim, sim.client())["Records"]
        assert first["dynamodb"]["Keys"] == {"pk": {"N": "1"}, "sk": {"B": b"\x00\x01"}}
        assert second["dynamodb"]["Keys"] == {"pk": {"S": "a"}, "sk": {"S": "-"}}


def test_an_expired_item_names_the_service_that_removed_it(sim: Simulator, client: Any) -> None:
    sim.write("a")
    sim.remove("a", ttl=True)
    insert, remove = read_from(sim, client)["Records"]
    assert "userIdentity" not in insert
    assert remove["userIdentity"] == {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}


def test_a_wire_record_is_sent_as_it_is(sim: Simulator, client: Any) -> None:
    number = sim.append({"eventName": "INSERT", "dynamodb": {"Keys": {"pk": {"S": "a"}}}, "new": 1})
    page = urllib_call(sim, "GetRecords", {"ShardIterator": iterator(sim, client)})
    (record,) = page["Records"]
    assert record["new"] == 1
    assert record["dynamodb"]["SequenceNumber"] == number


def test_sequence_numbers_grow_as_numbers_and_not_as_text(sim: Simulator) -> None:
    sim.write("a", 1000)
    written = [record.sequence_number for record in sim.records]
    assert sorted(written, key=int) == written and sorted(written) != written
    assert all(21 <= len(number) <= 40 for number in written)


def test_creation_times_have_the_granularity_asked_for() -> None:
    times = {}
    for granularity in (0, 1, 60):
        with Simulator(clock=lambda: START, faults=Faults(granularity=granularity)) as sim:
            sim.write("a")
            (record,) = read_from(sim, sim.client())["Records"]
            times[granularity] = record["dynamodb"]["ApproximateCreationDateTime"].timestamp()
    assert times == {0: START, 1: int(START), 60: int(START) // 60 * 60}


# Pages


def test_a_page_holds_a_thousand_records_or_a_megabyte(sim: Simulator, client: Any) -> None:
    sim.write("a", 1001)
    sim.write("b", 4, size=400_000)  # with both images all but the first have 800 KB
    page, sizes = read_from(sim, client), []
    while page["Records"]:
        sizes.append(len(page["Records"]))
        page = client.get_records(ShardIterator=page["NextShardIterator"])
    assert sizes == [1000, 2, 1, 1, 1]


def test_a_limit_makes_pages_smaller(sim: Simulator, client: Any) -> None:
    sim.write("a", 5)
    it = iterator(sim, client)
    assert len(client.get_records(ShardIterator=it, Limit=2)["Records"]) == 2
    assert error_of(client.get_records, ShardIterator=it, Limit=1001) == "ValidationException"


def test_an_iterator_may_be_used_again(sim: Simulator, client: Any) -> None:
    sim.write("a", 5)
    it = iterator(sim, client)
    first, second = (client.get_records(ShardIterator=it) for _ in range(2))
    assert first["Records"] == second["Records"]
    assert first["NextShardIterator"] != second["NextShardIterator"]


def test_an_open_shard_answers_an_iterator_though_nothing_is_new(
    sim: Simulator, client: Any
) -> None:
    page = read_from(sim, client)
    assert page["Records"] == []
    sim.write("a")
    assert len(client.get_records(ShardIterator=page["NextShardIterator"])["Records"]) == 1


def test_the_last_page_of_a_closed_shard_has_records_and_no_iterator(
    sim: Simulator, client: Any
) -> None:
    sim.write("a", 3)
    sim.rotate()
    page = read_from(sim, client)
    assert len(page["Records"]) == 3 and "NextShardIterator" not in page


def test_the_last_page_of_a_closed_shard_can_be_an_empty_one(sim: Simulator, client: Any) -> None:
    sim.set_faults(last_page_empty=True)
    sim.write("a", 3)
    sim.rotate()
    page = read_from(sim, client)
    last = client.get_records(ShardIterator=page["NextShardIterator"])
    assert last["Records"] == [] and "NextShardIterator" not in last


def test_pages_can_be_empty_though_records_follow(sim: Simulator, client: Any) -> None:
    sim.write("a", 3)
    with sim.faulty(empty_page_rate=1.0):
        page = read_from(sim, client)
    assert page["Records"] == []
    assert len(client.get_records(ShardIterator=page["NextShardIterator"])["Records"]) == 3
    assert sim.injected == {"empty": 1}


def test_short_pages_lose_nothing(sim: Simulator, client: Any) -> None:
    sim.write("a", 200)
    sim.set_faults(short_page_rate=1.0)
    page, got, pages = read_from(sim, client), [], 0
    while page["Records"]:
        got += numbers(page)
        pages += 1
        page = client.get_records(ShardIterator=page["NextShardIterator"])
    assert judge(sim.records, got) == ([], [], [], []) and pages > 1


# CheckpointStorage


def test_positions_at_and_after_a_sequence_number(sim: Simulator, client: Any) -> None:
    written = sim.write("a", 5)
    at = read_from(sim, client, kind="AT_SEQUENCE_NUMBER", SequenceNumber=written[2])
    after = read_from(sim, client, kind="AFTER_SEQUENCE_NUMBER", SequenceNumber=written[2])
    assert numbers(at) == written[2:] and numbers(after) == written[3:]


def test_a_shard_can_be_read_from_its_starting_sequence_number(sim: Simulator, client: Any) -> None:
    written = sim.write("a", 2)
    start = listed(sim, client)[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert numbers(read_from(sim, client, kind=kind, SequenceNumber=start)) == written


def test_latest_is_after_the_newest_record(sim: Simulator, client: Any) -> None:
    sim.write("a", 5)
    it = iterator(sim, client, kind="LATEST")
    written = sim.write("a", 2)
    assert numbers(client.get_records(ShardIterator=it)) == written


def test_latest_on_a_closed_shard_is_its_end(sim: Simulator, client: Any) -> None:
    sim.write("a", 5)
    sim.rotate()
    page = read_from(sim, client, kind="LATEST")
    assert page["Records"] == [] and "NextShardIterator" not in page


def test_a_timestamp_is_compared_with_the_rounded_creation_time(
    sim: Simulator, client: Any
) -> None:
    written = []
    for _ in range(3):
        written += sim.write("a")
        sim.advance(10)
    second = int(START) + 10
    for moment, expected in [
        (second - 5, written[1:]),
        (second, written[1:]),
        (second + 1, written[2:]),
        (second - 48 * HOUR, written),
        (sim.now, []),
    ]:
        assert numbers(read_from(sim, client, kind="AT_TIMESTAMP", Timestamp=moment)) == expected


def test_a_timestamp_in_the_future_or_refused_is_a_validation_error(
    sim: Simulator, client: Any
) -> None:
    asked = {
        "StreamArn": sim.stream_arn,
        "ShardId": sim.shards[0].id,
        "ShardIteratorType": "AT_TIMESTAMP",
    }
    get = client.get_shard_iterator
    assert error_of(get, **asked, Timestamp=START + 5) == "ValidationException"
    assert error_of(get, **asked) == "ValidationException"
    sim.set_faults(at_timestamp=False)
    assert error_of(get, **asked, Timestamp=START - 5) == "ValidationException"


def test_bad_positions_are_refused(sim: Simulator, client: Any) -> None:
    sim.write("a")
    arn, shard, get = sim.stream_arn, sim.shards[0].id, client.get_shard_iterator
    kind = "AFTER_SEQUENCE_NUMBER"
    asked = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": kind}
    assert error_of(get, **asked) == "ValidationException"
    assert error_of(get, **asked, SequenceNumber="9" * 40) == "ValidationException"
    assert error_of(get, **asked, SequenceNumber="x" * 21) == "ValidationException"
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        get(**{**asked, "ShardId": "shardId-" + "0" * 29})
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        get(**{**asked, "StreamArn": arn + "9"})
    assert error_of(client.get_records, ShardIterator="nonsense") == "ValidationException"


def test_an_iterator_expires(sim: Simulator, client: Any) -> None:
    sim.write("a")
    it = iterator(sim, client)
    sim.advance(899)
    assert client.get_records(ShardIterator=it)["Records"]
    sim.advance(2)
    with pytest.raises(client.exceptions.ExpiredIteratorException):
        client.get_records(ShardIterator=it)
    sim.set_faults(iterator_seconds=3)
    it = iterator(sim, client)
    sim.advance(4)
    with pytest.raises(client.exceptions.ExpiredIteratorException):
        client.get_records(ShardIterator=it)


# Shards


def test_a_split_shares_the_keys_among_the_children(sim: Simulator, client: Any) -> None:
    sim.bulk(100, keys=100)
    (parent,) = sim.open_shards
    children = sim.split(into=3)
    assert sim.open_shards == children
    sim.bulk(300, keys=100)
    assert len(numbers(read_from(sim, client, parent))) == 100
    keys = [
        {r["dynamodb"]["Keys"]["pk"]["S"] for r in read_from(sim, client, child)["Records"]}
        for child in children
    ]
    assert all(keys) and sum(map(len, keys)) == len(set().union(*keys)) == 100


def test_listings_show_lineage_and_sequence_ranges(sim: Simulator, client: Any) -> None:
    (last,) = sim.write("a")
    (parent,) = sim.open_shards
    sim.advance(1)
    (child,) = sim.rotate(parent)
    first, second = listed(sim, client)
    assert first["ShardId"] == parent and "ParentShardId" not in first
    assert second["ShardId"] == child and second["ParentShardId"] == parent
    begin, end = first["SequenceNumberRange"].values()
    assert int(begin) < int(last) < int(end)
    assert list(second["SequenceNumberRange"]) == ["StartingSequenceNumber"]
    assert int(end) < int(second["SequenceNumberRange"]["StartingSequenceNumber"])
    prefix, moment, rest = child.split("-")
    assert (prefix, int(moment), len(moment), len(rest)) == (
        "shardId",
        int((START + 1) * 1000),
        20,
        8,
    )


def test_an_ending_sequence_number_can_be_the_last_records(sim: Simulator, client: Any) -> None:
    sim.set_faults(ending_past_last=False)
    (last,) = sim.write("a")
    sim.rotate("all")
    assert listed(sim, client)[0]["SequenceNumberRange"]["EndingSequenceNumber"] == last


def test_listings_come_in_pages() -> None:
    with Simulator(shards=250) as sim:
        client = sim.client()
        first = client.describe_stream(StreamArn=sim.stream_arn)["StreamDescription"]
        assert len(first["Shards"]) == 100 and first["StreamStatus"] == "ENABLED"
        seen, after = first["Shards"], first["LastEvaluatedShardId"]
        sizes = []
        while after:
            page = client.describe_stream(
                StreamArn=sim.stream_arn, ExclusiveStartShardId=after, Limit=80
            )["StreamDescription"]
            seen, after = seen + page["Shards"], page.get("LastEvaluatedShardId")
            sizes.append(len(page["Shards"]))
        assert sizes == [80, 70]
        assert {s["ShardId"] for s in seen} == {s.id for s in sim.shards}
        sim.set_faults(describe_page=2)
        assert len(listed(sim, client)) == 2


def test_the_child_filter_is_honoured_or_ignored(sim: Simulator, client: Any) -> None:
    (parent,) = sim.open_shards
    children = sim.split()
    sim.rotate("all")
    wanted = {"ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": parent}}
    assert {shard["ShardId"] for shard in listed(sim, client, **wanted)} == set(children)
    sim.set_faults(child_filter=False)
    assert len(listed(sim, client, **wanted)) == 5


def test_a_lagging_listing_misses_a_child_and_shows_its_parent_open(
    sim: Simulator, client: Any
) -> None:
    sim.set_faults(listing_lag=5, closing_lag=10)
    (parent,) = sim.open_shards
    (child,) = sim.rotate()
    seen = []
    for _ in range(3):
        seen.append(
            [(s["ShardId"], len(s["SequenceNumberRange"]) == 1) for s in listed(sim, client)]
        )
        sim.advance(5)
    assert [dict(shards) for shards in seen] == [
        {parent: True},
        {parent: True, child: True},
        {parent: False, child: True},
    ]


def test_a_parent_can_look_open_for_ever() -> None:
    with Simulator.spawn(faults=Faults(closing_lag=math.inf)) as sim:
        sim.rotate()
        ranges = [s["SequenceNumberRange"] for s in listed(sim, sim.client())]  # type: ignore[arg-type]
        assert [list(numbers) for numbers in ranges] == [["StartingSequenceNumber"]] * 2


def test_a_child_can_be_listed_before_its_parent(sim: Simulator, client: Any) -> None:
    sim.set_faults(listing_lag=5, children_first=True)
    (root,) = sim.open_shards
    sim.rotate()
    (grandchild,) = sim.rotate()
    assert {shard["ShardId"] for shard in listed(sim, client)} == {root, grandchild}
    sim.advance(5)
    assert len(listed(sim, client)) == 3


def test_each_shard_can_lag_by_its_own_share() -> None:
    with Simulator(clock=lambda: START, shards=20) as sim:
        sim.set_faults(listing_lag=10, lag_jitter=True)
        sim.rotate("all")
        sim.advance(5)
        assert 20 < len(listed(sim, sim.client())) < 40


# Loss


def test_trimmed_records_cannot_be_read(sim: Simulator, client: Any) -> None:
    written = sim.write("a", 5)
    it = iterator(sim, client)
    assert sim.trim(2) == 2
    with pytest.raises(client.exceptions.TrimmedDataAccessException):
        client.get_records(ShardIterator=it)
    with pytest.raises(client.exceptions.TrimmedDataAccessException):
        iterator(sim, client, kind="AFTER_SEQUENCE_NUMBER", SequenceNumber=written[1])
    assert numbers(read_from(sim, client)) == written[2:]
    assert len(sim.records) == 5 and sim.shards[0].records == 3


def test_a_shard_can_be_trimmed_alone_and_dropped(sim: Simulator, client: Any) -> None:
    (parent,) = sim.open_shards
    sim.write("a", 2)
    it = iterator(sim, client)
    (child,) = sim.rotate()
    sim.write("a", 2)
    assert sim.trim(shard_id=parent) == 2 and len(listed(sim, client)) == 2
    sim.drop_shard(parent)
    assert [shard["ShardId"] for shard in listed(sim, client)] == [child]
    for use in (
        lambda: iterator(sim, client, parent),
        lambda: client.get_records(ShardIterator=it),
    ):
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            use()
    assert len(numbers(read_from(sim, client, child))) == 2


def test_trimming_everything_leaves_the_open_shards(sim: Simulator, client: Any) -> None:
    sim.write("a", 2)
    (child,) = sim.rotate()
    sim.write("a", 2)
    assert sim.trim() == 4
    assert [shard["ShardId"] for shard in listed(sim, client)] == [child]
    assert read_from(sim, client, child)["Records"] == []


def test_records_and_shards_age_out_of_retention(sim: Simulator, client: Any) -> None:
    (parent,) = sim.open_shards
    sim.write("a", 2)
    sim.rotate()
    sim.advance(23 * HOUR)
    (newest,) = sim.write("a")
    assert len(numbers(read_from(sim, client, parent))) == 2
    sim.advance(2 * HOUR)
    assert len(listed(sim, client)) == 1
    assert numbers(read_from(sim, client, sim.open_shards[0])) == [newest]


# Streams and tables


def test_a_disabled_stream_stays_readable_for_a_day(sim: Simulator, client: Any) -> None:
    sim.write("a", 2)
    sim.disable_stream()
    assert sim.write("a") == [""]
    status = client.describe_stream(StreamArn=sim.stream_arn)["StreamDescription"]["StreamStatus"]
    assert status == "DISABLED"
    page = read_from(sim, client)
    assert len(page["Records"]) == 2 and "NextShardIterator" not in page
    sim.advance(25 * HOUR)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.describe_stream(StreamArn=sim.stream_arn)


def test_a_deleted_stream_is_not_found(sim: Simulator, client: Any) -> None:
    arn, it = sim.stream_arn, iterator(sim, client)
    sim.delete_stream()
    for call, asked in (
        (client.describe_stream, {"StreamArn": arn}),
        (client.get_records, {"ShardIterator": it}),
    ):
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            call(**asked)
    assert client.list_streams()["Streams"] == []
    table = sim.client("dynamodb").describe_table(TableName="orders")["Table"]
    assert "LatestStreamArn" not in table


def test_a_table_names_its_latest_stream(sim: Simulator, client: Any) -> None:
    tables, old = sim.client("dynamodb"), sim.stream_arn
    sim.write("a")
    for name in ("orders", sim.table_arn):
        assert tables.describe_table(TableName=name)["Table"]["LatestStreamArn"] == old
    new = sim.enable_new_stream(shards=2)
    assert new == sim.stream_arn != old
    assert tables.describe_table(TableName="orders")["Table"]["LatestStreamArn"] == new
    assert [s["StreamArn"] for s in client.list_streams(TableName="orders")["Streams"]] == [
        old,
        new,
    ]
    sim.write("a")
    assert [record.version for record in sim.records] == [1, 2]
    assert len(sim.shards) == 2
    with pytest.raises(tables.exceptions.ResourceNotFoundException):
        tables.describe_table(TableName="unknown")


def test_listed_streams_come_in_pages(sim: Simulator, client: Any) -> None:
    arns = {sim.stream_arn} | {sim.add_table(f"table{n}") for n in range(4)}
    assert sim.add_table("bare", shards=0) is None
    sim.set_faults(list_page=2)
    seen: set[str] = set()
    more: dict[str, str] = {}
    while True:
        page = client.list_streams(**more)
        seen |= {stream["StreamArn"] for stream in page["Streams"]}
        if "LastEvaluatedStreamArn" not in page:
            break
        more = {"ExclusiveStartStreamArn": page["LastEvaluatedStreamArn"]}
    assert seen == arns and sim.calls["ListStreams"] == 3


# Faults


def test_throttling_is_one_of_three_errors(sim: Simulator, client: Any) -> None:
    sim.set_faults(throttle_rate=1.0)
    codes = {error_of(client.describe_stream, StreamArn=sim.stream_arn) for _ in range(30)}
    assert codes == {
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
    }
    with pytest.raises(client.exceptions.LimitExceededException):
        sim.fail_next("GetRecords", "LimitExceededException")
        client.get_records(ShardIterator="any")


def test_server_errors_have_a_5xx_status_and_not_always_json(sim: Simulator, client: Any) -> None:
    sim.set_faults(error_rate=1.0)
    seen = set()
    for _ in range(30):
        with pytest.raises(ClientError) as caught:
            client.list_streams()
        answer = caught.value.response
        seen.add((answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]))
    assert seen == {("InternalServerError", 500), ("ServiceUnavailable", 503), ("503", 503)}


@pytest.mark.parametrize("trouble", ["reset", "reset-midway"])
def test_a_reset_connection_is_an_error(sim: Simulator, client: Any, trouble: str) -> None:
    sim.write("a", 1000)
    it = iterator(sim, client)
    sim.fail_next("GetRecords", trouble)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        client.get_records(ShardIterator=it)
    assert sim.injected == {trouble: 1}
    assert len(client.get_records(ShardIterator=it)["Records"]) == 1000


@pytest.mark.parametrize("trouble", ["truncate", "invalid-json"])
def test_botocore_takes_a_cut_answer_for_one_without_records_and_iterator(
    sim: Simulator, client: Any, trouble: str
) -> None:
    # botocore turns off urllib3's check of the length and swallows the JSON error, so that this
    # looks just like the end of a shard. Whoever reads through it loses the rest of the shard.
    sim.write("a", 1000)
    it = iterator(sim, client)
    sim.fail_next("GetRecords", trouble)
    page = client.get_records(ShardIterator=it)
    assert "Records" not in page and "NextShardIterator" not in page
    with pytest.raises((http.client.IncompleteRead, json.JSONDecodeError)):
        sim.fail_next("GetRecords", trouble)
        urllib_call(sim, "GetRecords", {"ShardIterator": it})


def test_a_reset_is_seen_as_a_reset(sim: Simulator) -> None:
    sim.fail_next("ListStreams", "reset")
    with raw_connection(sim) as connection:
        connection.sendall(raw_request("ListStreams", b"{}"))
        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_rates_hit_their_share_of_the_calls_named(sim: Simulator, client: Any) -> None:
    sim.set_faults(throttle_rate=0.5, operations=("ListStreams",))
    failed = 0
    for _ in range(100):
        client.describe_stream(StreamArn=sim.stream_arn)
        try:
            client.list_streams()
        except ClientError:
            failed += 1
    assert 30 < failed < 70 and sum(sim.injected.values()) == failed


def test_a_planned_failure_can_be_meant_for_one_shard() -> None:
    with Simulator(shards=2) as sim:
        client = sim.client()
        first, second = sim.open_shards
        sim.fail_next("GetRecords", "TrimmedDataAccessException", times=2, shard_id=second)
        read_from(sim, client, first)
        for _ in range(2):
            with pytest.raises(client.exceptions.TrimmedDataAccessException):
                read_from(sim, client, second)
        read_from(sim, client, second)
        assert sim.reads == {first: 1, second: 3}


def test_a_hanging_request_is_in_flight(sim: Simulator) -> None:
    sim.set_faults(hang_rate=1.0)
    with raw_connection(sim) as connection:
        connection.sendall(raw_request("ListStreams", b"{}"))
        sim.wait_for(lambda: sim.in_flight == 1)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    sim.wait_for(lambda: sim.in_flight == 0)


def test_a_late_answer_is_whole(sim: Simulator, client: Any) -> None:
    sim.set_faults(latency=0.03, latency_jitter=0.01)
    before = datetime.now()
    assert client.list_streams()["Streams"]
    assert (datetime.now() - before).total_seconds() >= 0.03


def test_a_shard_can_be_read_only_so_often(sim: Simulator, client: Any) -> None:
    sim.set_faults(shard_reads_per_second=5, describes_per_second=2, lists_per_second=1)
    it = iterator(sim, client)
    for _ in range(5):
        client.get_records(ShardIterator=it)
    assert error_of(client.get_records, ShardIterator=it) == "ThrottlingException"
    sim.advance(0.25)
    client.get_records(ShardIterator=it)
    client.list_streams()
    assert error_of(client.list_streams) == "ThrottlingException"
    assert [len(listed(sim, client)) for _ in range(2)] == [1, 1]
    assert error_of(client.describe_stream, StreamArn=sim.stream_arn) == "ThrottlingException"


def test_access_can_be_denied_and_tokens_expire(sim: Simulator, client: Any) -> None:
    for code in ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"):
        sim.set_faults(auth_error=code)
        assert error_of(client.list_streams) == code
    sim.set_faults(auth_error="AccessDeniedException", auth_operations=("DescribeStream",))
    client.list_streams()
    assert error_of(client.describe_stream, StreamArn=sim.stream_arn) == "AccessDeniedException"
    sim.set_faults(auth_error="", expired_access_keys=("test",))
    assert error_of(client.list_streams) == "ExpiredTokenException"
    assert sim.client(access_key="fresh").list_streams()["Streams"]


# Sockets and control


def test_requests_arrive_in_pieces_and_in_a_row(sim: Simulator) -> None:
    with raw_connection(sim) as connection:
        request = raw_request("ListStreams", b"{}")
        connection.sendall(request[:30])
        connection.sendall(request[30:] + request)
        answers = b""
        while answers.count(b"StreamArn") < 2:
            answers += connection.recv(4096)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert b"\r\nDate: " in answers and b"\r\nx-amzn-RequestId: " in answers


def test_unsigned_unknown_and_broken_requests_are_refused(sim: Simulator) -> None:
    for request, code in (
        (raw_request("ListStreams", b"{}", signed=False), b"#MissingAuthenticationToken"),
        (raw_request("Nonsense", b"{}"), b"#UnknownOperationException"),
        (raw_request("ListStreams", b"{"), b"#SerializationException"),
        (b"GET / HTTP/1.1\r\n\r\n", b"healthy"),
    ):
        with raw_connection(sim) as connection:
            connection.sendall(request)
            assert code in connection.recv(4096)


def test_a_checksum_is_sent_when_asked_for(sim: Simulator, client: Any) -> None:
    sim.set_faults(crc32=True)
    assert "x-amz-crc32" in client.list_streams()["ResponseMetadata"]["HTTPHeaders"]


def test_a_stopped_simulator_refuses_connections() -> None:
    with Simulator() as sim:
        client = sim.client()
        client.list_streams()
    with pytest.raises((EndpointConnectionError, ConnectionClosedError)):
        client.list_streams()
    with pytest.raises(EndpointConnectionError):
        client.list_streams()


def test_a_stopped_simulator_leaves_no_connection_that_it_was_accepting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a test may come as others connect; what is left open would fail a later one."""
    asked, told = threading.Event(), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def clock() -> float:
        if not told.is_set() and threading.current_thread().name == "simulator":
            loops.append(asyncio.get_running_loop())
            asked.set()
            told.wait()
        return START

    with Simulator(clock=clock) as sim, contextlib.ExitStack() as stack:
        connection = stack.enter_context(raw_connection(sim))
        connection.sendall(raw_request("ListStreams", b"{}"))
        asked.wait()
        waiting = [stack.enter_context(raw_connection(sim)) for _ in range(3)]
        tell = loops[0].call_soon_threadsafe

        def tell_and_go_on(what: Callable[[], object]) -> None:
            tell(what)
            told.set()

        monkeypatch.setattr(loops[0], "call_soon_threadsafe", tell_and_go_on)
        sim.stop()
        for each in waiting:
            with pytest.raises(ConnectionResetError):
                each.recv(1)


def test_forked_children_keep_no_connection_up() -> None:
    parent_end, child_end = multiprocessing.Pipe()
    with Simulator() as sim, Simulator.spawn() as other, raw_connection(sim) as connection:
        child = multiprocessing.get_context("fork").Process(target=child_end.recv)
        child.start()
        sim.fail_next("ListStreams", "reset")
        connection.sendall(raw_request("ListStreams", b"{}"))
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
        other.stop()
        sim.stop()
        with pytest.raises(ConnectionRefusedError):
            raw_connection(sim)
        assert child.is_alive()
        parent_end.send(None)
        child.join()


def test_a_spawned_simulator_is_controlled_like_one_in_a_thread() -> None:
    with Simulator.spawn(shards=2, seed=7, faults=Faults(iterator_seconds=3)) as sim:
        client = sim.client()
        sim.write("a", 3, remove_every=3)
        sim.bulk(5000, keys=10)
        sim.split()
        sim.rotate("all")
        assert [r.version for r in sim.records if r.key == "a"] == [1, 2, 3]
        assert len(sim.records) == 5003 and len(sim.open_shards) == 3
        client.list_streams()
        assert sim.calls == {"ListStreams": 1} and sim.log[0].operation == "ListStreams"
        assert sim.faults.iterator_seconds == 3
        sim.wait_for_calls("ListStreams", 0)
        with pytest.raises(ValueError, match="no item nobody"):
            sim.remove("nobody")


def test_a_spawned_simulator_writes_its_port_file(tmp_path: Any) -> None:
    port_file = tmp_path / "port"
    command = [sys.executable, "-m", "tests.simulator", "--port-file", str(port_file), "--guarded"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    endpoint = process.stdout.readline().strip()
    assert urllib.request.urlopen(endpoint).read() == b"healthy: simulator"
    process.communicate()
    assert endpoint.endswith(":" + port_file.read_text())


def test_the_same_seed_makes_the_same_history() -> None:
    def history() -> list[Any]:
        with Simulator(clock=lambda: START, seed=3, shards=3) as sim:
            for _ in range(5):
                sim.bulk(50)
                sim.split()
            return [*sim.records, *sim.shards]

    assert history() == history()


def test_a_random_history_reads_whole_and_in_order_along_its_lineage(sim: Simulator) -> None:
    rng, client = random.Random(1), sim.client()
    sim.set_faults(short_page_rate=0.5, empty_page_rate=0.3)
    for _ in range(30):
        sim.bulk(rng.randint(0, 60), keys=17, remove_every=5)
        if rng.random() < 0.6:
            sim.split(into=rng.choice((1, 2, 3)))
    sim.disable_stream()  # so that every shard has an end
    delivered: list[str] = []
    for shard in sim.shards:  # parents come before their children
        page = read_from(sim, client, shard.id)
        delivered += numbers(page)
        while "NextShardIterator" in page:
            page = client.get_records(ShardIterator=page["NextShardIterator"])
            delivered += numbers(page)
    assert judge(sim.records, delivered) == ([], [], [], [])


def test_the_verdict_names_what_broke() -> None:
    with Simulator() as sim:
        a1, a2, a3 = sim.write("a", 3)
        (b1,) = sim.write("b")
        assert judge(sim.records, [a2, b1, a1, a2, "9"]) == ([a3], [a2], [a1], ["9"])


def test_writers_and_readers_do_not_disturb_each_other() -> None:
    with Simulator(shards=4) as sim:
        writer = threading.Thread(target=sim.bulk, args=(20_000,))
        writer.start()
        client, delivered = sim.client(), []
        for shard in sim.open_shards:
            page = read_from(sim, client, shard)
            while writer.is_alive() or page["Records"]:
                delivered += numbers(page)
                page = client.get_records(ShardIterator=page["NextShardIterator"])
        assert judge(sim.records, delivered) == ([], [], [], [])


def raw_connection(sim: Simulator) -> socket.socket:
    port = int(sim.endpoint.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def raw_request(operation: str, body: bytes, signed: bool = True) -> bytes:
    head = f"POST / HTTP/1.1\r\nx-amz-target: DynamoDBStreams_20120810.{operation}\r\n"
    if signed:
        head += "Authorization: AWS4-HMAC-SHA256 Credential=test/x\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def urllib_call(sim: Simulator, operation: str, parameters: dict[str, Any]) -> Any:
    headers = {
        "X-Amz-Target": "DynamoDBStreams_20120810." + operation,
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/x",
    }
    request = urllib.request.Request(sim.endpoint, json.dumps(parameters).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
