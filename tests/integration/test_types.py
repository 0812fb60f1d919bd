"""A client's programs under mypy --strict and pyright's strict mode: right ones, and wrong ones."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
from prometheus_client.registry import Collector

import watcher

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]

RIGHT = """
import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from watcher import Record, Stream, Totals, Watch, as_of, history, lambda_function, undo, watch
from watcher.testing import record


def handle(change: Record) -> None:
    kind: str = change.event_name
    total: dict[str, Any] | None = change.new
    print(kind, total, change["dynamodb"])


async def handle_later(change: Record) -> None:
    await asyncio.sleep(0)


class Positions:
    def load(self) -> str | None:
        return None

    def save(self, token: str) -> None:
        print(token)


def simple() -> Totals:
    watch("orders", handle)
    watch("orders", "print_summary", only="insert")
    watch(["orders", "shop-*"], [handle, handle_later, "print_summary"], start=timedelta(hours=2))
    watch("orders", [lambda_function("app.handler")], until=datetime.now(UTC), follow=False)
    watch("*", [handle], tags=["env=prod", "env=test", "team", "app=shop"])
    watch("*", [handle], tags=["env=prod"], exclude=["*-test"], everything=True)
    watch("orders", [handle], only=["insert", "ttl"], on_stale="snapshot", on_error="retry:15m,log")
    watch("orders", [handle], key={"PK": "a"}, filters=[{"eventName": ["INSERT"]}, "total > 2"])
    return watch("orders", [handle], checkpoint=Positions(), on_error=print, max_records=1)


def pulled(stream: Stream) -> Iterable[Record]:
    while (change := next(stream)) is not None:
        yield change


async def beside() -> int | None:
    async with Watch("orders", [handle], on_stale="fail") as running:
        print(running.health(), running.stats().records, running.error)
    done = running.wait()
    async with await Stream.open("orders", timedelta(hours=1), only="modify", poll_max=2.0) as made:
        async for change in made:
            print(change.key, made.token)
    return None if done is None else done.records


def past() -> None:
    for change in history("orders", key={"PK": "a"}):
        print(change)
    print(as_of("orders", at="2h"), undo("orders", start="2h", only="modify"))
    print(record({"pk": "a"}).key["pk"])
"""

WRONG = """
from watcher import Record, Stream, Watch, undo, watch
from watcher.testing import record


def handle(change: Record) -> None:
    change.nwe  # wrong
    change.event_name + 1  # wrong


class Positions:
    def load(self) -> int:
        return 1

    def save(self, token: bytes) -> None: ...


watch("orders", [handle], on_stale="nonsense")  # wrong
watch("orders", [handle], only="upsert")  # wrong
watch("orders", [handle], only=["insert", "upsert"])  # wrong
watch("orders", [handle], start=3)  # wrong
watch("orders", [handle], procesess=3)  # wrong
watch("orders", [handle], processes="3")  # wrong
watch("orders", [handle], checkpoint=Positions())  # wrong
watch("orders", [3])  # wrong
watch("orders")  # wrong
Watch("orders", [handle], on_stale="nonsense")  # wrong
Watch("orders", [handle], follow="no")  # wrong
Stream("orders", on_stale="nonsense")  # wrong
Stream("orders", only="upsert")  # wrong
undo("orders", start="2h", only="upsert")  # wrong
Record({"pk": "a"})  # wrong
record({"pk": "a"}, kye="pk")  # wrong


async def pull() -> None:
    async with await Stream.open("orders", poll_max="1") as stream:  # wrong
        next(stream).key  # wrong
    await Stream.open("orders", pol_max=1)  # wrong
    await Stream.open("orders", on_stale="nonsense")  # wrong
"""


def mistakes_by_mypy(folder: Path) -> set[str]:
    """The files and lines with errors; what it knows of watcher, a check of all has left it."""
    files = [str(folder / "right.py"), str(folder / "wrong.py")]
    return errors_of(folder, ROOT, ["mypy", *files], r"(\w+\.py:\d+): error")


def mistakes_by_pyright(folder: Path) -> set[str]:
    """The files and lines with errors."""
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return errors_of(folder, folder, ["basedpyright"], r"(\w+\.py:\d+):\d+ - error")


def errors_of(folder: Path, cwd: Path, line: list[str], error: str) -> set[str]:
    checker, *rest = line
    done = subprocess.run(
        [str(Path(sys.executable).with_name(checker)), *rest],
        cwd=cwd,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    found = re.findall(error, done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return set(found)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistakes", [mistakes_by_mypy, mistakes_by_pyright])
def test_a_type_checker_accepts_the_right_program_and_names_each_mistake_of_the_wrong_one(
    tmp_path: Path, mistakes: Callable[[Path], set[str]]
) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    lines = enumerate(WRONG.splitlines(), 1)
    wrong = {f"wrong.py:{number}" for number, line in lines if line.endswith("# wrong")}
    assert len(wrong) > 20
    assert mistakes(tmp_path) == wrong


# Of `lambda_function` the command line reads the declaration, and must not wait for boto3.
@pytest.mark.parametrize("name", sorted({*watcher.__all__} - {"ABSENT", "lambda_function"}))
def test_the_types_of_every_public_name_resolve(name: str) -> None:
    public = getattr(watcher, name)
    get_type_hints(public)
    for own in vars(public).values() if isinstance(public, type) else ():
        if inspect.isfunction(each := own.fget if isinstance(own, property) else own):
            get_type_hints(each, localns={"Collector": Collector})  # of an extra


def test_open_takes_the_parameters_of_the_constructor() -> None:
    shown = [inspect.signature(each).parameters for each in (watcher.Stream, watcher.Stream.open)]
    assert shown[0] == shown[1]
    assert [*shown[0]][:3] == ["stream", "start", "snapshot"] and "poll_max" in shown[0]
