"""Read each change's event name and keys, as boto3 gives them."""

from watcher import Record


def handle(record: Record) -> None:
    record["eventName"], record["dynamodb"]["Keys"]
