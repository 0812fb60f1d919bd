"""What the replay server can give: its pages over a bare connection, nothing parsed."""

from __future__ import annotations

import http.client
import json
import sys


def main(endpoint: str, pages: int) -> None:
    """Read so many pages of the first shard."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
    for page in range(pages):
        body = json.dumps({"ShardIterator": f"shardId-{0:020} {page}"})
        target = {"X-Amz-Target": "DynamoDBStreams_20120810.GetRecords"}
        connection.request("POST", "/", body, target)
        connection.getresponse().read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
