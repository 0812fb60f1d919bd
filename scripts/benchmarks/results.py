"""What was measured, as rows of a table and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Row:
    """One figure: the median of its runs, beside its aim and what it is compared with."""

    figure: str
    unit: str
    runs: list[float]
    at_least: float | None = None
    at_most: float | None = None
    compared: list[float] = field(default_factory=list)
    """The naive loop's runs, each beside the run of the same place in `runs`."""
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    note: str = ""

    def __str__(self) -> str:
        """In one line, as soon as it is known."""
        ratio = "" if self.ratio is None else f", {self.ratio:.3g}x"
        missed = f", missed: {_aim(self)}" if self.met is False else ""
        return f"{self.figure}: {_number(self.measured)} {self.unit}{ratio}{missed}"

    @property
    def measured(self) -> float:
        """The median."""
        return statistics.median(self.runs)

    @property
    def ratio(self) -> float | None:
        """How often the naive loop fits in; the median over pairs of neighbouring runs."""
        if not self.compared:
            return None
        pairs = zip(self.runs, self.compared, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        aims = []
        if self.at_least is not None:
            aims.append(self.measured >= self.at_least)
        if self.at_most is not None:
            aims.append(self.measured <= self.at_most)
        if self.ratio_at_least is not None and self.ratio is not None:
            aims.append(self.ratio >= self.ratio_at_least)
        if self.ratio_at_most is not None and self.ratio is not None:
            aims.append(self.ratio <= self.ratio_at_most)
        return all(aims) if aims else None


def machine() -> str:
    """Where this ran, in a few words."""
    cores = 0
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        name, _, value = line.partition(":")
        cores += name.strip() == "processor"
        if name.strip() == "model name":
            model = value.strip()
    busy = f"load {os.getloadavg()[0]:.1f} before"  # above 0.5, others have had their part
    return f"{model}, {cores} cores, Python {platform.python_version()}, {busy}"


def table(rows: list[Row]) -> str:
    """The rows as plain text; `!` stands before a missed aim."""
    cells = [("", "figure", "aim", "measured", "naive loop", "ratio", "runs")]
    for row in rows:
        cells.append(
            (
                "!" if row.met is False else "",
                row.figure + (f" ({row.note})" if row.note else ""),
                _aim(row),
                f"{_number(row.measured)} {row.unit}".strip(),
                _number(statistics.median(row.compared)) if row.compared else "",
                f"{row.ratio:.3g}x" if row.ratio is not None else "",
                " ".join(map(_number, row.runs)) if len(row.runs) > 1 else "",
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if 2 <= place <= 5 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_json(rows: list[Row], where: str, seconds: float) -> dict[str, Any]:
    """Everything that was measured."""
    figures = [
        asdict(row) | {"measured": row.measured, "ratio": row.ratio, "met": row.met} for row in rows
    ]
    return {"machine": where, "seconds": round(seconds, 1), "figures": figures}


def _aim(row: Row) -> str:
    aims = []
    if row.at_least is not None:
        aims.append(f">= {_number(row.at_least)}")
    if row.at_most is not None:
        aims.append(f"<= {_number(row.at_most)}")
    if row.ratio_at_least is not None:
        aims.append(f">= {row.ratio_at_least:g}x")
    if row.ratio_at_most is not None:
        aims.append(f"<= {row.ratio_at_most:g}x")
    return ", ".join(aims)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
