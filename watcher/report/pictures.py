"""The picture of a report, as SVG of any width: changes in time.

HTML and SVG are trees of elements, so that text never becomes markup.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from watcher.formatting.text import grouped, printable
from watcher.records.wire import KINDS


def utc(seconds: float) -> datetime:
    """Converts epoch seconds to a time."""
    return datetime.fromtimestamp(seconds, UTC)


def minute(seconds: float) -> str:
    """Formats a time to the minute: `2026-11-21 08:00`."""
    return f"{utc(seconds):%Y-%m-%d %H:%M}"


def second(seconds: float) -> str:
    """Formats a time to the second: `2026-11-21 08:00:00`."""
    return f"{utc(seconds):%Y-%m-%d %H:%M:%S}"


Node: TypeAlias = "ElementTree.Element | str | None"


def element(name: str, /, *children: Node, **attributes: str | float) -> ElementTree.Element:
    """Makes an element with any text. `class_` sets class, `text_anchor` sets text-anchor.

    Control characters become escapes; children that are None are left out.
    """
    made = ElementTree.Element(name)
    for attribute, value in attributes.items():
        text = f"{value:.6g}" if isinstance(value, float) else printable(str(value))
        made.set(attribute.rstrip("_").replace("_", "-"), text)
    for child in children:
        if isinstance(child, ElementTree.Element):
            made.append(child)
        elif child is not None:
            _append_text(made, printable(child))
    return made


def _append_text(parent: ElementTree.Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def document(root: ElementTree.Element) -> str:
    """Returns the text of a whole page."""
    return "<!DOCTYPE html>\n" + ElementTree.tostring(root, "unicode", method="html") + "\n"


_BARS: Final = 300
_DAY: Final = 86_400
# Bars' widths in seconds, each a multiple of the one before; from a day on they double.
_WIDTHS: Final = (60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, _DAY)
_YEAR_2200: Final = 7_258_118_400


def plausible(seconds: float | None) -> float | None:
    """Returns a time at which something can have been changed; None for another."""
    return seconds if seconds is not None and 0 < seconds < _YEAR_2200 else None


class Histogram:
    """Counts of changes by kind and time: bars grow wider, so that there are never too many."""

    def __init__(self) -> None:
        self.width = _WIDTHS[0]
        """The bars' width in seconds."""
        self._bars: dict[int, Counter[str]] = {}
        self.first: float | None = None
        self.last: float | None = None
        self.untimed = 0
        """The number of changes without a plausible time."""

    def add(self, kind: str, seconds: float | None) -> None:
        """Counts a change."""
        if (seconds := plausible(seconds)) is None:
            self.untimed += 1
            return
        self.first = seconds if self.first is None else min(seconds, self.first)
        self.last = seconds if self.last is None else max(seconds, self.last)
        self._bars.setdefault(self._start(seconds), Counter())[kind] += 1
        while self._start(self.last) - self._start(self.first) >= _BARS * self.width:
            wider = (each for each in _WIDTHS if each > self.width)
            self.width = next(wider, 2 * self.width)
            bars, self._bars = self._bars, {}
            for start, counts in bars.items():
                self._bars.setdefault(self._start(start), Counter()).update(counts)

    def _start(self, seconds: float) -> int:
        return int(seconds // self.width) * self.width

    @property
    def buckets(self) -> dict[int, Counter[str]]:
        """The counts by the start of their bar, in order."""
        return dict(sorted(self._bars.items()))


_HEIGHT: Final = 220.0
_LABEL: Final = "Changes in time, by kind; a table of its numbers follows"
_LEAST_BUCKETS: Final = 12
_TICKS: Final = 8
_STEPS: Final = [
    *(1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400 * days for days in (1, 2, 7, 14, 30, 90, 365, 3650)),
]


class _Axis(NamedTuple):
    """A span of time across the width of a picture, in percent."""

    begin: float
    end: float

    def part(self, seconds: float) -> float:
        return 100 * seconds / (self.end - self.begin)

    def percent(self, seconds: float) -> float:
        return self.part(seconds - self.begin)


def histogram(width: int, buckets: dict[int, Counter[str]]) -> Element:
    """Draws a bar for each bucket, stacked by kind; there is at least one bucket."""
    axis = _with_air(min(buckets), max(buckets) + width, width)
    step = _count_step(max(counts.total() for counts in buckets.values()))
    top = step * -(-max(counts.total() for counts in buckets.values()) // step)
    made = element("svg", width="100%", height=_HEIGHT, role="img", aria_label=_LABEL)
    for value in range(0, top + 1, step):
        y = _HEIGHT - _HEIGHT * value / top
        made.append(_line(0, 100, y, y, "grid" if value else "axis"))
        label = element("text", f"{value:,}", x="-8", y=y + 4, text_anchor="end")
        made.append(label)
    _add_ticks(made, axis, _HEIGHT)
    for start, counts in buckets.items():
        made.append(_bucket(axis, start, width, counts, top))
    return made


def _with_air(begin: float, end: float, width: int) -> _Axis:
    """Adds empty time around few buckets: a minute as wide as the page would not look like one."""
    missing = max(0, _LEAST_BUCKETS - round((end - begin) / width))
    return _Axis(begin - missing // 2 * width, end + (missing + 1) // 2 * width)


def _count_step(highest: int) -> int:
    """Returns a round number that makes about four lines up to the highest count."""
    step = 1
    while highest / step > 5:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step


def _bucket(axis: _Axis, start: int, width: int, counts: Counter[str], top: int) -> Element:
    slot = axis.part(width)
    gap = slot * 0.06 if slot > 1 else 0.0
    end = f"{utc(start + width):%H:%M}" if width < 86400 else f"{utc(start + width):%Y-%m-%d}"
    group = element("g", element("title", f"{minute(start)} to {end} · {in_words(counts)}"))
    x = axis.percent(start)
    y = _HEIGHT
    for kind in KINDS:
        if counts[kind]:
            # A single change among very many has to be visible, too.
            height = max(1.5, _HEIGHT * counts[kind] / top)
            y -= height
            group.append(_rect(x + gap, y, slot - 2 * gap, height, kind.lower()))
    group.append(_rect(x, 0, slot, _HEIGHT, "hover"))
    return group


def in_words(counts: Counter[str]) -> str:
    """Formats counts: `120 changes: 100 INSERT, 20 MODIFY`."""
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind])
    return f"{grouped(counts.total(), 'change')}: {kinds}"


def _add_ticks(picture: Element, axis: _Axis, height: float) -> None:
    span = axis.end - axis.begin
    step = next((each for each in _STEPS if span / each <= _TICKS), _STEPS[-1])
    date = ""
    for tick in range(-int(-axis.begin // step) * step, int(axis.end) + 1, step):
        x = f"{axis.percent(tick):.4g}%"
        picture.append(element("line", x1=x, x2=x, y1="0", y2=height + 5, class_="grid"))
        time, day = f"{utc(tick):%H:%M:%S}" if step < 60 else f"{utc(tick):%H:%M}", ""
        if f"{utc(tick):%b %d}" != date:
            day = date = f"{utc(tick):%b %d}"
        if step >= 86400:
            time, day = f"{utc(tick):%b %d}", f"{utc(tick):%Y}" if step > 86400 * 30 else ""
        for text, y in ((time, height + 20), (day, height + 35)):
            picture.append(element("text", text, x=x, y=y, text_anchor="middle"))


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Element:
    return element("rect", x=f"{x:.4g}%", y=y, width=f"{width:.4g}%", height=height, class_=kind)


def _line(x1: float, x2: float, y1: float, y2: float, kind: str) -> Element:
    return element(
        "line", x1=f"{x1:.4g}%", x2=f"{x2:.4g}%", y1=float(y1), y2=float(y2), class_=kind
    )
