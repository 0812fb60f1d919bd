"""Where a record is from: the stream, and the shard of it."""

from typing import NamedTuple


class Origin(NamedTuple):
    """A shard of a stream; unique in a watch of several streams, where a shard's id alone is not.

    What is not known is "".
    """

    stream: str
    """The stream's ARN."""
    shard_id: str

    @property
    def table(self) -> str:
        """The table's name."""
        return self.stream.partition("/stream/")[0].rpartition("/")[2]
