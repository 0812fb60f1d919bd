"""`policy`: the least that a command has to be allowed, as an IAM policy."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from watcher.aws.arns import is_stream, partition_of
from watcher.cli import choosing, options
from watcher.cli.watch import every_option
from watcher.errors import UsageError

Statement = tuple[str, list[str], list[str]]
"""A statement's id, actions and resources."""

_READ = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"]
# What each command asks of the table itself.
_OF_TABLE = {
    "watch": (),
    "report": (),
    "count": (),
    "query": (),
    "archive": (),
    "metrics": (),
    "history": ("GetItem",),
    "as-of": ("GetItem", "Scan"),
    "undo": ("GetItem",),
    "undo-apply": ("GetItem", "PutItem", "DeleteItem"),
    "replicate": ("Scan",),
}
_TARGET = ("CreateTable", "DescribeTable", "PutItem", "DeleteItem", "BatchWriteItem")
_QUEUE = re.compile(r"https://sqs\.([\w-]+)\.[^/]+/(\d+)/([\w.-]+)")
_STORE = re.compile(r"dynamodb://(?P<table>[\w.-]+)(?:/.*)?")

_For = Annotated[
    str,
    Parameter(
        name="--for",
        choices=tuple(_OF_TABLE),
        metavar="COMMAND",
        help="the command to be allowed: watch (default), history, as-of, undo (its plan), "
        "undo-apply, report, count, query, archive, metrics, replicate",
    ),
]
_Account = Annotated[
    str, Parameter(metavar="NUMBER", help="the account, where no ARN says it; default any")
]
_To = Annotated[str | None, Parameter(metavar="TABLE", help="the table that replicate writes to")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """What a watch with these options (any that it has), or another command, calls."""
    handlers, parts = choosing.found("policy", words), every_option()
    return options.spelled(_policy, choosing.flags(handlers.values(), parts), parts)


def _policy(
    *streams: options.Streams,
    for_: _For = "watch",
    account: _Account = "*",
    to: _To = None,
    **values: Any,
) -> int:
    if not streams and not (values["everything"] or values["tags"]):
        raise UsageError("give a stream: its ARN, a table, a glob like 'shop-*', or --all")
    statements = [
        {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": resources}
        for sid, actions, resources in _statements(streams or ("*",), for_, account, to, values)
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


def _statements(
    streams: Sequence[str], name: str, account: str, to: str | None, values: dict[str, Any]
) -> Iterator[Statement]:
    place = _Whereabouts(values["region"], account)
    tables = [place.table(each) for each in streams]
    yield "ReadTheStream", _READ, [place.stream(each) for each in streams]
    of_table = {f"dynamodb:{each}" for each in _OF_TABLE[name]}
    if values["snapshot"] or values["on_stale"] == "snapshot":
        of_table.add("dynamodb:Scan")
    if of_table or not all(map(is_stream, streams)):
        of_table.add("dynamodb:DescribeTable")
        yield "AskTheTable", [*of_table], tables
    if values["everything"] or values["tags"] or any(set("*?[") & {*each} for each in streams):
        # It names no resource but by its TableName.
        yield "FindStreams", ["dynamodb:ListStreams"], ["*"]
    if values["tags"]:
        yield "FindTags", ["dynamodb:ListTagsOfResource"], tables
    if found := _STORE.fullmatch(str(values["checkpoint"] or "")):
        calls = ("DescribeTable", "CreateTable", "GetItem", "PutItem")
        yield "KeepPositions", [f"dynamodb:{each}" for each in calls], [place.table(found["table"])]
    if queue := values.get(choosing.of_handler("sqs")):
        asks = ["sqs:SendMessage", *([] if "/" in queue else ["sqs:GetQueueUrl"])]
        yield "SendMessages", asks, [place.queue(queue)]
    if name == "replicate":
        if to is None:
            raise UsageError("give the table that it writes to", "to")
        target = [f"dynamodb:{each}" for each in _TARGET]
        yield "WriteTheCopy", target, [place.table(to)]


class _Whereabouts:
    """Where what is named stands, as far as that is known."""

    def __init__(self, region: str | None, account: str) -> None:
        self._region = region or "*"
        self._account = account

    def table(self, name: str) -> str:
        """A table's ARN, out of its name, a glob or an ARN."""
        if name.startswith("arn:"):
            return name.partition("/stream/")[0]
        # IAM knows * and ? alone.
        glob = re.sub(r"\[[^]]*\]", "?", name)
        return (
            f"arn:{_partition(self._region)}:dynamodb:{self._region}:{self._account}:table/{glob}"
        )

    def stream(self, name: str) -> str:
        """Its stream's ARN; any of the table's where it is not named itself: there come others."""
        return name if is_stream(name) else f"{self.table(name)}/stream/*"

    def queue(self, name: str) -> str:
        """A queue's ARN, out of its name or its URL."""
        region, account = self._region, self._account
        if found := _QUEUE.fullmatch(name):
            region, account, name = found.groups()
        return f"arn:{_partition(region)}:sqs:{region}:{account}:{name.rpartition('/')[2]}"


def _partition(region: str) -> str:
    return "aws" if region == "*" else partition_of(region)
