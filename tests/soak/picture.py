"""A soak as a picture: what the program that was never ended takes, and how late it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.soak.samples import Sample

_WIDTH, _HEIGHT, _LEFT, _GAP = 900, 130, 60, 44
_MOST_POINTS = 300
_COLOURS = ("#1f5fa8", "#b5541c")


class _Panel(NamedTuple):
    title: str
    lines: dict[str, Callable[[Sample], float]]


_PANELS = [
    _Panel("memory, MB", {"all processes": lambda s: s.processes, "manager": lambda s: s.manager}),
    _Panel(
        "processes, descriptors",
        {"manager's descriptors": lambda s: s.descriptors, "processes": lambda s: s.alive},
    ),
    _Panel("age of the oldest change delivered, s", {"lag": lambda s: s.lag}),
]


def svg(samples: Sequence[Sample], marks: Sequence[tuple[float, str]], title: str) -> str:
    """The picture; `marks` are moments, in hours, at which something was done.

    Where samples are many, the largest one of several is drawn.
    """
    hours = samples[-1].hours
    height = 40 + len(_PANELS) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for index, panel in enumerate(_PANELS):
        parts += _panel(panel, samples, marks, hours, 50 + index * (_HEIGHT + _GAP))
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    panel: _Panel,
    samples: Sequence[Sample],
    marks: Sequence[tuple[float, str]],
    hours: float,
    top: float,
) -> list[str]:
    most = max(value(each) for value in panel.lines.values() for each in samples) or 1.0
    wide = _WIDTH - _LEFT - 20

    def x(moment: float) -> float:
        return _LEFT + wide * moment / hours

    parts = [f'<text x="{_LEFT}" y="{top - 4}">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + _HEIGHT * (1 - share)
        parts.append(f'<path d="M{_LEFT} {y}H{_LEFT + wide}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{most * share:.3g}</text>'
        )
    for moment, text in marks:
        parts.append(
            f'<path d="M{x(moment):.1f} {top}v{_HEIGHT}" stroke="#bbb" stroke-dasharray="2 3">'
            f"<title>{escape(text)}</title></path>"
        )
    for place, (name, value) in enumerate(panel.lines.items()):
        colour = _COLOURS[place]
        step = -(-len(samples) // _MOST_POINTS)
        parted = (samples[first : first + step] for first in range(0, len(samples), step))
        points = (
            f"{x(part[0].hours):.1f},{top + _HEIGHT * (1 - max(map(value, part)) / most):.1f}"
            for part in parted
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>')
        right = _LEFT + wide - 150 * place
        parts.append(
            f'<text x="{right}" y="{top - 4}" fill="{colour}" text-anchor="end">{name}</text>'
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = f"{hours * share:.2g} h" if hours > 2 else f"{60 * hours * share:.2g} min"
        y = top + _HEIGHT + 14
        parts.append(f'<text x="{x(hours * share):.1f}" y="{y}" text-anchor="middle">{text}</text>')
    return parts
