"""The simulator behaves as Amazon's own DynamoDB Streams does; and its judge finds what broke."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simulator import Simulator, judge
from tests.support.dynamodb_local import DynamoDBLocal

START = 1_700_000_000.25
HOUR = 3600.0


class _Table:
    """A table `shop` and its stream, on the simulator or on DynamoDB Local."""

    arn: str
    tables: Any
    streams: Any

    def put(self, *names: str, **attributes: Any) -> None:
        for name in names:
            item = {"PK": {"S": "a"}, "SK": {"S": name}, **attributes}
            self.tables.put_item(TableName="shop", Item=item)

    def delete(self, name: str) -> None:
        self.tables.delete_item(TableName="shop", Key={"PK": {"S": "a"}, "SK": {"S": name}})

    @property
    def shards(self) -> list[Any]:
        described = self.streams.describe_stream(StreamArn=self.arn)["StreamDescription"]
        return list(described["Shards"])

    def iterator(self, kind: str = "TRIM_HORIZON", shard: int = 0, **at: Any) -> str:
        answer = self.streams.get_shard_iterator(
            StreamArn=self.arn, ShardId=self.shards[shard]["ShardId"], ShardIteratorType=kind, **at
        )
        return str(answer["ShardIterator"])

    def page(self, kind: str = "TRIM_HORIZON", shard: int = 0, **at: Any) -> Any:
        return self.streams.get_records(ShardIterator=self.iterator(kind, shard, **at))

    def after(self, page: Any) -> Any:
        return self.streams.get_records(ShardIterator=page["NextShardIterator"])


class Simulated(_Table):
    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.arn = simulator.stream_arn
        self.tables, self.streams = simulator.client("dynamodb"), simulator.client()

    def rotate(self) -> None:
        self._simulator.advance(1)  # shards are listed by their ids, which begin with the time
        self._simulator.rotate("all")

    def age(self, hours: float) -> None:
        self._simulator.advance(hours * HOUR)

    def stream_of(self, view_type: str) -> str:
        self.arn = self._simulator.enable_new_stream(view_type=view_type)
        return self.arn

    def enable_new_stream(self) -> None:
        self._simulator.enable_new_stream()

    def disable_stream(self) -> None:
        self._simulator.disable_stream()


class Local(_Table):
    def __init__(self, server: DynamoDBLocal) -> None:
        self._server = server
        self.arn = server.create_table("shop")
        self.tables, self.streams = server.client(), server.client("dynamodbstreams")

    def rotate(self) -> None:
        self._server.rollover()

    def age(self, hours: float) -> None:
        self._server.dilate_time(hours)

    def stream_of(self, view_type: str) -> str:
        self.tables.delete_table(TableName="shop")
        self.arn = self._server.create_table("shop", view_type)
        return self.arn

    def enable_new_stream(self) -> None:
        self.disable_stream()
        new = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
        self.tables.update_table(TableName="shop", StreamSpecification=new)

    def disable_stream(self) -> None:
        off = {"StreamEnabled": False}
        self.tables.update_table(TableName="shop", StreamSpecification=off)


Service = Simulated | Local


@pytest.fixture(params=["simulator", "dynamodb-local"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    if request.param == "dynamodb-local":
        yield Local(request.getfixturevalue("fresh_dynamodb_local"))
        return
    with Simulator(table="shop", key_names=("PK", "SK"), clock=lambda: START) as simulator:
        yield Simulated(simulator)


def names(page: Any) -> list[str]:
    return [record["dynamodb"]["Keys"]["SK"]["S"] for record in page["Records"]]


def numbers(page: Any) -> list[str]:
    return [record["dynamodb"]["SequenceNumber"] for record in page["Records"]]


def error_of(call: Callable[..., object], *words: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(*words, **parameters)
    return str(caught.value.response["Error"]["Code"])


def test_an_item_is_inserted_modified_and_removed(service: Service) -> None:
    many: dict[str, Any] = {
        "b": {"B": b"\x00\x01"},
        "l": {"L": [{"NULL": True}, {"SS": ["\u00e9\u001b"]}]},
        "m": {"M": {"x": {"BOOL": True}, "n": {"N": "-1.5"}}},
    }
    service.put("1", **many)
    service.put("1", **many)  # the same: no change
    service.put("1", v={"N": "2"})
    service.delete("1")
    service.delete("1")
    first, second, third = service.page()["Records"]
    assert [r["eventName"] for r in (first, second, third)] == ["INSERT", "MODIFY", "REMOVE"]
    key = {"PK": {"S": "a"}, "SK": {"S": "1"}}
    assert first["dynamodb"]["Keys"] == key
    assert first["dynamodb"]["NewImage"] == {**key, **many}
    assert "OldImage" not in first["dynamodb"] and "NewImage" not in third["dynamodb"]
    assert second["dynamodb"]["OldImage"] == first["dynamodb"]["NewImage"]
    assert third["dynamodb"]["OldImage"] == second["dynamodb"]["NewImage"]
    assert first["dynamodb"]["ApproximateCreationDateTime"].microsecond == 0
    assert first["dynamodb"]["SizeBytes"] > 0
    assert first["eventSource"] == "aws:dynamodb" and "userIdentity" not in first


@pytest.mark.parametrize(
    ("view_type", "images"),
    [
        ("KEYS_ONLY", set()),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
    ],
)
def test_a_view_type_decides_which_images_a_record_has(
    service: Service, view_type: str, images: set[str]
) -> None:
    arn = service.stream_of(view_type)
    described = service.streams.describe_stream(StreamArn=arn)["StreamDescription"]
    assert described["StreamViewType"] == view_type
    service.put("1", v={"N": "1"})
    service.put("1", v={"N": "2"})
    (*_, record) = service.page()["Records"]
    assert {"NewImage", "OldImage"} & set(record["dynamodb"]) == images
    assert record["dynamodb"]["StreamViewType"] == view_type


def test_a_page_has_a_limit_and_an_iterator_may_be_used_again(service: Service) -> None:
    service.put("1", "2", "3")
    iterator = service.iterator()
    for _ in range(2):
        page = service.streams.get_records(ShardIterator=iterator, Limit=2)
        assert names(page) == ["1", "2"]
    assert names(service.after(page)) == ["3"]
    wrong = error_of(service.streams.get_records, ShardIterator=iterator, Limit=1001)
    assert wrong == "ValidationException"


def test_rotations_make_generations(service: Service) -> None:
    """A closed shard's last records come without a NextShardIterator."""
    for name in "123":
        service.put(name)
        if name != "3":
            service.rotate()
    first, second, third = service.shards
    assert "ParentShardId" not in first
    assert second["ParentShardId"] == first["ShardId"]
    assert third["ParentShardId"] == second["ShardId"]
    ends = [shard["SequenceNumberRange"].get("EndingSequenceNumber") for shard in service.shards]
    assert [end is None for end in ends] == [False, False, True]
    assert int(numbers(service.page())[0]) <= int(ends[0])
    for number, name in enumerate("123"):
        page = service.page(shard=number)
        assert names(page) == [name]
        assert ("NextShardIterator" in page) == (name == "3")
    closed = service.page("LATEST")
    assert names(closed) == [] and "NextShardIterator" not in closed


def test_positions_at_and_after_a_sequence_number_and_behind_the_newest(service: Service) -> None:
    service.put("1", "2", "3")
    second = numbers(service.page())[1]
    assert names(service.page("AT_SEQUENCE_NUMBER", SequenceNumber=second)) == ["2", "3"]
    assert names(service.page("AFTER_SEQUENCE_NUMBER", SequenceNumber=second)) == ["3"]
    latest = service.page("LATEST")
    service.put("4")
    assert names(latest) == [] and names(service.after(latest)) == ["4"]


def test_bad_positions_are_refused(service: Service) -> None:
    service.put("1")
    asked = {
        "StreamArn": service.arn,
        "ShardId": service.shards[0]["ShardId"],
        "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
    }
    get = service.streams.get_shard_iterator
    assert error_of(get, **asked) == "ValidationException"
    at = {"SequenceNumber": numbers(service.page())[0]}
    unknown = "shardId-" + "0" * 20 + "-00000000"
    assert error_of(get, **{**asked, "ShardId": unknown}, **at) == "ResourceNotFoundException"
    broken = error_of(service.streams.get_records, ShardIterator="nonsense")
    assert broken == "ValidationException"
    with pytest.raises(service.tables.exceptions.ResourceNotFoundException):
        service.tables.describe_table(TableName="unknown")


def test_an_iterator_expires(service: Service) -> None:
    service.put("1")
    iterator = service.iterator()
    assert names(service.streams.get_records(ShardIterator=iterator)) == ["1"]
    service.age(1)
    read = service.streams.get_records
    assert error_of(read, ShardIterator=iterator) == "ExpiredIteratorException"
    assert names(service.page()) == ["1"]


def test_a_day_trims_records_and_shards(service: Service) -> None:
    service.put("1")
    old = service.shards[0]["ShardId"]
    service.rotate()
    service.put("2")
    service.age(25)
    service.put("3")

    def read() -> None:
        asked = {"StreamArn": service.arn, "ShardId": old, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = service.streams.get_shard_iterator(**asked)["ShardIterator"]
        service.streams.get_records(ShardIterator=iterator)

    assert error_of(read) == "ResourceNotFoundException"
    assert names(service.page(shard=-1)) == ["3"]


def test_a_disabled_stream_is_readable_and_a_new_one_is_the_tables(service: Service) -> None:
    service.put("1")
    service.disable_stream()
    service.put("2")
    described = service.streams.describe_stream(StreamArn=service.arn)["StreamDescription"]
    assert described["StreamStatus"] == "DISABLED"
    page = service.page()
    assert names(page) == ["1"] and "NextShardIterator" not in page


def test_a_table_names_its_newest_stream(service: Service) -> None:
    listed = service.streams.list_streams(TableName="shop")["Streams"]
    assert [each["StreamArn"] for each in listed] == [service.arn]
    service.enable_new_stream()
    table = service.tables.describe_table(TableName="shop")["Table"]
    assert table["LatestStreamArn"] != service.arn
    listed = service.streams.list_streams(TableName="shop")["Streams"]
    assert {each["StreamArn"] for each in listed} == {service.arn, table["LatestStreamArn"]}


def test_the_verdict_names_what_broke() -> None:
    with Simulator() as sim:
        a1, a2, a3 = sim.write("a", 3)
        (b1,) = sim.write("b")
        assert judge(sim.records, [a2, b1, a1, a2, "9"]) == ([a3], [a2], [a1], ["9"])
