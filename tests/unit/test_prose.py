"""Pages, help and docstrings keep to the style of docs/contributing.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.site import reference
from watcher.cli.command_line import COMMANDS, CommandLine
from watcher.cli.help import page

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
MOST_WORDS = 45

# What is wrong -> what to write.
RULES = {
    r"\b(is|are|was|were|be|been) (said|told)\b": "prints, reports, warns",
    r", and (said|says)\b(?! who)": "and prints, reports, warns",
    r"\bwhoever\b": "you, a reader, another program",
    r"\bnone that\b|\bnobody has\b|\bthat nobody\b": "name who or what doesn't",
    r"\bsuch as (are|is|have|has)\b": "those that",
    r"(^|[.:;] )What [^?.:]*[.:;]": "name the thing: 'Skipped pages are …'",
    r"(^|[.:;,] )(W|(?<!: )w)ho (?!made|can|it|they|changed|decides|delivers)[^?.]*[.;]": "you",
    r"\bSo (it is|is it|does|do|is|are|was)\b": "'also', 'in the same way'",
    r"\bas ever\b": "as usual",
    r"\b(has|have) been heard\b|\bis heard of\b": "is known",
    r"\b(is|are) done without\b|\bdoes without\b|\bdo without\b": "isn't needed",
    r"\banew\b": "again, from scratch",
    r"\bthat is none\b|\bis no more\b": "say what is absent",
    r"\b[Hh]is (item|table|own|change)\b": "their",
    r"\ball else\b": "everything else",
    r"\bof its own accord\b|\bbe it\b|\bwhatever it is\b": "leave it out",
    r"\bone of them is meant\b|\bone is meant\b": "name one",
}


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a Markdown text, without code and tables."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^(\||#|!\[).*$", "", text, flags=re.M)
    for part in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.M):
        plain = re.sub(r"`[^`]*`", "X", part)
        plain = re.sub(r"\]\([^)]*\)", "]", " ".join(plain.split()))
        yield from re.split(r"(?<=[.?!])\s+(?=[A-Z*X\[])", plain)


def wrong(text: str) -> Iterator[str]:
    """Yields what a text says in a form that is ruled out, with what to write."""
    for pattern, instead in RULES.items():
        for found in re.finditer(pattern, text, flags=re.M):
            yield f"{found[0]!r}: {instead}"


def cells(text: str) -> Iterator[str]:
    """Yields the cells of a Markdown text's tables."""
    for line in re.findall(r"^\|.*\|$", text, flags=re.M):
        yield from (cell.strip() for cell in re.sub(r"`[^`]*`", "X", line).strip("|").split("|"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_to_the_style(name: str) -> None:
    text = (ROOT / name).read_text()
    parts = [*sentences(text), *(part for cell in cells(text) for part in sentences(cell))]
    found = [f"{mistake} in: {part}" for part in parts for mistake in wrong(part)]
    found += [f"{len(p.split())} words: {p}" for p in parts if len(p.split()) > MOST_WORDS]
    assert found == []


def test_the_newest_changes_keep_to_the_style() -> None:
    newest = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1]
    assert [each for part in sentences(newest) for each in wrong(part)] == []


def test_help_keeps_to_the_style() -> None:
    for name in COMMANDS:
        text = " ".join(page(CommandLine(name), "all").split())
        assert list(wrong(text)) == [], name


def test_docstrings_begin_in_the_style() -> None:
    found = []
    for path in [*(ROOT / "watcher").rglob("*.py"), *(ROOT / "handlers").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").partition("\n\n")[0]
                found += [f"{path.name}: {each}" for each in wrong(" ".join(first.split()))]
    assert found == []


def test_error_messages_keep_to_the_style() -> None:
    messages = [each for _, _, found in reference.errors().values() for each in found]
    assert len(messages) > 200
    assert [f"{mistake} in: {each}" for each in messages for mistake in wrong(each)] == []
