"""Elements of HTML and SVG, built as a tree: what is text can never become markup."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias
from xml.etree import ElementTree

from watcher.formatting.text import printable


def utc(seconds: float) -> datetime:
    """Epoch seconds as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def minute(seconds: float) -> str:
    """`2026-11-21 08:00`"""
    return f"{utc(seconds):%Y-%m-%d %H:%M}"


def second(seconds: float) -> str:
    """`2026-11-21 08:00:00`"""
    return f"{utc(seconds):%Y-%m-%d %H:%M:%S}"


Node: TypeAlias = "ElementTree.Element | str | None"


def element(name: str, /, *children: Node, **attributes: str | float) -> ElementTree.Element:
    """An element; its text may be anything. `class_` is class, `text_anchor` is text-anchor.

    Control characters are shown as escapes; children that are None are left out.
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
    """The whole page's text."""
    return "<!DOCTYPE html>\n" + ElementTree.tostring(root, "unicode", method="html") + "\n"
