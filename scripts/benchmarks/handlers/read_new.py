"""Read each change's whole new image as native values."""

from watcher import Record


def handle(record: Record) -> None:
    record.new  # noqa: B018
