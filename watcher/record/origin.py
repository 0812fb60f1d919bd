"""Where a record is from: the stream, and the shard of it."""

from typing import NamedTuple

from watcher.service.names import table_name


class Origin(NamedTuple):
    """A shard of a stream; unique in a watch of several streams, where a shard's id alone is not.

    What is not known is "".
    """

    stream: str
    """The stream's ARN."""
    shard_id: str

    @property
    def table(self) -> str:
        """The table's name; the stream's id where its ARN has no table in it."""
        return table_name(self.stream)
