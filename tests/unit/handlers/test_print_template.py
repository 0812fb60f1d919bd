"""A line by a template of the user's, which sees the change and nothing else."""

import pytest

from tests.unit.handlers.test_formats import plain, printed, record
from watcher.errors import UsageError

__all__ = ["plain"]  # a fixture


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{time:%H:%M:%S} {kind} {key} {changes}", "09:32:10 MODIFY id=111 ~total: 5 -> 7"),
        ("{kind:<8}|{new.total:>6}|", "MODIFY  |     7|"),
        ("{new.total:.2f} {old.lines.0.sku} {key.id}", "7.00 a-1 111"),
        ("{new.nothing}{new.total.deeper}{old.lines.9}{old.lines.x}", ""),
        ("{table} {shard} {sequence}", "products shard-1 100000000000000000001"),
        ("{old.lines}", "[{sku: 'a-1'}]"),
        ("{old.name} {{as it is}}", "\\x1b[2J {as it is}"),
    ],
)
def test_fields_are_filled_in(template: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {"lines": {"L": [{"M": {"sku": {"S": "a-1"}}}]}, "name": {"S": "\x1b[2J"}}
    change = record(old={**lines, "total": {"N": "5"}}, new={**lines, "total": {"N": "7"}})
    assert printed(capsys, "template", change, print_template=template) == [line]


@pytest.mark.parametrize(
    "template",
    [
        "{kinds}",
        "{0}",
        "{}",
        "{new[total]}",
        "{kind.upper}",
        "{kind!r}",
        "{time.__class__}",
        "{kind:>x}",
        "{kind",
        "{new.total:{kind}}",
    ],
)
def test_what_no_change_could_fill_in_is_refused_at_once(template: str) -> None:
    with pytest.raises(UsageError, match=r"template|format|expected|Invalid"):
        printed(None, "template", print_template=template)  # type: ignore[arg-type]
