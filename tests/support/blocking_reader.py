"""A shard's reader that makes its own calls, for tests that take it attempt by attempt."""

from typing import Any

from watcher.aws.model import Service
from watcher.clock import CLOCK, Clock
from watcher.streams.messages import Message
from watcher.streams.shard_reader import ShardReader


class BlockingReader(ShardReader):
    """A `ShardReader` over this service."""

    def __init__(
        self, service: Service, *arguments: Any, clock: Clock = CLOCK, **options: Any
    ) -> None:
        super().__init__(*arguments, clock=clock, **options)
        self.service: Any = service

    def read(self) -> list[Message]:
        return self.attempt(self.service)
