"""`new-handler`: write a commented handler module, and a test that passes at once."""

from __future__ import annotations

import keyword
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from watcher.cli import commands
from watcher.errors import UsageError
from watcher.version import install

logger = logging.getLogger("watcher")

_MODULE = '''\
"""Print what became of each item.

The first line is the help text of FLAG. It and OPTIONS are read without running this file.
"""

from collections import Counter

from watcher import Record

# Options of its own: name, what --help calls the value (None for a switch), help.
# Remove them together with `configure` if it needs none.
OPTIONS = {"NAME_prefix": ("TEXT", "begin each line with TEXT")}

prefix = ""
counts: Counter[str] = Counter()


def configure(NAME_prefix: str = "") -> None:
    """Called once, before the first record, with the options that were given."""
    global prefix
    prefix = NAME_prefix


def handle(record: Record) -> None:
    """Called for every change, in order; when it raises, --on-error says what happens.

    The record is boto3's: record["eventName"], record["dynamodb"]["Keys"]. As plain Python values
    there are record.key, record.old (None for an INSERT), record.new (None for a REMOVE), and
    record.changes: attribute -> (old, new).
    """
    counts[record.event_name] += 1
    print(f"{prefix}{record.event_name}", *record.key.values())


def close() -> None:
    """Called once, when the watch ends. May be left out."""
    print(f"{prefix}{counts.total()} changes")
'''

_TEST = '''\
"""The handler NAME, run over real changes of a table on an embedded DynamoDB."""

from pathlib import Path

pytest_plugins = ["watcher.testing"]  # gives watched_table

HANDLER = Path(__file__).parents[1] / "handlers" / "NAME.py"


def test_it_tells_of_each_change_and_counts_them(watched_table, capsys):
    watched_table.put({"pk": "a", "total": 1})
    watched_table.update({"pk": "a"}, total=2)
    watched_table.delete({"pk": "a"})
    watched_table.run(HANDLER)
    assert capsys.readouterr().out.splitlines() == [
        "INSERT a",
        "MODIFY a",
        "REMOVE a",
        "3 changes",
    ]


def test_its_option(watched_table, capsys):
    watched_table.put({"pk": "a"})
    watched_table.run(HANDLER, NAME_prefix="> ")
    assert capsys.readouterr().out.splitlines() == ["> INSERT a", "> 1 changes"]
'''


_Name = Annotated[str, Parameter(help="what its flag is to be: big-orders")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """Write handlers/NAME.py and tests/test_NAME.py, here; never over a file that is there."""

    def run(name: _Name, /) -> int:
        return _write(name.removeprefix("--").replace("-", "_"))

    return run


def _write(name: str) -> int:
    module, test = Path("handlers", f"{name}.py"), Path("tests", f"test_{name}.py")
    _refuse_unusable(name, module, test)
    flag = "--" + name.replace("_", "-")
    for path, text in ((module, _MODULE), (test, _TEST)):
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("FLAG", flag).replace("NAME", name), "utf-8")
        except OSError as error:
            raise UsageError(f"can't write {path}: {error.strerror}") from None
        print(path)
    logger.info(f"Try it: python -m watcher STREAM {flag}")
    logger.info(f"Test it: pytest {test} ({install('demo')} pytest)")
    return 0


def _refuse_unusable(name: str, module: Path, test: Path) -> None:
    if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
        raise UsageError(f"{name} can't be a handler's name; choose one such as big-orders")
    for path in (module, test):
        if path.exists():
            raise UsageError(f"{path} is there already; choose another name")
    flag = "--" + name.replace("_", "-")
    if any(flag in each.names for each in commands.arguments(commands.app("watch", ()))):
        raise UsageError(f"{flag} is an option of watcher; choose another name")
