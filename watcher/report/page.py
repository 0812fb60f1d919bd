"""The report's page: one HTML file without scripts, which needs no other file and no network."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from itertools import count
from typing import Final, TypeVar
from xml.etree.ElementTree import Element

import msgspec

from watcher.aws.arns import account_of, short_table_names, table_of
from watcher.aws.key_schema import in_order
from watcher.errors import WatcherError
from watcher.formatting.differences import DescribedDifference, described
from watcher.formatting.style import cut_values
from watcher.formatting.text import grouped
from watcher.formatting.values import printable_key
from watcher.records.diff import WireKey
from watcher.records.record import Record, wire_item
from watcher.records.wire import KINDS
from watcher.report import pictures
from watcher.report.pictures import Bar, document, element, lineage_rows, minute, second
from watcher.report.summary import Busiest, Key, Summary
from watcher.time_machine import archives
from watcher.time_machine.archives import ArchiveRow
from watcher.time_machine.callers import Answer
from watcher.times import duration_text

_LATEST: Final = 20
MOST_CHANGES: Final = 200
"""The number of changes up to which a page begins with all of them: it is about an incident."""
# The header names the seconds of an incident that took less.
_SHORT: Final = 600
_LINES: Final = 40
_VALUE: Final = 300
# Both values of a change fit.
_CHARACTERS: Final = 1_000
_WORDS: Final = {"+": "added", "~": "changed", "-": "removed"}
_KINDS: Final = {"+": "insert", "~": "modify", "-": "remove"}


class LatestChanges:
    """Keeps the latest `most` changes by their time; each item's in their order."""

    def __init__(self, most: int = MOST_CHANGES) -> None:
        self.most = most
        self.seen = 0
        self._kept: list[tuple[float, int, int, Callable[[], Record]]] = []
        self._turn = count()
        self._streams: set[str] = set()

    @property
    def is_long(self) -> bool:
        """True if there were more changes than are kept."""
        return self.seen > self.most

    @property
    def tables(self) -> dict[str, str]:
        """Returns the names of the changes' tables by ARN if there are several, else {}."""
        names = short_table_names(self._streams)
        return names if len(names) > 1 else {}

    def add(self, record: Record) -> None:
        """Takes in a change."""
        self._streams.add(record.stream)
        change = record.wire.dynamodb
        # Keeps a copy of the bytes: the record would keep its whole page.
        again = partial(Record.from_json, bytes(record.raw), record.shard_id, record.stream)
        self._add(change.ApproximateCreationDateTime, change.SequenceNumber, again)

    def add_row(self, row: ArchiveRow) -> None:
        """Takes in a row of an archive."""
        time = row.get("approximate_creation_time")
        number = row.get("sequence_number") or ""
        self._add(time and time.timestamp(), number, partial(archives.record_of_row, row))

    def _add(self, seconds: float | None, number: str, record: Callable[[], Record]) -> None:
        """Keeps a change by its time and sequence number; only a kept one is decoded."""
        self.seen += 1
        order = int(number) if number.isdecimal() else 0
        heapq.heappush(self._kept, (seconds or 0.0, order, next(self._turn), record))
        if len(self._kept) > self.most:
            heapq.heappop(self._kept)

    def records(self) -> Iterator[Record]:
        """Yields the kept changes that can be read, the oldest first."""
        for *_, record in sorted(self._kept, key=lambda each: each[:3]):
            with suppress(WatcherError, msgspec.DecodeError):
                yield record()


def section(
    latest: LatestChanges, item: str, who: Callable[[Record], Answer] | None = None
) -> Element:
    """Builds the page's section: the changes, oldest first; the latest of very many, newest first.

    `item` is the key of the one item chosen, or "". `who` tells who made a change, where that is
    asked for.
    """
    name = "Latest changes" if latest.is_long else "What happened"
    made = element("section", element("h2", f"What happened to {item}" if item else name))
    shown = list(latest.records())
    if latest.is_long and not item:
        shown = shown[: -_LATEST - 1 : -1]
    if len(shown) < latest.seen:
        text = f"The latest {len(shown):,} of {grouped(latest.seen, 'change')}."
        made.append(element("p", text, class_="quiet"))
    tables = latest.tables
    changes = (_change(each, who, tables.get(table_of(each.stream), "")) for each in shown)
    made.append(element("ol", *changes, class_="changes"))
    return made


def _change(record: Record, who: Callable[[Record], Answer] | None, table: str) -> Element:
    created = record.wire.dynamodb.ApproximateCreationDateTime
    kind = record.event_name
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    head = element(
        "p",
        element("b", kind, class_=f"kind {kind.lower()}"),
        element("time", second(created) if created else "no time"),
        element("b", table) if table else None,
        element("code", _shortened(printable_key(record["dynamodb"]["Keys"]))),
        by_ttl,
    )
    caller = None
    if who is not None:
        text = who(record).text(account_of(record.stream), between=": ")
        caller = element("p", _shortened(text), class_="quiet")
    return element("li", head, caller, _differences(record))


def _differences(record: Record) -> Element | None:
    try:
        with cut_values(_VALUE):
            lines = list(described(record))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        return element("p", f"It can't be read: {error}", class_="quiet")
    made = element("ul", *map(_line, lines[:_LINES]))
    if len(lines) > _LINES:
        made.append(element("li", f"and {len(lines) - _LINES:,} more"))
    return made if lines else None


def _line(line: DescribedDifference) -> Element:
    if not line.mark:
        return element("li", _shortened(line.text))
    return element(
        "li",
        element("span", line.mark, class_=f"mark {_KINDS[line.mark]}", aria_hidden="true"),
        element("span", f"{_WORDS[line.mark]} ", class_="unseen"),
        element("code", _shortened(line.path)),
        element("span", _shortened(line.text), class_="value") if line.text else None,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}… ({len(text):,} characters)"


_TOP = 20
_BUCKETS_SHOWN = 300
_NAME_SHOWN = 200
_SHARDS_SHOWN = 500
_DIFFERENCES_SHOWN = 1_000
_ROWS_SHOWN = 40
_SHARDS_LISTED = 1_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_Name = TypeVar("_Name", Key, str)


class CopyDifference(msgspec.Struct):
    """A difference of a copy, as `verify -o json` writes it."""

    key: WireKey
    difference: str
    """The attribute and both its values, in words."""
    reason: str
    """The change that the copy lacks, or what else explains it, in words."""


class ComparedCopy(msgspec.Struct):
    """A comparison of the table with a copy, as `verify -o json` writes it."""

    table: str
    copy: str
    at: str
    items: int
    differ: int
    differences: list[CopyDifference]


class Report(msgspec.Struct, kw_only=True):
    """The contents of a page: the sums, the latest changes, their origin, notes and warnings."""

    title: str
    origin: str
    """The source of the changes: a stream's ARN, a path."""
    summary: Summary
    latest: LatestChanges
    item: str = ""
    """The key of the one item chosen, whose whole history is shown; "" for all items."""
    shards: Sequence[Bar] = ()
    lineage_note: str = ""
    """The reason why the lineage is incomplete; "" where it is complete."""
    notes: Sequence[str] = ()
    """The filters that chose the changes."""
    warnings: Sequence[str] = ()
    """The reasons why the numbers are incomplete."""
    who: Callable[[Record], Answer] | None = None
    """Tells who made a change; None where nobody has asked."""
    callers: Sequence[tuple[str, int]] = ()
    """The callers, the busiest first, with their changes."""
    compared: ComparedCopy | None = None
    """A comparison with a copy; None where there is none."""


def page(report: Report, made: datetime | None = None) -> str:
    """Returns the report as HTML, with `made` (default: now) as its time."""
    summary = report.summary
    main = element("main")
    main.extend([_copy(report.compared)] if report.compared else [])
    if summary.changes:
        changes = section(report.latest, report.item, report.who)
        charts = [_histogram(report.title, summary), _keys(summary), _attributes(summary)]
        charts += [_callers(report)] if report.who else []
        is_short = bool(report.item) or not report.latest.is_long
        main.extend([changes, *charts] if is_short else [*charts, changes])
        main.append(_ttl(summary))
    else:
        main.append(element("h2", "There are no changes."))
    main.append(_shards(report))
    made = made or datetime.now(UTC)
    footer = f"Made by watcher on {made:%Y-%m-%d at %H:%M} UTC. All times are UTC."
    body = element("body", element("header", *_head(report)), main)
    body.append(element("footer", element("p", footer)))
    style = resources.files("watcher.report").joinpath("page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", report.title),
    )
    sheet = Element("style")  # `element` would show its line breaks as escapes
    sheet.text = style
    head.append(sheet)
    return document(element("html", head, body, lang="en"))


def _head(report: Report) -> list[Element]:
    summary = report.summary
    first, last = summary.histogram.first, summary.histogram.last
    parts = [
        element("h1", report.title),
        element("p", element("code", report.origin), class_="quiet"),
    ]
    if first is not None and last is not None:
        form = second if last - first < _SHORT else minute
        end = f" to {form(last)}" if form(first) != form(last) else ""
        span = f" ({duration_text(last - first)})" if round(last - first) else ""
        parts.append(element("p", f"{form(first)}{end} UTC{span}"))
    parts += [element("p", note, class_="quiet") for note in report.notes]
    if summary.untimed:
        parts.append(_quiet(f"{summary.untimed:,} changes carry no time and are in no picture."))
    parts += [element("p", text, class_="warning") for text in report.warnings]
    exact = not summary.keys.error
    keys = f"{len(summary.keys.counts):,}" if exact else f"over {summary.keys.bound:,}"
    tiles = element("dl", _tile("changes", f"{summary.changes:,}"), class_="tiles")
    tiles.extend(_tile(kind, f"{summary.kinds[kind]:,}", kind.lower()) for kind in KINDS)
    tiles.append(_tile("removed by TTL", f"{summary.by_ttl:,}"))
    tiles.append(_tile("items changed", keys))
    return [*parts, tiles]


def _tile(name: str, value: str, kind: str = "all") -> Element:
    return element("div", element("dt", name), element("dd", value), class_=kind)


def _histogram(title: str, summary: Summary) -> Element:
    width, buckets = summary.histogram.buckets(_BUCKETS_SHOWN)
    section = element("section", element("h2", f"{title} per {_width(width)}"))
    if not buckets:
        section.append(_quiet("The changes carry no times."))
        return section
    peak = max(buckets, key=lambda start: buckets[start].total())
    most = pictures.in_words(buckets[peak])
    text = f"Busiest {_width(width)}: {minute(peak)}, with {most}."
    if width > 60:
        text += f" Each bar stands for {_width(width)}."
    legend = element("p", class_="legend quiet")
    legend.extend(_legend(kind.lower(), kind) for kind in KINDS)
    chart = element("figure", pictures.histogram(width, buckets))
    section.extend([_quiet(text), legend, chart, _buckets(buckets)])
    return section


def _buckets(buckets: Mapping[int, Counter[str]]) -> Element:
    """Builds the table of the picture's numbers, for readers who can't see it."""
    table = element("table", _header("from", *KINDS))
    for start, counts in buckets.items():
        row = element("tr", element("th", minute(start), scope="row"))
        row.extend(element("td", f"{counts[kind]:,}", class_="count") for kind in KINDS)
        table.append(row)
    return _folded("The numbers of this chart", table)


def _header(first: str, *others: str) -> Element:
    """Builds a table's first row; columns of counts are aligned at the right."""
    row = element("tr", element("th", first, scope="col"))
    row.extend(element("th", name, scope="col", class_="count") for name in others)
    return row


def _folded(name: str, table: Element) -> Element:
    """Builds a table that a reader can open, and scroll with the keyboard."""
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=name)
    return element("details", element("summary", name), scroll)


def _legend(kind: str, text: str) -> Element:
    return element("span", element("i", class_=kind), text)


def _keys(summary: Summary) -> Element:
    section = element("section", element("h2", "Busiest keys"))
    rows = [(_key(key), count) for key, count in summary.keys.top(_TOP)]
    section.extend([*_imprecise(summary.keys), _ranking("key", rows, summary.changes)])
    return section


def _attributes(summary: Summary) -> Element:
    section = element("section", element("h2", "Attributes that change most"))
    modified = summary.kinds["MODIFY"]
    compared = modified - summary.without_images
    if summary.without_images:
        text = f"{summary.without_images:,} of {modified:,} modifications carry no images to tell."
        section.append(_quiet(text))
    if compared:
        section.append(
            _quiet(f"The share of {compared:,} modifications that changed the attribute.")
        )
        rows = [(_cut(name), count) for name, count in summary.attributes.top(_TOP)]
        section.extend([*_imprecise(summary.attributes), _ranking("attribute", rows, compared)])
    elif not modified:
        section.append(_quiet("There are no modifications."))
    return section


def _callers(report: Report) -> Element:
    section = element("section", element("h2", "Who made the changes"))
    section.append(
        _quiet(
            "By CloudTrail's logs, joined by table, key and time: the stream itself names no "
            "caller but time-to-live. A name alone is certain; what has an \u201cor\u201d or a "
            "\u201cmay be\u201d is not, and the latest changes say why."
        )
    )
    shown = [(_cut(name), count) for name, count in report.callers[:_TOP]]
    section.append(_ranking("caller", shown, report.summary.changes))
    if len(report.callers) > _TOP:
        section.append(_quiet(f"The {_TOP} busiest of {len(report.callers):,}."))
    return section


def _imprecise(busiest: Busiest[_Name]) -> list[Element]:
    """Returns a note on the precision of counts that are not exact."""
    if not busiest.error:
        return []
    return [
        _quiet(
            f"There are over {busiest.bound:,} of them, more than were counted one by one: a count "
            f"may be too low by {busiest.error:,} at the most."
        )
    ]


def _ranking(name: str, rows: Sequence[tuple[str, int]], total: int) -> Element:
    """Builds a table of names with their counts; the largest count has the longest bar."""
    longest = max((changes for _, changes in rows), default=1)
    header = _header(name, "changes", "share")
    header.append(element("td", class_="bar"))
    table = element("table", header)
    for text, changes in rows:
        bar = element("i", style=f"width:{100 * changes / longest:.2f}%")
        row = element(
            "tr",
            element("th", element("code", text), class_="key", scope="row"),
            element("td", f"{changes:,}", class_="count"),
            element("td", _share(changes, total), class_="count"),
            element("td", element("div", bar, aria_hidden="true"), class_="bar"),
        )
        table.append(row)
    return table


def _ttl(summary: Summary) -> Element:
    section = element("section", element("h2", "Removed by time-to-live"))
    if not summary.by_ttl:
        section.append(_quiet("No item expired."))
        return section
    removed = summary.kinds["REMOVE"]
    section.append(_quiet(f"{summary.by_ttl:,} of {removed:,} removals. The latest:"))
    names = element("tr", *(element("th", name, scope="col") for name in ("time", "key")))
    table = element("table", names)
    for seconds, key in summary.expired:
        time = second(seconds) if seconds else ""
        row = element("tr", element("td", time, class_="time"))
        row.append(element("td", element("code", _key(key))))
        table.append(row)
    section.append(table)
    return section


def _copy(compared: ComparedCopy) -> Element:
    section = element("section", element("h2", "Differences of the copy"))
    section.append(
        _quiet(
            f"{compared.table} at {compared.at}, and {compared.copy}: {compared.items:,} items"
            f", {compared.differ:,} differ. A cause follows from the changes; it is no proof."
        )
    )
    if not compared.differences:
        return section
    section.append(element("ol", class_="changes"))
    for each in compared.differences[:_DIFFERENCES_SHOWN]:
        name = printable_key(wire_item(msgspec.json.encode(each.key)))
        section[-1].append(
            element(
                "li",
                element("p", element("code", _shortened(name))),
                element("ul", element("li", _shortened(each.difference))),
                element("p", _shortened(each.reason), class_="quiet"),
            )
        )
    if (count := len(compared.differences)) > _DIFFERENCES_SHOWN:
        section.append(_quiet(f"The first {_DIFFERENCES_SHOWN:,} of {count:,} differences."))
    return section


def _shards(report: Report) -> Element:
    section = element("section", element("h2", "Shards"))
    if report.lineage_note:
        section.append(_quiet(report.lineage_note))
    if not report.shards:
        return section
    drawn = lineage_rows(report.shards[-_SHARDS_SHOWN:])
    busiest = sorted(drawn, key=lambda row: -sum(bar.changes for bar in row))[:_ROWS_SHOWN]
    shown = [row for row in drawn if row in busiest][:_ROWS_SHOWN]
    count = sum(map(len, shown))
    total = len(report.shards)
    text = f"{grouped(total, 'shard')}; in each bar its changes and the end of its id."
    if count < total:
        text += f" The picture has {count:,} of them: of the latest the busiest rows."
    section.append(_quiet(text))
    if any(bar.is_open is not None for bar in report.shards):
        legend = element("p", _legend("open", "open"), _legend("closed", "closed"))
        legend.set("class", "legend quiet")
        section.append(legend)
    section.append(element("figure", pictures.lineage_figure(shown), class_="lineage"))
    section.append(_shard_table(report.shards))
    return section


def _shard_table(shards: Sequence[Bar]) -> Element:
    listed = shards[-_SHARDS_LISTED:]
    table = element("table", class_="mono")
    names = ("shard", "parent", "from", "to")
    table.append(element("tr", *(element("th", name, scope="col") for name in names)))
    table[0].append(element("th", "changes", class_="count", scope="col"))
    for bar in listed:
        begin = second(bar.begin)
        cells = [bar.id, bar.parent or "", begin, pictures.end_text(bar)]
        row = element("tr", *(element("td", cell) for cell in cells))
        row.append(element("td", f"{bar.changes:,}", class_="count"))
        table.append(row)
    name = "Every shard" if len(listed) == len(shards) else f"The latest {len(listed):,} shards"
    return _folded(name, table)


def _quiet(text: str) -> Element:
    return element("p", text, class_="quiet")


def _key(key: Key) -> str:
    values = dict(key)
    table = values.pop("", "")
    text = ", ".join(f"{name}={values[name]}" for name in in_order((*values,)))
    return _cut(f"{table} {text}" if table else text)


def _cut(text: str) -> str:
    return text if len(text) <= _NAME_SHOWN else f"{text[:_NAME_SHOWN]}… ({len(text):,} characters)"


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %"


def _width(seconds: int) -> str:
    """Formats a bucket's width: `minute`, `10 minutes`, `day`."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return name if seconds == unit else f"{seconds // unit} {name}s"
    return f"{seconds} seconds"
