"""Builds HTML and SVG as a tree of elements, so that text never becomes markup."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias
from xml.etree import ElementTree

from watcher.formatting.text import printable


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
