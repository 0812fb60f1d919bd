"""CloudTrail's data events for DynamoDB: who wrote which key, and when.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/understanding-ddb-log-entries.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from watcher.aws.arns import account_of, table_name

REPLICATION: Final = "replication"
"""The caller that brings changes from a global table's other regions."""


class Caller(msgspec.Struct, frozen=True):
    """The caller of an operation; "" for unknown parts."""

    name: str
    """The role, user or service: `role/release-112`."""
    account: str = ""
    session: str = ""
    """The role's session name, given when the role was assumed."""
    address: str = ""
    """The IP address of the call, or the name of the service that made it."""
    agent: str = ""
    """The program, by its own user agent."""


class ItemWrite(msgspec.Struct, frozen=True):
    """One item's write in a call."""

    table: str = ""
    """The table's name or ARN; "" where it may be any of the call's tables."""
    key: Mapping[str, str] = {}
    """The key's values as text, where the event has them."""
    removes: bool | None = None
    """True for a write that only removes, False for one that never does; None: unknown."""


class Call(msgspec.Struct, frozen=True):
    """A call that writes items."""

    id: str
    """The request id: the same in all accounts and trails that log the call."""
    time: int
    """The time of the call's end, in epoch seconds."""
    caller: Caller
    tables: frozenset[str]
    """The ARNs of the call's tables."""
    writes: tuple[ItemWrite, ...]
    error: str = ""
    """The call's error; "" where it succeeded."""

    @property
    def failed(self) -> bool:
        """True where nothing was written; after a server error that is unknown."""
        return bool(self.error) and not self.error.startswith(("Internal", "ServiceUnavailable"))

    def writes_to(self, table: str) -> list[ItemWrite]:
        """Returns the writes to the table with this ARN."""
        if table not in self.tables:
            return []
        name = table_name(table)
        return [
            each
            for each in self.writes
            if each.table in ("", table)
            or (table_name(each.table) == name and ":" not in each.table)
        ]


_BY_ITEM: Final = {"PutItem": False, "UpdateItem": False, "DeleteItem": True}
_OF_SEVERAL: Final = frozenset(("BatchWriteItem", "TransactWriteItems"))
_BY_STATEMENT: Final = frozenset(
    ("ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction")
)
_NAMES: Final = (*_BY_ITEM, *_OF_SEVERAL, *_BY_STATEMENT)
_VERB: Final = re.compile(r'"[Ss]tatement": "(?:\\[nrt]|\s)*(\w*)')
_OPERATIONS: Final = {"put": False, "update": False, "delete": True}
_CHECK: Final = "conditioncheck"
_HIDDEN: Final = ("***(Redacted)", "HIDDEN_DUE_TO_SECURITY_REASONS")
_SOURCE: Final = b'"dynamodb.amazonaws.com"'
_RESOURCES: Final = b'"resources"'
# Keeps numbers as text, with all their digits.
_event: Final = json.JSONDecoder(parse_int=str, parse_float=str).decode
_Event = Mapping[str, Any]


class _File(msgspec.Struct):
    Records: list[msgspec.Raw]


_file: Final = msgspec.json.Decoder(_File)


def calls_in(content: bytes, tables: frozenset[str]) -> Iterator[Call]:
    """Yields the calls in a log file's JSON that write to these tables (ARNs).

    Raises msgspec.DecodeError, UnicodeDecodeError, ValueError for another content.
    """
    # A quick test of the text skips most events.
    names = [f'{table_name(each)}"'.encode() for each in tables]
    for raw in _file.decode(content).Records:
        text = bytes(raw)
        if _SOURCE in text and (_RESOURCES not in text or any(name in text for name in names)):
            try:
                call = _call(_event(str(text, "utf-8")), tables)
            except (AttributeError, LookupError, TypeError) as error:
                raise ValueError(f"an event of another form: {error!r}") from error
            if call is not None and not tables.isdisjoint(call.tables):
                yield call


def _call(event: _Event, tables: frozenset[str]) -> Call | None:
    """Returns an event's call; None if it writes no items, or belongs to other tables."""
    name = event["eventName"]
    if event.get("eventSource") != "dynamodb.amazonaws.com" or name not in _NAMES:
        return None
    arns = [each.get("ARN") or "" for each in event.get("resources") or ()]
    if arns and tables.isdisjoint(arns):
        return None
    given = event.get("requestParameters")
    writes = tuple(_writes(name, given if isinstance(given, dict) else {}))
    if not writes:
        return None
    named = [each for each in arns if ":table/" in each]
    if not named:
        place = f"arn:aws:dynamodb:{event['awsRegion']}:{event['recipientAccountId']}:table/"
        named = [f"{place}{table_name(each.table)}" for each in writes if each.table]
    return Call(
        event.get("requestID") or event.get("eventID") or "",
        int(datetime.fromisoformat(event["eventTime"]).timestamp()),
        _caller(event),
        frozenset(named),
        writes,
        event.get("errorCode") or "",
    )


def _writes(name: str, given: Mapping[str, object]) -> Iterator[ItemWrite]:
    if name in _BY_ITEM:
        yield _item_write(given, "", _BY_ITEM[name])
        return
    if name in _BY_STATEMENT:
        # Most values are hidden, so a statement that writes may write any key.
        verbs = {each.upper() for each in _VERB.findall(json.dumps(given))}
        if not verbs or verbs - {"SELECT", "EXISTS"}:
            yield ItemWrite()
        return
    asked = _field(given, "requestItems") or _field(given, "transactItems")
    found = list(_requests(asked, "", None))
    readable = bool(found) or _only_checks(asked)
    # The event omits long requests, and some forms are undocumented.
    yield from found if readable else [ItemWrite()]


def _field(node: Mapping[str, object], name: str) -> object:
    """Returns a parameter; some documented events have it with a capital."""
    return node.get(name, node.get(name[0].upper() + name[1:]))


def _item_write(node: Mapping[str, object], table: str, removes: bool | None) -> ItemWrite:
    key, name = _field(node, "key"), _field(node, "tableName")
    values = key.items() if isinstance(key, dict) else ()
    texts = {each: _text(value) for each, value in values}
    known = {each: text for each, text in texts.items() if text is not None}
    return ItemWrite(name if isinstance(name, str) else table, known, removes)


def _text(value: object) -> str | None:
    """Returns a key's value as text; None where the event hides it."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) and value not in _HIDDEN else None


def _requests(node: object, table: str, removes: bool | None) -> Iterator[ItemWrite]:
    """Yields the writes in a list of requests, or in a map by table name."""
    if isinstance(node, list):
        for each in node:
            yield from _requests(each, table, removes)
        return
    if not isinstance(node, dict):
        return
    kind = _kind(_field(node, "operation"))
    if kind == _CHECK:
        return
    if kind in _OPERATIONS or isinstance(_field(node, "key"), dict):
        yield _item_write(node, table, _OPERATIONS.get(kind, removes))
        return
    for name, each in node.items():
        kind = _kind(name)
        if kind in _OPERATIONS and isinstance(each, dict):
            yield _item_write(each, table, _OPERATIONS[kind])
        elif kind != _CHECK and isinstance(each, list):
            yield from _requests(each, name, removes)


def _kind(name: object) -> str:
    return name.lower().removesuffix("request") if isinstance(name, str) else ""


def _only_checks(node: object) -> bool:
    """True for a transaction's list of conditions, which writes nothing."""
    return isinstance(node, list) and all(
        isinstance(each, dict) and _kind(_field(each, "operation")) == _CHECK for each in node
    )


# Callers

_REPLICATOR: Final = "replication.dynamodb.amazonaws.com"
_REPLICATING: Final = re.compile(
    rf":(?:role/aws-service-role/{_REPLICATOR}|assumed-role)/AWSServiceRoleForDynamoDBReplication\b"
)


def _caller(event: _Event) -> Caller:
    who = event.get("userIdentity") or {}
    arn = who.get("arn") or ""
    session = (who.get("principalId") or "").partition(":")[2]
    if ":assumed-role/" in arn:
        session = arn.rpartition("/")[2]
    return Caller(
        _principal(who, arn),
        who.get("accountId") or account_of(arn),
        session,
        event.get("sourceIPAddress") or "",
        event.get("userAgent") or "",
    )


def _principal(who: Mapping[str, Any], arn: str) -> str:
    context = who.get("sessionContext") or {}
    issuer = (context.get("sessionIssuer") or {}).get("arn") or ""
    # Nobody else can make a role at that path; a session's name is its caller's choice.
    if _REPLICATING.search(issuer or arn) or who.get("invokedBy") == _REPLICATOR:
        return REPLICATION
    if ":role/" in issuer:
        return f"role/{issuer.rpartition('/')[2]}"
    if ":assumed-role/" in arn:
        return f"role/{arn.split('/')[1]}"
    if ":user/" in arn:
        return f"user/{arn.rpartition('/')[2]}"
    if who.get("type") == "Root":
        return "root"
    if arn:
        return arn.rpartition(":")[2]
    # A table's account logs only these of another account's caller.
    principal = (who.get("principalId") or "").partition(":")[0]
    names = who.get("userName"), who.get("invokedBy"), principal, who.get("accountId")
    return next(filter(None, names), "a caller without a name")
