"""Send each change to an SQS queue, as JSON."""

import hashlib
from typing import Any

from watcher import Record
from watcher.delivery.dead_letters import open_queue
from watcher.formatting.plain_records import plain_key, plain_line, record_id

OPTIONS = {
    "sqs": (
        "QUEUE",
        "send each change to this queue: a name, a URL or an ARN",
    ),
}

client: Any = None
queue_url = ""


def configure(sqs: str, session: Any) -> None:
    """Opens the queue, with the watch's profile and region; a URL has a region of its own."""
    global client, queue_url
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client, queue_url = open_queue(sqs, session)
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"--sqs {sqs}: {error}") from None


def handle(record: Record) -> None:
    in_order = {}
    if queue_url.endswith(".fifo"):
        item = f"{record.table} {plain_key(record)}"
        in_order = {
            "MessageGroupId": hashlib.sha256(item.encode()).hexdigest(),
            "MessageDeduplicationId": record_id(record),
        }
    client.send_message(QueueUrl=queue_url, MessageBody=plain_line(record), **in_order)


def close() -> None:
    client.close()
