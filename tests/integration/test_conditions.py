"""Conditions in one line, with DynamoDB Local as the judge of what they mean."""

import json
import random
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from tests.support.dynamodb_local import DynamoDBLocal
from watcher.records.filters import record_filter
from watcher.records.record import image_of
from watcher.records.wire import WireChange, WireRecord

ITEM: dict[str, Any] = {
    "PK": {"S": "a"},
    "text": {"S": "é\N{GRINNING FACE}x"},
    "part": {"S": "x"},
    "one": {"N": "1"},
    "same": {"N": "1.0"},
    "digit": {"S": "1"},
    "raw": {"B": b"\0\1\2\xff"},
    "start": {"B": b"\0\1"},
    "mid": {"B": b"\1\2"},
    "raws": {"BS": [b"\0\1", b"x"]},
    "words": {"SS": ["a", "x"]},
    "numbers": {"NS": ["1", "2.5"]},
    "yes": {"BOOL": True},
    "nil": {"NULL": True},
    "list": {"L": [{"N": "1"}, {"B": b"\0\1"}, {"SS": ["x", "a"]}, {"M": {"k": {"S": "x"}}}]},
    "map": {"M": {"k": {"S": ""}, "n": {"N": "-2"}}},
}
PATHS = (*ITEM, "absent", "list[0]", "list[2]", "list[3].k", "list[9]", "map.k", "map.n", "map.no")
LITERALS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("1", {"N": "1"}), ("2.50", {"N": "2.50"}), ("3", {"N": "3"}), ("-2", {"N": "-2"})),
    *(("'x'", {"S": "x"}), ("''", {"S": ""}), ("'1'", {"S": "1"}), ("'S'", {"S": "S"})),
    *(("true", {"BOOL": True}), ("null", {"NULL": True})),
)


class _Maker:
    """Makes a random condition twice: as watcher reads it, and as DynamoDB does."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def condition(self, depth: int = 0) -> tuple[str, str]:
        kind = self._random.choice(("test", "test", "test", "not", "and", "or"))
        if depth == 2 or kind == "test":
            return self._test()
        ours, theirs = self.condition(depth + 1)
        if kind == "not":
            return f"not ({ours})", f"NOT ({theirs})"
        others = self.condition(depth + 1)
        return f"({ours}) {kind} ({others[0]})", f"({theirs}) {kind} ({others[1]})"

    def _test(self) -> tuple[str, str]:
        path = self._path()
        match self._random.choice(("compare", "in", "between", "size", "two", "one", "type")):
            case "compare":
                sign = self._random.choice(("=", "<>", "<", "<=", ">", ">="))
                return self._joined(f"{{}} {sign} {{}}", path, self._value(path))
            case "in":
                return self._joined("{} in ({}, {})", path, self._value(path), self._value(path))
            case "between":
                low, high = self._literal(0), self._literal(2)
                return self._joined("{} between {} and {}", path, low, high)
            case "size":
                return self._joined("size({}) <= {}", path, self._literal(2))
            case "two":
                name = self._random.choice(("begins_with", "contains"))
                return self._joined(f"{name}({{}}, {{}})", path, self._value(path, "SB"))
            case "type":
                return self._joined("attribute_type({}, {})", path, self._literal(7))
        return self._joined("attribute_exists({})", path)

    def _joined(self, form: str, *parts: tuple[str, str]) -> tuple[str, str]:
        return form.format(*(each[0] for each in parts)), form.format(*(each[1] for each in parts))

    def _path(self, but: str = "") -> tuple[str, str]:
        path = self._random.choice([each for each in PATHS if each != but])
        steps = path.split(".")
        theirs = []
        for step in steps:
            name, bracket, index = step.partition("[")
            self.names[f"#{name}"] = name
            theirs.append(f"#{name}{bracket}{index}")
        return f"new.{path}", ".".join(theirs)

    def _value(self, but: tuple[str, str], kinds: str = "") -> tuple[str, str]:
        if self._random.random() < 0.5:
            return self._path(but[0].removeprefix("new."))
        fitting = [at for at, (_, each) in enumerate(LITERALS) if not kinds or {*each} <= {*kinds}]
        return self._literal(self._random.choice(fitting))

    def _literal(self, at: int) -> tuple[str, str]:
        text, value = LITERALS[at]
        self.values[f":v{at}"] = value
        return text, f":v{at}"


def test_conditions_mean_what_dynamodb_says(dynamodb_local: DynamoDBLocal) -> None:
    dynamodb_local.create_table("judged")
    client = dynamodb_local.client()
    client.put_item(TableName="judged", Item={**ITEM, "SK": {"S": "1"}})
    image = msgspec.Raw(image_of(ITEM))
    one = WireRecord(WireChange("1", Keys=image, NewImage=image))
    held = 0
    for seed in range(600):
        maker = _Maker(seed)
        ours, theirs = maker.condition()
        more = {"ExpressionAttributeValues": maker.values} if maker.values else {}
        more["ExpressionAttributeNames"] = maker.names
        try:
            answer = client.scan(TableName="judged", FilterExpression=theirs, **more)
        except ClientError as error:  # such as true < 1, which is false here
            if "operand" not in str(error):
                raise
            continue
        made = record_filter([ours])
        assert made is not None
        expected = bool(answer["Items"])
        held += expected
        asked = json.dumps([ours, theirs, str(maker.values)])
        assert made.matches_wire(one) is expected, asked
        assert made.matching_indexes([one]) == [0] * expected, asked
    assert 100 < held < 500
