"""Shards as bars in time, children behind their parents: the lineage before it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from watcher.report.summary import ShardCount
from watcher.service.model import Listing, opened_at

# A shard takes records for hours, and they stay for 24 more. One that seems to have been opened
# longer before its first record is of an emulator, which numbers its shards as it likes.
_LONGEST = 30 * 3600.0


class Bar(NamedTuple):
    """A shard's life, in epoch seconds."""

    id: str
    parent: str | None
    begin: float
    end: float
    is_open: bool | None
    """None where nothing says."""
    changes: int


def bars(counts: Mapping[str, ShardCount], listing: Listing | None) -> list[Bar]:
    """Every shard that was counted or is listed, by its begin.

    Without a listing there are no parents, and a shard ends with its last change.
    """
    listed = {shard.id: shard for shard in listing.shards} if listing else {}
    now = listing.time.timestamp() if listing else None
    begins: dict[str, float] = {}
    for shard_id in {**listed, **counts}:
        begin = _begin(shard_id, counts.get(shard_id), now)
        if begin is not None:
            begins[shard_id] = begin
    ends: dict[str, float] = {}
    for shard in listed.values():
        if shard.parent in begins and shard.id in begins:
            ends[shard.parent] = min(begins[shard.id], ends.get(shard.parent, begins[shard.id]))
    found = []
    for shard_id, begin in begins.items():
        known, count = listed.get(shard_id), counts.get(shard_id)
        is_open = None if listing is None else bool(known) and shard_id not in ends
        if known and known.end is not None:
            is_open = False
        last = (count and count.last) or begin
        end = now if is_open and now else ends.get(shard_id, last)
        parent = known.parent if known and known.parent in begins else None
        changes = count.changes if count else 0
        found.append(Bar(shard_id, parent, begin, max(begin, end), is_open, changes))
    return sorted(found, key=lambda bar: (bar.begin, bar.id))


def _begin(shard_id: str, count: ShardCount | None, now: float | None) -> float | None:
    first = count.first if count else None
    opened = opened_at(shard_id)
    near = first if first is not None else now
    if opened is None or near is None or abs(near - opened.timestamp()) > _LONGEST:
        return near
    return opened.timestamp()


def lanes(shards: Iterable[Bar]) -> list[list[Bar]]:
    """The bars row by row: a shard's first child goes on in its row, others stand below.

    Where no parent is known, shards that follow each other in time share a row.
    """
    all_bars = {bar.id: bar for bar in shards}
    children: dict[str | None, list[Bar]] = {}
    for bar in all_bars.values():
        children.setdefault(bar.parent if bar.parent in all_bars else None, []).append(bar)
    if len(children) <= 1:
        return _packed(all_bars.values())
    ordered: list[Bar] = []
    stack = list(children.get(None, ()))
    while stack:
        ordered.append(bar := stack.pop())
        stack.extend(children.get(bar.id, ()))
    below: dict[str, list[list[Bar]]] = {}
    for bar in reversed(ordered):
        first, *others = [below.pop(child.id) for child in children.get(bar.id, ())] or [[[]]]
        below[bar.id] = [[bar, *first[0]], *first[1:], *(lane for each in others for lane in each)]
    return [lane for root in children.get(None, ()) for lane in below[root.id]]


def _packed(shards: Iterable[Bar]) -> list[list[Bar]]:
    rows: list[list[Bar]] = []
    for bar in shards:
        row = next((row for row in rows if row[-1].end < bar.begin), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    return rows
