"""Send each change to an SQS queue, as JSON."""

import hashlib
import re
from typing import Any

from watcher import Record
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


def open_queue(place: str, session: Any) -> tuple[Any, str]:
    """Returns a client for a queue, in its URL's or ARN's region, or the session's; and its URL."""
    if place.startswith(("http://", "https://")):
        region = re.match(r"https?://sqs\.([\w-]+)\.", place)
        return session.client("sqs", region_name=region and region[1]), place
    owner, region_name = {}, None
    if place.startswith("arn:"):
        _, _, _, region_name, account, place = place.split(":", 5)
        owner = {"QueueOwnerAWSAccountId": account}
    sqs = session.client("sqs", region_name=region_name)
    return sqs, sqs.get_queue_url(QueueName=place, **owner)["QueueUrl"]


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
