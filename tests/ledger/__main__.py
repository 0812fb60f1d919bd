"""The time machine against a ledger of many writes; by hand: `scripts/ledger --writes 50000`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tests.ledger.ledger import DisturbedTables, Ledger, by_key
from tests.ledger.local_ledger import LocalLedger
from tests.ledger.verified import verify_while_written
from watcher.time_machine.as_of import items_as_of
from watcher.time_machine.item_keys import identity
from watcher.time_machine.undo import open_plan, plan_revert, plan_undo
from watcher.time_machine.undo_plan import ChangeFilter
from watcher.time_machine.write_back import Outcome

FAST = 1e9
_HOURS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--moments", type=int, default=50, help="how many seconds to look at")
    parser.add_argument("--undos", type=int, default=10, help="how many intervals to undo")
    parser.add_argument("--verifies", type=int, help="instead: so many comparisons of a copy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dynamodb-local", action="store_true", help="not on the simulator")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    if asked.verifies is not None:
        sys.exit(verify(asked.seed, asked.verifies))
    kind = LocalLedger if asked.dynamodb_local else Ledger
    with kind(asked.seed, asked.keys) as ledger:
        began, end = write(ledger, asked.writes)
        print(f"{asked.writes} writes to {asked.keys} items, {len(ledger.simulator.shards)} shards")
        look(ledger, began, end, asked.moments)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(asked.undos):
                undo(ledger, began, end, Path(folder, f"undo-{number}.jsonl"))


def verify(seed: int, runs: int) -> int:
    """Prints how many comparisons of a copy went wrong; each is made with and without an error."""
    wrong = 0
    for number in range(runs):
        try:
            verify_while_written(seed + number)
        except AssertionError as error:
            wrong += 1
            print(error)
    print(f"verify: seeds {seed} to {seed + runs - 1}: {wrong} of {runs:,} wrong")
    return 1 if wrong else 0


def write(ledger: Ledger, count: int) -> tuple[int, int]:
    """The first second, and the last; on DynamoDB Local there are hours between some."""
    if isinstance(ledger, LocalLedger):
        for _ in range(_HOURS):
            ledger.write(count // _HOURS)
            ledger.age()
        return ledger.second - 3600 * _HOURS, ledger.second - 3600
    began = ledger.second
    ledger.write(count)
    return began, ledger.second


def look(ledger: Ledger, began: int, end: int, moments: int) -> None:
    started = time.monotonic()
    for _ in range(moments):
        second = ledger.random.randint(began, end)
        tables = DisturbedTables(ledger, lambda: ledger.write(1))
        found = by_key(items_as_of(ledger.sources(tables), _moment(second)))
        assert found == ledger.at(second), f"not as it was at {second}"
    print(f"as-of: {moments} seconds equal, {time.monotonic() - started:.0f} s")


def undo(ledger: Ledger, began: int, end: int, log: Path) -> None:
    """A random interval, killed now and then; nothing of what conflicts is touched."""
    started = time.monotonic()
    ledger.settle()
    before = ledger.items()
    last = ledger.random.randint(began, end)
    first = max(began, last - ledger.random.randint(0, ledger.longest))
    expected, conflicts = ledger.without(first, last)
    chosen = ChangeFilter(_moment(first), _moment(last), only="insert,modify,remove,ttl")
    plan = plan_undo(ledger.sources(), chosen, log)
    if plan.steps:
        plan.save()
    for kill_at in (*ledger.random.sample(range(400), 2), None):
        if plan.steps:
            plan = open_plan(log, ledger.connection, ledger.sources().stream)
        done = plan.apply(write_limit=FAST)
        outcomes = {}
        for number, (step, outcome) in enumerate(done):
            outcomes[step.key] = outcome
            if number == kill_at:
                done.close()
    assert ledger.items() == expected, "not as it would be without the changes"
    found = {key for key, outcome in outcomes.items() if outcome is Outcome.CONFLICT}
    assert len(found) == len(conflicts), "other conflicts"
    ledger.settle()
    back = []
    if ledger.items() != before:
        back = list(
            plan_revert(log, ledger.connection, stream=ledger.sources().stream).apply(
                write_limit=FAST
            )
        )
    assert all(outcome is Outcome.RESTORED for _, outcome in back)
    assert ledger.items() == before, "not as before the undo"
    for step, _ in back:
        # What an undo has written, and what took it back, are changes, too.
        ((_, text),) = identity(step.key)
        for image in (step.now, step.before):
            ledger.note(text, None if image is None else msgspec.json.decode(image))
    print(
        f"undo: {len(outcomes)} items, {len(conflicts)} conflicts; back: {len(back)} items; "
        f"{time.monotonic() - started:.1f} s"
    )


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


if __name__ == "__main__":
    main()
