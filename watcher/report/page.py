"""The report's page: one HTML file without scripts, which needs no other file and no network."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Final
from xml.etree.ElementTree import Element

import msgspec

from watcher.aws.model import ShardKey
from watcher.formatting.differences import DescribedDifference, described
from watcher.formatting.style import cut_values
from watcher.formatting.text import cut, grouped
from watcher.formatting.values import printable_key
from watcher.records.record import Record
from watcher.records.wire import KINDS
from watcher.report import pictures
from watcher.report.pictures import Histogram, document, element, minute, plausible, second
from watcher.time_machine.sorted_lines import SortedLines
from watcher.times import duration_text

MOST_CHANGES: Final = 200
"""The number of changes up to which a page lists all of them: it is about an incident."""
# Of more changes: so many of the busiest minutes, and so many changes of each.
_BUSIEST: Final = 5
_OF_A_MINUTE: Final = 20
# The header names the seconds of an incident that took less.
_SHORT: Final = 600
_LINES: Final = 40
_VALUE: Final = 300
# Both values of a change fit.
_CHARACTERS: Final = 1_000
_WORDS: Final = {"+": "added", "~": "changed", "-": "removed"}
_KINDS: Final = {"+": "insert", "~": "modify", "-": "remove"}


class ListedChange(msgspec.Struct, array_like=True):
    """A change that a page may list."""

    seconds: float
    """Its time (epoch); 0 where it is unknown."""
    shard_key: ShardKey
    raw: msgspec.Raw

    @property
    def record(self) -> Record:
        """The record, made again."""
        return Record.from_json(bytes(self.raw), self.shard_key.shard_id, self.shard_key.stream)


_listed: Final = msgspec.json.Decoder(ListedChange)
_MINUTE: Final = slice(0, 12)
_ORDER: Final = slice(0, 12 + 20 + 64 + 12)


class ListedChanges:
    """The changes of a page by time, in memory or in temporary files."""

    def __init__(self) -> None:
        # A line is the minute, the time, the sequence number, the turn, and the change.
        self._lines = SortedLines()
        self._counts: Counter[int] = Counter()
        """All changes of each minute, of which the first ones that came are kept."""
        self.seen = 0

    @property
    def is_long(self) -> bool:
        """True if there are more changes than the page lists one by one."""
        return self.seen > MOST_CHANGES

    def add(self, record: Record) -> None:
        """Takes in a change."""
        change = record.wire.dynamodb
        seconds = plausible(change.ApproximateCreationDateTime) or 0.0
        start = int(seconds // 60)
        self._counts[start] += 1
        self.seen += 1
        if self._counts[start] > (_OF_A_MINUTE if self.is_long else MOST_CHANGES):
            return
        made = ListedChange(seconds, record.shard_key, msgspec.Raw(bytes(record.raw)))
        order = f"{start:012}{seconds:020.6f}{change.SequenceNumber:0>64}{self.seen:012}"
        text = msgspec.json.encode(made).replace(b"\n", b" ")
        self._lines.add(b"%b%b\n" % (order.encode(), text))

    def all(self) -> list[ListedChange]:
        """Returns all changes of a page that is not long."""
        return [_listed.decode(line[_ORDER.stop :]) for line in self._lines]

    def busiest(self) -> Iterator[tuple[str, list[ListedChange]]]:
        """Yields the busiest minutes with their first changes, each in words, the busiest first."""
        found = heapq.nsmallest(
            _BUSIEST, self._counts.items(), key=lambda each: (-each[1], each[0])
        )
        kept: dict[int, list[ListedChange]] = {start: [] for start, _ in found}
        for line in self._lines:
            some = kept.get(int(line[_MINUTE]))
            if some is not None and len(some) < _OF_A_MINUTE:
                some.append(_listed.decode(line[_ORDER.stop :]))
        for start, count in found:
            text = f"{minute(60 * start) if start else 'no time'}, {grouped(count, 'change')}"
            yield text + f", of which {_OF_A_MINUTE}" * (count > _OF_A_MINUTE), kept[start]


def section(report: Report) -> Element:
    """Builds the page's section: all changes, oldest first, or those of the busiest minutes."""
    name = f"What happened to {report.item}" if report.item else "What happened"
    made = element("section", element("h2", name))
    if not report.listed.is_long:
        made.append(_changes(report, report.listed.all()))
        return made
    made.append(_quiet(f"The busiest minutes of {grouped(report.listed.seen, 'change')}."))
    for text, listed in report.listed.busiest():
        made.extend([element("h3", text), _changes(report, listed)])
    return made


def _changes(report: Report, listed: Iterable[ListedChange]) -> Element:
    return element("ol", *(_change(report, each) for each in listed), class_="changes")


def _change(report: Report, listed: ListedChange) -> Element:
    record = listed.record
    kind = record.event_name
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    table = record.table if len(report.tables) > 1 else ""
    head = element(
        "p",
        element("b", kind, class_=f"kind {kind.lower()}"),
        element("time", second(listed.seconds) if listed.seconds else "no time"),
        element("b", table) if table else None,
        element("code", cut(printable_key(record["dynamodb"]["Keys"]), _CHARACTERS)),
        by_ttl,
    )
    return element("li", head, _differences(record))


def _differences(record: Record) -> Element | None:
    with cut_values(_VALUE):
        lines = list(described(record))
    made = element("ul", *map(_line, lines[:_LINES]))
    if len(lines) > _LINES:
        made.append(element("li", f"and {len(lines) - _LINES:,} more"))
    return made if lines else None


def _line(line: DescribedDifference) -> Element:
    if not line.mark:
        return element("li", cut(line.text, _CHARACTERS))
    return element(
        "li",
        element("span", line.mark, class_=f"mark {_KINDS[line.mark]}", aria_hidden="true"),
        element("span", f"{_WORDS[line.mark]} ", class_="unseen"),
        element("code", cut(line.path, _CHARACTERS)),
        element("span", cut(line.text, _CHARACTERS), class_="value") if line.text else None,
    )


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(kw_only=True)
class Report:
    """The contents of a page: the sums, the listed changes, their origin, notes and warnings."""

    title: str
    origin: str
    """The source of the changes: a stream's ARN, a path."""
    item: str = ""
    """The key of the items chosen; "" for all items."""
    notes: Sequence[str] = ()
    """The times and filters that chose the changes."""
    warnings: list[str] = field(default_factory=list)
    """The reasons why the numbers are incomplete."""
    listed: ListedChanges = field(default_factory=ListedChanges)
    histogram: Histogram = field(default_factory=Histogram)
    kinds: Counter[str] = field(default_factory=Counter)
    tables: set[str] = field(default_factory=set)
    by_ttl: int = 0

    def add(self, record: Record) -> None:
        """Takes in a change."""
        kind = record.event_name
        self.kinds[kind] += 1
        self.by_ttl += record.expired_by_ttl
        self.tables.add(record.table)
        self.histogram.add(kind, record.wire.dynamodb.ApproximateCreationDateTime)
        self.listed.add(record)


def page(report: Report, made: datetime | None = None) -> str:
    """Returns the report as HTML, with `made` (default: now) as its time."""
    main = element("main")
    if report.kinds:
        main.extend([_histogram(report), section(report)])
    else:
        main.append(element("h2", "There are no changes."))
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
    first, last = report.histogram.first, report.histogram.last
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
    if untimed := report.histogram.untimed:
        parts.append(_quiet(f"{untimed:,} changes carry no time and are in no picture."))
    parts += [element("p", text, class_="warning") for text in report.warnings]
    tiles = element("dl", _tile("changes", report.kinds.total()), class_="tiles")
    tiles.extend(_tile(kind, report.kinds[kind], kind.lower()) for kind in KINDS)
    tiles.append(_tile("removed by TTL", report.by_ttl))
    return [*parts, tiles]


def _tile(name: str, value: int, kind: str = "all") -> Element:
    return element("div", element("dt", name), element("dd", f"{value:,}"), class_=kind)


def _histogram(report: Report) -> Element:
    width, buckets = report.histogram.width, report.histogram.buckets
    section = element("section", element("h2", f"{report.title} per {_width(width)}"))
    if not buckets:
        section.append(_quiet("The changes carry no times."))
        return section
    peak = max(buckets, key=lambda start: buckets[start].total())
    most = pictures.in_words(buckets[peak])
    text = f"Busiest {_width(width)}: {minute(peak)}, with {most}."
    if width > 60:
        text += f" Each bar stands for {_width(width)}."
    legend = element("p", class_="legend quiet")
    legend.extend(element("span", element("i", class_=each.lower()), each) for each in KINDS)
    chart = element("figure", pictures.histogram(width, buckets))
    section.extend([_quiet(text), legend, chart, _buckets(buckets)])
    return section


def _buckets(buckets: Mapping[int, Counter[str]]) -> Element:
    """Builds the table of the picture's numbers, for readers who can't see it, by keyboard too."""
    header = element("tr", element("th", "from", scope="col"))
    header.extend(element("th", kind, scope="col", class_="count") for kind in KINDS)
    table = element("table", header)
    for start, counts in buckets.items():
        row = element("tr", element("th", minute(start), scope="row"))
        row.extend(element("td", f"{counts[kind]:,}", class_="count") for kind in KINDS)
        table.append(row)
    name = "The numbers of this chart"
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=name)
    return element("details", element("summary", name), scroll)


def _quiet(text: str) -> Element:
    return element("p", text, class_="quiet")


def _width(seconds: int) -> str:
    """Formats a bucket's width: `minute`, `10 minutes`, `day`."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return name if seconds == unit else f"{seconds // unit} {name}s"
    return f"{seconds} seconds"
