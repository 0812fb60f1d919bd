"""The least that watching idle shards can cost: asyncio, a signed GetRecords a shard a second.

No listings, no order, no retries, one process: what a program without any promise would take.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
from datetime import UTC, datetime
from urllib.parse import urlsplit

_CONNECTIONS = 64
_SERVICE = "us-east-1/dynamodb/aws4_request"
_SIGNED = "content-type;host;x-amz-date;x-amz-target"
_TYPE, _TARGET = "application/x-amz-json-1.0", "DynamoDBStreams_20120810.GetRecords"
_KEY = "benchmark"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _request(host: str, iterator: str) -> bytes:
    """A request, signed as AWS wants it (Signature Version 4)."""
    body = json.dumps({"ShardIterator": iterator})
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    headers = f"content-type:{_TYPE}\nhost:{host}\nx-amz-date:{now}\nx-amz-target:{_TARGET}\n"
    whole = f"POST\n/\n\n{headers}\n{_SIGNED}\n{hashlib.sha256(body.encode()).hexdigest()}"
    scope = f"{now[:8]}/{_SERVICE}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(whole.encode()).hexdigest()}"
    key = f"AWS4{_KEY}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signed = f"Credential={_KEY}/{scope}, SignedHeaders={_SIGNED}, Signature="
    return (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: {_TYPE}\r\nX-Amz-Date: {now}\r\n"
        f"X-Amz-Target: {_TARGET}\r\nAuthorization: AWS4-HMAC-SHA256 {signed}"
        f"{_hmac(key, text).hex()}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def _poll(address: str, iterators: list[str]) -> None:
    """Reads these shards over one connection, each once a second."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        for number, iterator in enumerate(iterators):
            writer.write(_request(place.netloc, iterator))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            iterators[number] = answer["NextShardIterator"]
            # Evenly over the second.
            due = began + (number + 1) / len(iterators)
            await asyncio.sleep(max(0.0, due - loop.time()))


async def main(address: str, iterators: list[str]) -> None:
    """Polls until it is ended."""
    shares = [iterators[number::_CONNECTIONS] for number in range(_CONNECTIONS)]
    await asyncio.gather(*(_poll(address, share) for share in shares if share))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.load(sys.stdin)))
