"""A part of a page as a message, without what nobody wants of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence

from watcher.reading.messages import Page
from watcher.record.page import raws_of
from watcher.record.wire import WireRecord

Wanted = Callable[[WireRecord], bool]
Chosen = Callable[[Sequence[WireRecord]], list[int]]
"""The places of those that are wanted."""

Part = Callable[..., Page]
"""What makes a page of a body, its records, and where the part of it begins and ends."""


def part(
    body: bytes, records: Sequence[WireRecord], first: int, last: int, chosen: Chosen | None = None
) -> Page:
    """The part `first:last` of a page's records.

    A shortcut: where most are not `chosen`, the others travel in a smaller body of their own, and
    whoever delivers the records tests those only. Where the test fails, all go on: it fails there
    again, and is heard.
    """
    change = records[last - 1].dynamodb
    number, created = change.SequenceNumber, change.ApproximateCreationDateTime
    if chosen is not None:
        with contextlib.suppress(Exception):
            kept = [first + place for place in chosen(records[first:last])]
            if len(kept) <= (last - first) / 2:
                left_out = [place - first - before for before, place in enumerate(kept)]
                left_out.append(last - first - len(kept))
                kinds = _kinds([records[place] for place in kept])
                smaller = _of(body, records, kept)
                return Page(0, len(kept), number, smaller, created, kinds, left_out)
    return Page(first, last, number, body, created, _kinds(records[first:last]))


def _kinds(records: Sequence[WireRecord]) -> dict[str, int]:
    return dict(Counter([each.eventName or "" for each in records]))


def _of(body: bytes, records: Sequence[WireRecord], places: Sequence[int]) -> bytes:
    """A body with some of a page's records, byte for byte."""
    return b'{"Records":[%b]}' % b",".join(raws_of(body, records, places))
