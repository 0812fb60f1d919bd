"""Finds the streams that a read's `stream` option means: names and globs, with commas between."""

from __future__ import annotations

from watcher.aws.arns import region_in
from watcher.aws.client import StreamsClient
from watcher.aws.connect import connect
from watcher.aws.model import StreamName
from watcher.spark.options import SourceOptions, wanted_streams


class StreamFinder:
    """Finds the streams that names and globs mean by now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = wanted_streams(options.stream)
        self._named: list[str] | None = None

    @property
    def may_find_more(self) -> bool:
        """True where others may come to match."""
        return bool(self._wanted.globs)

    def find(self) -> list[str]:
        """Returns their ARNs. Raises StreamError where a name has none, or a glob has no match."""
        connection = self._options.connection
        if self._named is None:
            self._named = [connect(name, connection)[1] for name in self._wanted.names]
        if not self._wanted.globs:
            return self._named
        rows: list[StreamName] = []
        for part in self._wanted.by_region():
            client = StreamsClient(connection, region_in(part.globs[0]))
            rows += part.newest(client.list_streams(), client.tags).values()
        if not self._named:
            self._wanted.refuse_without_match(rows)
        return list(dict.fromkeys([*self._named, *(row.arn for row in rows)]))
