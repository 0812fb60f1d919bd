"""The commands that set watcher up: `policy`, `new-handler` and `trust`."""

from __future__ import annotations

import json
import keyword
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from watcher.aws.arns import is_stream, partition_of
from watcher.aws.lease_table import SCHEME
from watcher.cli import defaults, handler_flags, options
from watcher.cli.command_line import CommandLine, parameters
from watcher.cli.options import Values
from watcher.cli.watch import every_option
from watcher.declared import Parameter
from watcher.errors import UsageError
from watcher.version import install

logger = logging.getLogger("watcher")

# `policy`

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
    "history": ("GetItem",),
    "as-of": ("GetItem", "Scan"),
    "verify": ("Scan",),
    "undo": ("DescribeTimeToLive",),
    "undo-apply": ("DescribeTimeToLive", "GetItem", "PutItem", "DeleteItem"),
    "mirror": ("Scan",),
    "replicate": ("Scan",),
    "streams": (),
    "shards": (),
}
_TARGET = ("CreateTable", "DescribeTable", "BatchWriteItem")
_OF_LEASES = ("DescribeTable", "CreateTable", "GetItem", "PutItem")
_QUEUE = re.compile(r"https://sqs\.([\w-]+)\.[^/]+/(\d+)/([\w.-]+)")
_DEAD_LETTERS = re.compile(r"(?:.*,)?dead-letter:(?P<kind>sqs|s3)://(?P<place>.+)")
_STORE = re.compile(rf"{SCHEME}(?P<table>[\w.-]+)(?:/.*)?")
_S3 = "s3://"
_STORE_OBJECT = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>.+)")

_For = Annotated[
    str,
    Parameter(
        name="--for",
        choices=tuple(_OF_TABLE),
        metavar="COMMAND",
        help="the command to be allowed: watch (default), history, as-of, verify, undo (its plan), "
        "undo-apply, report, count, streams, shards, mirror, query, archive, "
        "replicate",
    ),
]
_Account = Annotated[
    str, Parameter(metavar="NUMBER", help="the account, where no ARN says it; default any")
]
_To = Annotated[str | None, Parameter(metavar="TABLE", help="the table that replicate writes to")]


def policy_command(line: CommandLine) -> Callable[..., int]:
    """Prints the permissions that a watch with these options, or another command, needs."""
    handlers, parts = handler_flags.find_handlers(line), every_option()
    return options.with_options(_policy, handler_flags.flags(handlers.values(), parts), parts)


def _policy(
    *streams: options.Streams,
    for_: _For = "watch",
    account: _Account = "*",
    to: _To = None,
    **values: object,
) -> int:
    from watcher.formatting.text import write_json

    if not streams and not (values["everything"] or values["tags"] or for_ == "streams"):
        raise UsageError("give a stream: its ARN, a table, a glob like 'shop-*', or --all")
    statements = [
        {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": resources}
        for sid, actions, resources in _statements(
            streams or ("*",), for_, account, {**values, "to": to}
        )
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    write_json(json.dumps(document, indent=2) + "\n")
    return 0


def _statements(
    streams: Sequence[str], name: str, account: str, values: Values
) -> Iterator[Statement]:
    place = _Whereabouts(values["region"], account)
    tables = [place.table(each) for each in streams]
    read = _READ[:1] if name == "shards" else _READ
    yield "ReadTheStream", read, [place.stream(each) for each in streams]
    of_table = {f"dynamodb:{each}" for each in _OF_TABLE[name]}
    if values["snapshot"] or values["on_stale"] == "snapshot":
        of_table.add("dynamodb:Scan")
    if values["snapshot_export"]:
        of_table.add("dynamodb:DescribeTable")
    # A listing of streams needs no table.
    names_streams = name == "streams" or all(map(is_stream, streams))
    if of_table or not names_streams:
        of_table.add("dynamodb:DescribeTable")
        yield "AskTheTable", [*of_table], tables
    is_search = values["everything"] or values["tags"] or name == "streams"
    if is_search or any(set("*?[") & {*each} for each in streams):
        # It names no resource but by its TableName.
        yield "FindStreams", ["dynamodb:ListStreams"], ["*"]
    if values["tags"]:
        yield "FindTags", ["dynamodb:ListTagsOfResource"], tables
    yield from _statements_of_places(place, name, values)


def _statements_of_places(place: _Whereabouts, name: str, values: Values) -> Iterator[Statement]:
    """Yields the statements for the places a command writes to."""
    if found := _STORE.fullmatch(str(values["checkpoint"] or "")):
        asks = [f"dynamodb:{each}" for each in _OF_LEASES]
        yield "KeepPositions", asks, [place.table(found["table"])]
    if found := _STORE_OBJECT.fullmatch(str(values["checkpoint"] or "")):
        bucket = place.bucket(found["bucket"])
        yield "KeepPositions", ["s3:GetObject", "s3:PutObject"], [f"{bucket}/{found['key']}"]
        # Without it, S3 refuses to say that an object is not there.
        yield "SeeThatThereAreNone", ["s3:ListBucket"], [bucket]
    export = str(values["snapshot_export"] or "")
    if export.startswith(_S3):
        files = f"{export.removeprefix(_S3).rstrip('/')}/*"
        yield "ReadTheExport", ["s3:GetObject"], [place.bucket(files)]
    if queue := values.get(handler_flags.of_handler("sqs")):
        yield "SendMessages", *place.queue(queue, "SendMessage")
    if found := _DEAD_LETTERS.fullmatch(str(values["on_error"] or "")):
        yield "KeepDeadLetters", *place.dead_letters(found["kind"], found["place"])
    if name == "replicate":
        if values["to"] is None:
            raise UsageError("give the table that it writes to", "to")
        target = [f"dynamodb:{each}" for each in _TARGET]
        yield "WriteTheCopy", target, [place.table(values["to"])]


class _Whereabouts:
    """Builds ARNs from names, with the region and account as far as they are known."""

    def __init__(self, region: str | None, account: str) -> None:
        self._region = region or "*"
        self._account = account

    def table(self, name: str) -> str:
        """Returns a table's ARN for its name, a glob or an ARN."""
        if name.startswith("arn:"):
            return name.partition("/stream/")[0]
        # IAM knows * and ? alone.
        glob = re.sub(r"\[[^]]*\]", "?", name)
        return (
            f"arn:{_partition(self._region)}:dynamodb:{self._region}:{self._account}:table/{glob}"
        )

    def stream(self, name: str) -> str:
        """Returns a stream's ARN; for a table's name, that of any stream it has or will have."""
        return name if is_stream(name) else f"{self.table(name)}/stream/*"

    def bucket(self, name: str) -> str:
        """Returns the ARN of a bucket."""
        return f"arn:{_partition(self._region)}:s3:::{name}"

    def dead_letters(self, kind: str, name: str) -> tuple[list[str], list[str]]:
        """Returns the actions for dead letters and their resources."""
        if kind == "s3":
            bucket, _, prefix = name.partition("/")
            prefix = f"{prefix.rstrip('/')}/" if prefix else ""
            return ["s3:PutObject"], [f"{self.bucket(bucket)}/{prefix}*"]
        return self.queue(name, "SendMessage")

    def queue(self, name: str, *calls: str) -> tuple[list[str], list[str]]:
        """Returns the actions on a queue, and its ARN, for its name, URL or ARN."""
        asks = [*calls, *([] if "://" in name else ["GetQueueUrl"])]
        return [f"sqs:{each}" for each in asks], [self._queue_arn(name)]

    def _queue_arn(self, name: str) -> str:
        if name.startswith("arn:"):
            return name
        region, account = self._region, self._account
        if found := _QUEUE.fullmatch(name):
            region, account, name = found.groups()
        return f"arn:{_partition(region)}:sqs:{region}:{account}:{name.rpartition('/')[2]}"


def _partition(region: str) -> str:
    return "aws" if region == "*" else partition_of(region)


# `new-handler`

_MODULE = '''\
"""Print what became of each item.

The first line is the help text of FLAG. It and OPTIONS are read without running this file.
"""

from collections import Counter

from watcher import Record

# Options of its own: name, what --help calls the value (None for a switch), help.
# Remove them together with `configure` if it needs none.
OPTIONS = {"NAME_prefix": ("TEXT", "begin each line with TEXT")}

prefix = ""
counts: Counter[str] = Counter()


def configure(NAME_prefix: str = "") -> None:
    """Called once, before the first record, with the options that were given."""
    global prefix
    prefix = NAME_prefix


def handle(record: Record) -> None:
    """Called for every change, in order; when it raises, --on-error says what happens.

    The record is boto3's: record["eventName"], record["dynamodb"]["Keys"]. As plain Python values
    there are record.key, record.old (None for an INSERT), record.new (None for a REMOVE), and
    record.changes: attribute -> (old, new).
    """
    counts[record.event_name] += 1
    print(f"{prefix}{record.event_name}", *record.key.values())


def close() -> None:
    """Called once, when the watch ends. May be left out."""
    print(f"{prefix}{counts.total()} changes")
'''

_TEST = '''\
"""The handler NAME, run over real changes of a table on an embedded DynamoDB."""

from pathlib import Path

pytest_plugins = ["watcher.testing"]  # gives watched_table

HANDLER = Path(__file__).parents[1] / "handlers" / "NAME.py"


def test_it_tells_of_each_change_and_counts_them(watched_table, capsys):
    watched_table.put({"pk": "a", "total": 1})
    watched_table.update({"pk": "a"}, total=2)
    watched_table.delete({"pk": "a"})
    watched_table.run(HANDLER)
    assert capsys.readouterr().out.splitlines() == [
        "INSERT a",
        "MODIFY a",
        "REMOVE a",
        "3 changes",
    ]


def test_its_option(watched_table, capsys):
    watched_table.put({"pk": "a"})
    watched_table.run(HANDLER, NAME_prefix="> ")
    assert capsys.readouterr().out.splitlines() == ["> INSERT a", "> 1 changes"]
'''


_Name = Annotated[str, Parameter(help="its flag's name: big-orders")]


def new_handler_command(line: CommandLine) -> Callable[..., int]:
    """Writes handlers/NAME.py and tests/test_NAME.py here; never overwrites a file."""

    def run(name: _Name, /) -> int:
        return _write(name.removeprefix("--").replace("-", "_"))

    return run


def _write(name: str) -> int:
    module, test = Path("handlers", f"{name}.py"), Path("tests", f"test_{name}.py")
    _refuse_unusable(name, module, test)
    flag = "--" + name.replace("_", "-")
    for path, text in ((module, _MODULE), (test, _TEST)):
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("FLAG", flag).replace("NAME", name), "utf-8")
        except OSError as error:
            raise UsageError(f"can't write {path}: {error.strerror}") from None
        print(path)
    logger.info(f"Try it: python -m watcher STREAM {flag}")
    logger.info(f"Test it: pytest {test} ({install('demo')} pytest)")
    return 0


def _refuse_unusable(name: str, module: Path, test: Path) -> None:
    if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
        raise UsageError(f"{name} can't be a handler's name; choose one such as big-orders")
    for path in (module, test):
        if path.exists():
            raise UsageError(f"{path} already exists; choose another name")
    flag = "--" + name.replace("_", "-")
    if any(flag in options.names_of(each) for each in parameters(CommandLine("watch"))):
        raise UsageError(f"{flag} is an option of watcher; choose another name")


# `trust`

_Forget = Annotated[bool, Parameter(negative=(), help="revoke the permission")]


def trust_command(line: CommandLine) -> Callable[..., int]:
    """Remembers the file by its path and content: a changed file needs new trust."""
    return options.with_options(_trust)


def _trust(*, forget: _Forget = False) -> int:
    file = Path(defaults.PROJECT_FILE)
    if forget:
        text = "is trusted no more" if defaults.untrust(file) else "was not trusted"
        logger.info(f"{file.resolve()} {text}")
        return 0
    if not file.is_file():
        raise UsageError(f"no {file} in this folder")
    content = defaults.read(file)
    found = defaults.table(file, content)
    defaults.trust(file, content)
    logger.info(f"Trusted until it changes: {file.resolve()} ({', '.join(_named(found))})")
    return 0


def _named(found: defaults.Table) -> list[str]:
    """Returns the names of the settings in a file."""
    parts = []
    for key, value in found.items():
        parts += [f"[{key}] {each}" for each in value] if isinstance(value, dict) else [key]
    return parts or ["nothing"]
