"""The public names have types: those that Python resolves, and those that a client's mistakes meet.

`mypy` looks at all tests, and an `ignore` that it has no need of is an error: each of them stands
for a mistake that it has to name.
"""

import inspect
from typing import get_type_hints

import pytest
from prometheus_client.registry import Collector

import watcher
from watcher import Record, Stream, Watch, undo, watch
from watcher.testing import record


class Positions:
    """No place for them: they are neither text nor None."""

    def load(self) -> int:
        return 1

    def save(self, token: bytes) -> None: ...


async def mistakes(change: Record) -> None:
    """Nobody calls it."""
    change.nwe  # type: ignore[attr-defined]  # noqa: B018
    change.event_name + 1  # type: ignore[operator]
    watch("orders", [print], on_stale="nonsense")  # type: ignore[arg-type]
    watch("orders", [print], only="upsert")  # type: ignore[arg-type]
    watch("orders", [print], only=["insert", "upsert"])  # type: ignore[list-item]
    watch("orders", [print], start=3)  # type: ignore[arg-type]
    watch("orders", [print], procesess=3)  # type: ignore[call-arg]
    watch("orders", [print], processes="3")  # type: ignore[arg-type]
    watch("orders", [print], checkpoint=Positions())  # type: ignore[arg-type]
    watch("orders", [3])  # type: ignore[list-item]
    watch("orders")  # type: ignore[call-arg]
    Watch("orders", [print], on_stale="nonsense")  # type: ignore[arg-type]
    Watch("orders", [print], follow="no")  # type: ignore[arg-type]
    Stream("orders", on_stale="nonsense")  # type: ignore[arg-type]
    Stream("orders", only="upsert")  # type: ignore[arg-type]
    undo("orders", start="2h", only="upsert")  # type: ignore[arg-type]
    Record({"pk": "a"})  # type: ignore[arg-type]
    record({"pk": "a"}, kye="pk")  # type: ignore[call-arg]
    async with await Stream.open("orders", poll_max="1") as stream:  # type: ignore[arg-type]
        next(stream).key  # type: ignore[union-attr]  # noqa: B018
    await Stream.open("orders", pol_max=1)  # type: ignore[call-arg]


# Of `lambda_function` the command line reads the declaration, and must not wait for boto3.
@pytest.mark.parametrize("name", sorted({*watcher.__all__} - {"ABSENT", "lambda_function"}))
def test_the_types_of_every_public_name_resolve(name: str) -> None:
    public = getattr(watcher, name)
    get_type_hints(public)
    for own in vars(public).values() if isinstance(public, type) else ():
        if inspect.isfunction(each := own.fget if isinstance(own, property) else own):
            get_type_hints(each, localns={"Collector": Collector})  # of an extra
