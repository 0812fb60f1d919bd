"""A DynamoDB Streams service that answers from canned pages, as fast as a socket takes them.

Run as a process of its own (`python -m scripts.benchmarks.replay`): it says its endpoint on
standard output, takes a `Scenario` as one JSON line on standard input, and answers with the figures
since the one before.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from typing import Any

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/replay/stream/2026-11-21T00:00:00.000"
RECORDS = 1000
_DIGITS = 8
_NUMBER = "1" + "0" * 12 + "P" * _DIGITS + "NNNN"
_SHARDS_A_PAGE = 100
_CREATED = 1_790_000_000
_OPENED = int(time.time()) - 2 * 3600


TABLE = {
    "TableName": "replay",
    "TableArn": ARN.partition("/stream/")[0],
    "TableStatus": "ACTIVE",
    "CreationDateTime": 1.6e9,
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "LatestStreamArn": ARN,
}


@dataclass
class Scenario:
    """A stream of open shards with so many full pages each, and how late each answer comes.

    With `history`, each open shard has so many closed ancestors in the listing. A `disabled` stream
    has only closed shards, which hold the pages.
    """

    shards: int = 1
    pages: int = 0
    records: int = RECORDS
    latency: float = 0.0
    history: int = 0
    disabled: bool = False


@dataclass
class Figures:
    """What was asked of the service."""

    first_read: float = 0.0
    """When the first GetRecords came, by `time.monotonic()`."""
    calls: dict[str, int] = field(default_factory=dict)


def record(number: int) -> bytes:
    """A change of an order, as the wire has it: some 840 bytes, always of the same length."""

    def image(quantity: int) -> dict[str, Any]:
        return {
            "customer": {"S": f"user-{number % 97:03}"},
            "order": {"S": f"order-{number:04}"},
            "status": {"S": "delivered" if quantity % 2 else "received"},
            "quantity": {"N": str(100 + quantity)},
            "total": {"N": f"{1000 + number}.25"},
            "paid": {"BOOL": quantity % 2 == 1},
            "tags": {"SS": ["gift"]},
            "ship_to": {"M": {"city": {"S": "Delft"}, "zip": {"S": "3511"}}},
        }

    old, new = image(number % 50), image(number % 50 + 1)
    whole = {
        "eventID": f"{number:032x}",
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": _CREATED,
            "Keys": {name: new[name] for name in ("customer", "order")},
            "NewImage": new,
            "OldImage": old,
            "SequenceNumber": _NUMBER.replace("NNNN", f"{number:04}"),
            "SizeBytes": 268,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }
    return json.dumps(whole, separators=(",", ":")).encode()


class Pages:
    """All pages of all shards from one canned one: only the page's number in it changes."""

    def __init__(self, records: int) -> None:
        parts = [record(number) for number in range(records)]
        (self._stride,) = {len(part) + 1 for part in parts}
        self._records = records
        self._body = bytearray(b'{"Records":[' + b",".join(parts) + b"]")
        self._first = self._body.index(b"P" * _DIGITS)

    def page(self, number: int, following: str, limit: int | None = None) -> bytes:
        """The page with this number; its sequence numbers are those of no other page.

        With a limit, its last records.
        """
        for digit, value in enumerate(f"{number:0{_DIGITS}}".encode()):
            column = slice(self._first + digit, len(self._body), self._stride)
            self._body[column] = bytes([value]) * self._records
        body: bytes | bytearray = self._body
        if limit is not None:
            body = b'{"Records":[' + self._body[-limit * self._stride :]
        return b'%b,"NextShardIterator":"%b"}' % (body, following.encode())


class Service:
    """The four calls, and that for the table's stream."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.begin(Scenario())

    def begin(self, scenario: Scenario) -> Figures:
        """Become another stream; the figures so far."""
        figures, self.figures = self.figures, Figures()
        self.scenario = scenario
        self._pages = Pages(scenario.records)
        return figures

    def answer(self, operation: str, query: dict[str, Any]) -> bytes:
        """The body of an answer."""
        self.figures.calls[operation] = self.figures.calls.get(operation, 0) + 1
        match operation:
            case "GetRecords":
                return self._records(query["ShardIterator"], query.get("Limit"))
            case "GetShardIterator":
                return json.dumps({"ShardIterator": self._iterator(query)}).encode()
            case "DescribeStream":
                return json.dumps({"StreamDescription": self._describe(query)}).encode()
            case "DescribeTable":
                return json.dumps({"Table": TABLE}).encode()
            case _:
                return json.dumps({"Streams": []}).encode()

    def _records(self, iterator: str, limit: int | None) -> bytes:
        self.figures.first_read = self.figures.first_read or time.monotonic()
        shard, _, page = iterator.partition(" ")
        number = int(page)
        if int(shard.rpartition("-")[2]) < self.scenario.shards * self.scenario.history:
            return b'{"Records":[]}'  # closed, and all of it has left retention
        if number >= self.scenario.pages and self.scenario.disabled:
            return b'{"Records":[]}'
        if number >= self.scenario.pages:
            return f'{{"Records":[],"NextShardIterator":"{iterator}"}}'.encode()
        return self._pages.page(number, f"{shard} {number + 1}", limit)

    def _iterator(self, query: dict[str, Any]) -> str:
        page = 0
        match query["ShardIteratorType"]:
            case "LATEST":
                page = self.scenario.pages
            case "AT_TIMESTAMP":  # near the tip, whenever that is
                page = max(self.scenario.pages - 1, 0)
            case "AFTER_SEQUENCE_NUMBER":
                page = int(query["SequenceNumber"][-4 - _DIGITS : -4]) + 1
        return f"{query['ShardId']} {page}"

    def _describe(self, query: dict[str, Any]) -> dict[str, Any]:
        after = query.get("ExclusiveStartShardId")
        first = 0 if after is None else int(after.rpartition("-")[2]) + 1
        listed = self.scenario.shards * (self.scenario.history + 1)
        last = min(first + _SHARDS_A_PAGE, listed)
        description = {
            "StreamArn": ARN,
            "TableName": "replay",
            "StreamStatus": "DISABLED" if self.scenario.disabled else "ENABLED",
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            "Shards": [self._shard(number, listed) for number in range(first, last)],
        }
        if last < listed:
            description["LastEvaluatedShardId"] = shard_id(last - 1)
        return description

    def _shard(self, number: int, listed: int) -> dict[str, Any]:
        """The oldest generation comes first; the last one is open."""
        shards = self.scenario.shards
        row: dict[str, Any] = {
            "ShardId": shard_id(number),
            "SequenceNumberRange": {"StartingSequenceNumber": "1" + "0" * 24},
        }
        if number >= shards:
            row["ParentShardId"] = shard_id(number - shards)
        if number < listed - shards or self.scenario.disabled:
            row["SequenceNumberRange"]["EndingSequenceNumber"] = "1" + "0" * 24
        return row


def shard_id(number: int) -> str:
    """As AWS's: when the shard was opened (in milliseconds), and which one it is."""
    return f"shardId-{_OPENED * 1000 + number:020}-{number:08}"


class _Connection(asyncio.Protocol):
    """One client's connection, kept alive."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)  # room for a page

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        target = head[lower.index(b"\r\nx-amz-target:") + 15 :].partition(b"\r\n")[0].decode()
        body = self._service.answer(target.rpartition(".")[2].strip(), json.loads(rest[:length]))
        if self._service.scenario.latency:
            loop = asyncio.get_running_loop()
            loop.call_later(self._service.scenario.latency, self._send, body)
        else:
            self._send(body)

    def _send(self, body: bytes) -> None:
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Date: {formatdate(usegmt=True)}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)


async def _serve() -> None:
    service = Service()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(service), "127.0.0.1", 0, backlog=2000)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():  # its end is ours
        print(json.dumps(asdict(service.begin(Scenario(**json.loads(line))))), flush=True)


class Replay:
    """The service's process, for the program that measures."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.benchmarks.replay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.endpoint = self._said().strip()
        self.pid = self._process.pid

    def begin(self, scenario: Scenario) -> Figures:
        """Become another stream; the figures since the last `begin`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(scenario)) + "\n")
        self._process.stdin.flush()
        return Figures(**json.loads(self._said()))

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


if __name__ == "__main__":
    asyncio.run(_serve())
