"""A page that waits in Spark's driver: made small, since it goes through the JVM to an executor."""

from __future__ import annotations

import re

import msgspec
import pyarrow as pa

from watcher.reading.messages import Page
from watcher.service.model import AfterSequence, Position

# A page of 840 KB takes 0.2 ms to a tenth of its size, random text 0.6 ms to a half of it; each of
# the JVM's five copies of it costs more, and its garbage collector stumbles over large arrays.
_CODEC = "lz4"
# A number can't follow this anywhere but in a record itself; decoding takes 1,000 times longer.
_CREATED = re.compile(rb'"ApproximateCreationDateTime":\s*([0-9.eE+]+)')


class HeldPage(msgspec.Struct, frozen=True):
    """A page, its body compressed."""

    packed: Page
    body_size: int
    """The body's own length."""
    after: Position
    """What comes right before its first record."""
    created: float
    """When its first record was made."""
    size: int
    """Its part of the packed body."""

    @classmethod
    def of(cls, page: Page, after: Position) -> HeldPage:
        """A page made small."""
        found = _CREATED.search(page.body)
        body = pa.compress(page.body, codec=_CODEC, asbytes=True)
        packed = msgspec.structs.replace(page, body=body)
        created = float(found[1]) if found else 0.0
        return cls(packed, len(page.body), after, created, len(body))

    @property
    def upto(self) -> str:
        """The number of its last record."""
        return self.packed.last_sequence_number

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self.packed.count

    def page(self) -> Page:
        """The page as it came."""
        body = pa.decompress(self.packed.body, self.body_size, codec=_CODEC, asbytes=True)
        return msgspec.structs.replace(self.packed, body=body)

    def split(self, count: int) -> tuple[HeldPage, HeldPage]:
        """Its first `count` records, and the others."""
        head, tail = self.page().split(count)
        created = tail.records()[0].dynamodb.ApproximateCreationDateTime or 0.0
        part = self.size * count // self.count
        return (
            self._part(head, self.after, self.created, part),
            self._part(tail, AfterSequence(head.last_sequence_number), created, self.size - part),
        )

    def _part(self, page: Page, after: Position, created: float, size: int) -> HeldPage:
        packed = msgspec.structs.replace(page, body=self.packed.body)
        return HeldPage(packed, self.body_size, after, created, size)
