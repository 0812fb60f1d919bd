import copy
import json
import pickle
from datetime import datetime
from typing import Any

import msgspec
import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser

from tests.support.memory import traced_memory
from watcher import ABSENT, Record
from watcher.records.record import creation_time

WIRE: dict[str, Any] = {
    "eventID": "1a2b",
    "eventName": "MODIFY",
    "eventVersion": "1.1",
    "eventSource": "aws:dynamodb",
    "awsRegion": "eu-west-1",
    "dynamodb": {
        "ApproximateCreationDateTime": 1653658557.0,
        "Keys": {"PK": {"S": "test"}, "SK": {"N": "1"}},
        "NewImage": {
            "PK": {"S": "test"},
            "SK": {"N": "1"},
            "text": {"S": "Grüße 🎈"},
            "number": {"N": "12345678901234567890123456789012345678"},
            "bytes": {"B": "AAEC/w=="},
            "strings": {"SS": ["a", "b"]},
            "numbers": {"NS": ["1", "2.5"]},
            "binaries": {"BS": ["AA==", "AQ=="]},
            "map": {"M": {"deep": {"L": [{"N": "1"}, {"B": "AA=="}, {"M": {"B": {"S": "x"}}}]}}},
            "nothing": {"NULL": True},
            "flag": {"BOOL": False},
        },
        "OldImage": {"PK": {"S": "test"}, "SK": {"N": "1"}, "gone": {"S": "old"}},
        "SequenceNumber": "111111111111111111111",
        "SizeBytes": 59,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    },
}


def record(**changes: Any) -> Record:
    wire = copy.deepcopy(WIRE)
    wire["dynamodb"].update(changes.pop("dynamodb", {}))
    for name in changes.pop("without", ()):
        del wire["dynamodb"][name]
    return Record.from_json(msgspec.json.encode({**wire, **changes}), "shard-1")


def as_boto3(wire: dict[str, Any]) -> dict[str, Any]:
    """What botocore itself makes of the record."""
    model = ServiceModel(Loader().load_service_model("dynamodbstreams", "service-2"))
    shape = model.operation_model("GetRecords").output_shape
    assert shape is not None
    body = json.dumps({"Records": [wire]}).encode()
    answer = create_parser("json").parse({"body": body, "headers": {}, "status_code": 200}, shape)
    parsed: dict[str, Any] = answer["Records"][0]
    return parsed


def test_a_record_equals_the_dict_that_boto3_gives() -> None:
    assert record() == as_boto3(WIRE)
    assert as_boto3(WIRE) == record()


@pytest.mark.parametrize("name", [*WIRE, *WIRE["dynamodb"]])
@pytest.mark.parametrize("looked_at", [(), ("eventName",), ("dynamodb", "awsRegion", "NewImage")])
def test_each_field_is_there_for_every_way_of_looking(name: str, looked_at: list[str]) -> None:
    wire = as_boto3(WIRE)
    inner = name not in WIRE
    expected = (wire["dynamodb"] if inner else wire)[name]

    def fresh() -> dict[str, Any]:
        made = record()
        for each in looked_at:
            assert made[each] if each in WIRE else made["dynamodb"][each]
        return made["dynamodb"] if inner else made

    assert fresh()[name] == expected
    assert fresh().get(name) == expected
    assert name in fresh()
    assert fresh().pop(name) == expected
    assert fresh().setdefault(name, "other") == expected
    assert {**fresh()}[name] == expected
    assert dict(**fresh())[name] == expected
    assert (fresh() | {})[name] == expected
    assert ({} | fresh())[name] == expected
    assert copy.copy(fresh())[name] == expected
    assert copy.deepcopy(fresh())[name] == expected
    assert name in json.loads(json.dumps(fresh(), default=str))
    assert list(fresh()) == list(wire["dynamodb"] if inner else WIRE)
    match fresh():
        case {"eventSource": "aws:dynamodb"} | {"SizeBytes": 59}:
            pass
        case other:
            pytest.fail(f"no match in {other}")
    changed = fresh()
    changed[name] = "mine"
    changed["more"] = 1
    assert dict(changed) == {**fresh(), name: "mine", "more": 1}
    del changed[name]
    assert name not in changed
    assert changed.get(name) is None
    with pytest.raises(KeyError):
        changed[name]


def test_a_record_without_a_kind_is_whole() -> None:
    wire = {name: value for name, value in WIRE.items() if name != "eventName"}
    made = Record.from_json(msgspec.json.encode(wire), "shard-1")
    assert json.loads(json.dumps(made, default=str)).keys() == wire.keys()
    assert "eventName" not in made
    assert made == as_boto3(wire)


def test_what_is_not_there_is_missing_as_in_a_dict() -> None:
    made = record(without=["NewImage", "OldImage"])
    assert isinstance(made, dict) and isinstance(made["dynamodb"], dict)
    for missing, of in (("userIdentity", made), ("_wire", made), ("NewImage", made["dynamodb"])):
        assert missing not in of and missing not in list(of)
        assert of.get(missing) is None and of.get(missing, 1) == 1
        with pytest.raises(KeyError):
            of[missing]
    change = made["dynamodb"]
    change["NewImage"] = "mine"
    assert dict(change)["NewImage"] == "mine"
    change.clear()
    assert change == {} and "Keys" not in change


def test_the_time_is_aware_and_what_botocore_gives() -> None:
    created = record()["dynamodb"]["ApproximateCreationDateTime"]
    assert isinstance(created, datetime)
    assert created == as_boto3(WIRE)["dynamodb"]["ApproximateCreationDateTime"]
    assert created.utcoffset() is not None
    assert record().created_at == created


def test_an_image_of_all_types_is_what_boto3s_deserializer_makes_of_it() -> None:
    deserialize = TypeDeserializer().deserialize
    image = as_boto3(WIRE)["dynamodb"]["NewImage"]
    assert record().new == {name: deserialize(value) for name, value in image.items()}


def test_changes_name_each_attribute_that_differs_with_both_values() -> None:
    made = record(
        dynamodb={
            "OldImage": {"a": {"S": "1"}, "b": {"N": "1.0"}, "c": {"S": "x"}},
            "NewImage": {"a": {"S": "2"}, "b": {"N": "1"}, "d": {"NULL": True}},
        }
    )
    assert made.changes == {"a": ("1", "2"), "d": (ABSENT, None), "c": ("x", ABSENT)}


@pytest.mark.parametrize("without", [["OldImage"], ["NewImage"], ["OldImage", "NewImage"]])
def test_changes_are_empty_where_the_view_type_cannot_tell(without: list[str]) -> None:
    made = record(without=without)
    assert made.changes == {}
    assert made.images_missing


@pytest.mark.parametrize(
    "identity",
    [
        {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"},
        {"principalId": "dynamodb.amazonaws.com", "type": "Service"},
    ],
)
def test_a_removal_by_ttl_is_known_in_boto3s_and_lambdas_spelling(identity: dict[str, str]) -> None:
    made = record(eventName="REMOVE", userIdentity=identity)
    assert made.expired_by_ttl
    assert made["userIdentity"] == identity
    assert not record(eventName="REMOVE").expired_by_ttl


def test_the_wire_json_is_kept_byte_for_byte() -> None:
    raw = b'{ "dynamodb":{"SequenceNumber":"1",  "Keys":{"k":{"S":"\\u00e9"}}} ,"eventName":"X"}'
    made = Record.from_json(raw, "s")
    assert bytes(made.raw) == raw
    assert made.sequence_number == "1"
    assert made.shard_id == "s"


def test_a_record_copies_and_pickles() -> None:
    made = record()
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert again.new == made.new
        assert again.shard_id == "shard-1"
    assert copy.deepcopy(made["dynamodb"]) == made["dynamodb"]


def test_the_times_of_an_hour_take_no_memory() -> None:
    """A manager grew by 1 MB in its first hour: each second of the changes was kept."""
    creation_time(0.0)
    with traced_memory() as peak:
        for second in range(3600):
            creation_time(1_700_000_000.0 + second)
        assert peak() < 200_000
