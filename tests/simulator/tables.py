"""The operations on a table's items, over the same model: what they write is in its stream."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from watcher.records.diff import ABSENT, same

from .errors import ServiceError, invalid, not_found
from .model import Table, World, compact

Parameters = dict[str, Any]
_CLAUSE = re.compile(r"attribute_(not_)?exists\((#\w+)\)|(#\w+) ?= ?(:\w+)")
_MOST_OPERATORS = 300
_MOST_BYTES = 4096
_SCAN_PAGE = 1000


def _size(part: Any) -> int:
    """About what DynamoDB counts: names and values, without JSON's own characters."""
    match part:
        case dict():
            return sum(len(name) + _size(value) for name, value in part.items())
        case list():
            return sum(map(_size, part))
    return len(str(part))


class Items:
    """GetItem, Scan, PutItem and DeleteItem, with conditions joined by AND; and tables' tags."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tags: dict[str, dict[str, str]] = {}

    def handlers(self) -> dict[str, Callable[[Parameters], bytes]]:
        return {
            "GetItem": self._get,
            "Scan": self._scan,
            "PutItem": self._put,
            "DeleteItem": self._delete,
            "DescribeTimeToLive": self._describe_time_to_live,
            "TagResource": self._tag,
            "ListTagsOfResource": self._list_tags,
        }

    def _tag(self, parameters: Parameters) -> bytes:
        given = {each["Key"]: each["Value"] for each in parameters["Tags"]}
        self._tags.setdefault(self._tagged(parameters), {}).update(given)
        return b"{}"

    def _list_tags(self, parameters: Parameters) -> bytes:
        tags = self._tags.get(self._tagged(parameters), {})
        return compact({"Tags": [{"Key": key, "Value": tags[key]} for key in tags]}).encode()

    def _tagged(self, parameters: Parameters) -> str:
        """A table's own ARN, as Alternator refuses what is none."""
        arn = str(parameters["ResourceArn"])
        if all(table.arn != arn for table in self._world.tables.values()):
            raise ServiceError("AccessDeniedException", "Incorrect resource identifier")
        return arn

    def _table(self, parameters: Parameters) -> Table:
        name = str(parameters["TableName"]).rpartition(":table/")[2]
        table = self._world.tables.get(name)
        if table is None:
            raise not_found(f"Table: {name} not found")
        return table

    def _describe_time_to_live(self, parameters: Parameters) -> bytes:
        name = self._table(parameters).ttl_attribute
        about = {"TimeToLiveStatus": "DISABLED"}
        if name is not None:
            about = {"TimeToLiveStatus": "ENABLED", "AttributeName": name}
        return compact({"TimeToLiveDescription": about}).encode()

    def _get(self, parameters: Parameters) -> bytes:
        image = self._table(parameters).image(parameters["Key"])
        return b"{}" if image is None else b'{"Item":%b}' % image.encode()

    def _scan(self, parameters: Parameters) -> bytes:
        table = self._table(parameters)
        segment, segments = parameters.get("Segment", 0), parameters.get("TotalSegments", 1)
        names = sorted(each for each in table.names() if hash_of(each) % segments == segment)
        after = parameters.get("ExclusiveStartKey", {}).get("name", {}).get("S")
        first = 0 if after is None else bisect_right(names, after)
        limit = parameters.get("Limit", _SCAN_PAGE)
        page = names[first : first + limit]
        items = ",".join(table.image_of(name) for name in page)
        more = first + limit < len(names)
        last = {"LastEvaluatedKey": {"name": {"S": page[-1]}}} if more else {}
        used = {}
        if "ReturnConsumedCapacity" in parameters:
            size = sum(_size(json.loads(table.image_of(name))) for name in page)
            used = {"ConsumedCapacity": {"CapacityUnits": max(1.0, size / 4096)}}
        rest = compact({"Count": len(page), **last, **used})
        return f'{{"Items":[{items}],{rest[1:]}'.encode()

    def _put(self, parameters: Parameters) -> bytes:
        table = self._table(parameters)
        item = parameters["Item"]
        old = self._checked(table, {name: item[name] for name in table.key_names}, parameters)
        if old is None or compact(json.loads(old)) != compact(item):  # else no record of it
            table.put(item)
        return self._answer(old, item, parameters)

    def _delete(self, parameters: Parameters) -> bytes:
        table = self._table(parameters)
        old = self._checked(table, parameters["Key"], parameters)
        if old is not None:
            table.remove(table.name_of(parameters["Key"]))
        return self._answer(old, None, parameters)

    @staticmethod
    def _answer(old: str | None, new: Any, parameters: Parameters) -> bytes:
        answer: Parameters = {}
        if parameters.get("ReturnValues") == "ALL_OLD" and old is not None:
            answer["Attributes"] = json.loads(old)
        size = max(len(old or ""), len(compact(new)) if new else 0)
        answer["ConsumedCapacity"] = {"CapacityUnits": float(-(-size // 1024) or 1)}
        return compact(answer).encode()

    def _checked(self, table: Table, key: Any, parameters: Parameters) -> str | None:
        """The item as it is, if the condition holds."""
        old = table.image(key)
        expression = parameters.get("ConditionExpression")
        if expression is None:
            return old
        if len(expression.encode()) > _MOST_BYTES:
            raise invalid("Invalid ConditionExpression: Expression size has exceeded the maximum")
        clauses = expression.split(" AND ")
        if 2 * len(clauses) - 1 > _MOST_OPERATORS:
            raise invalid("Invalid ConditionExpression: The expression contains too many operators")
        item = json.loads(old) if old is not None else {}
        if not all(_holds(clause, item, parameters) for clause in clauses):
            raise ServiceError("ConditionalCheckFailedException", "The conditional request failed")
        return old


def _holds(clause: str, item: Mapping[str, Any], parameters: Parameters) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise invalid(f"Invalid ConditionExpression: {clause}")
    absent, asked, name, value = match.groups()
    names = parameters["ExpressionAttributeNames"]
    if asked:
        return (names[asked] in item) is (absent is None)
    wanted = parameters["ExpressionAttributeValues"][value]
    return same(item.get(names[name], ABSENT), wanted)


def hash_of(name: str) -> int:
    return sum(name.encode())
