"""A copy is equal to its table, whoever writes meanwhile; where it is not, the cause is told."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from tests.ledger.ledger import DisturbedTables, Item, Ledger
from tests.ledger.verified import HandCopy, plain, value_of, verify_while_written
from tests.support.hand_clock import HandClock
from watcher.errors import StreamError, UsageError
from watcher.time_machine import verify
from watcher.time_machine.copied_items import Form, reads_as
from watcher.time_machine.copies import CopyPosition, FileCopy, TableCopy
from watcher.time_machine.verify import Verifier


def n(number: object, **more: Item) -> Item:
    return {"pk": {"S": "a"}, "v": {"N": str(number)}, **more}


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ({"N": "10"}, {"S": "1_0"}),  # only Python takes that for a number
        ({"N": "10"}, {"S": "１０"}),  # noqa: RUF001 (other digits)
        ({"N": "12.345678901234567890"}, {"N": "12.345678901234567"}),
        ({"SS": ["a", "b"]}, {"L": [{"L": []}, {"M": {}}]}),
        ({"SS": ["a", "b"]}, {"L": [{"S": "a"}, {"S": "a"}]}),
        ({"SS": ["1"]}, {"NS": ["1"]}),
        ({"BOOL": True}, {"S": "yes"}),
        ({"L": [{"S": "a"}, {"S": "b"}]}, {"S": '["b", "a"]'}),
        ({"M": {"a": {"S": "x"}}}, {"S": "{"}),
    ],
)
def test_another_value_is_one_in_every_form(wanted: Item, there: Item) -> None:
    assert not any(reads_as(wanted, there, form) for form in Form)


@pytest.mark.parametrize("seed", range(8))
def test_no_difference_is_made_up_and_none_is_hidden_while_others_write(seed: int) -> None:
    verify_while_written(seed)


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_wrong_clock_here_neither_hides_a_difference_nor_makes_one_up(
    hours: int, ledger: Ledger
) -> None:
    ledger.clock.sleep(4 * 3600)
    ledger.write(100)
    ledger.clock.sleep(600)
    late = dict(ledger.now)
    ledger.write(20)
    wrong = HandClock()
    wrong.passed = ledger.clock.passed + hours * 3600
    assert Verifier(ledger.sources(clock=wrong), HandCopy(late)).run().differing == 0
    key = next(key for key, item in late.items() if item is ledger.now.get(key))
    del late[key]
    (found,) = Verifier(ledger.sources(clock=wrong), HandCopy(late)).run().found
    assert found.key == {"pk": {"S": key}}


def test_a_copy_may_lack_what_its_lag_allows(ledger: Ledger) -> None:
    ledger.write(40)
    ledger.clock.sleep(600)
    late = dict(ledger.now)
    ledger.write(40)
    ledger.clock.sleep(6 * 3600)
    lags = (timedelta(hours=hours) for hours in (7, 1))
    found = [Verifier(ledger.sources(), HandCopy(late), lag=lag).run().differing for lag in lags]
    assert found[0] == 0 < found[1]


def test_of_large_items_that_all_differ_memory_holds_a_part(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.setattr(verify, "MOST_DIFFERENCE_BYTES", 1024 * 1024)
    for number in range(30):
        key = f"big-{number}"
        ledger.change(key, n(1, pk={"S": key}, w={"S": "x" * 80 * 1024}))
    ledger.clock.sleep(600)
    there = {key: item | {"v": {"N": "-1"}} for key, item in ledger.now.items()}
    found = Verifier(ledger.sources(), HandCopy(there)).run()
    assert found.differing == 30 and 4 < len(found.found) < 15  # 1 MB of both sides


def test_the_read_limit_counts_the_services_units_and_no_json(ledger: Ledger) -> None:
    numbers = {"L": [{"N": str(each)} for each in range(3_000)]}  # 12 KB, and as JSON 36
    for number in range(40):
        ledger.change(f"item-{number}", n(1, pk={"S": f"item-{number}"}, w=numbers))
    ledger.clock.sleep(600)
    table = ledger.sources().stream
    assert table is not None
    units = 40 * 12_000 / 4096
    copy = TableCopy(table.table, "itself")
    there = HandCopy({item["pk"]["S"]: dict(item) for item in copy.items()})
    times, seen = [], [(0, 0.0)]
    for limit in (None, 20):  # the stream's own pauses, and those with the limit's
        began = ledger.clock.monotonic()
        verified = Verifier(
            ledger.sources(),
            there,
            read_limit=limit,
            on_progress=lambda items, used, share: seen.append((items, used)),
        ).run()
        times.append(ledger.clock.monotonic() - began)
    assert units / 20 * 0.8 < times[1] - times[0] < units / 20 * 1.2
    assert (verified.items, verified.differing) == (40, 0)
    items, used = seen[-1]
    assert items == 40 and abs(used - units) < 0.2 * units


ALL_TYPES: list[Item] = [
    {"n": {"N": "12.5"}, "t": {"S": "00012"}, "b": {"BOOL": False}},
    {"n": {"N": "-0.5"}, "t": {"S": "é\u2028\n\"'\\,;"}, "u": {"NULL": True}},
    {"n": {"N": "1" + "0" * 15}, "t": {"S": "[1, 2]"}, "d": {"B": "AAH//w=="}},
    {"ss": {"SS": ["b", "a"]}, "ns": {"NS": ["3", "1", "2.5"]}, "bs": {"BS": ["AQ==", "AA=="]}},
    {"m": {"M": {"a": {"N": "1.10"}, "b": {"B": "AAE="}, "s": {"SS": ["y", "x"]}}}},
    {"m": {"M": {}}, "l": {"L": [{"N": "1"}, {"N": "2.50"}]}, "t": {"S": "x" * 380_000}},
]


def test_copies_that_others_write_of_all_types_are_equal(tmp_path: Path, ledger: Ledger) -> None:
    items = [{"pk": {"S": f"item-{at}"}, **each} for at, each in enumerate(ALL_TYPES)]
    made = tmp_path / "plain.jsonl"
    with made.open("w") as file:
        for item in items:
            row = {name: plain(value_of(each, Form.JSON)) for name, each in item.items()}
            file.write(f"{json.dumps(row)}\n")
    (tmp_path / "wire.jsonl").write_text(
        "".join(f"{json.dumps(each)}\n" for each in items).replace('"12.5"', '"+12.50"')
    )
    for end in ("parquet", "json"):
        duckdb.execute(f"COPY (FROM read_json('{made}')) TO '{tmp_path}/duckdb.{end}'")
    for item in items:
        ledger.change(item["pk"]["S"], item)
    ledger.clock.sleep(600)
    for path in sorted(tmp_path.iterdir()):
        found = Verifier(ledger.sources(), FileCopy(path)).run()
        assert (found.items, found.differing) == (len(items), 0), (path, found.found)
    ledger.change("item-0", items[0] | {"u": {"NULL": True}})  # in plain JSON a null says so
    ledger.clock.sleep(600)
    (found_one,) = Verifier(ledger.sources(), FileCopy(made)).run().found
    assert [each.attribute for each in found_one.differences] == ["u"]


@pytest.mark.parametrize("line", [{"pk": "a", "v": "\ud83d"}, n(1, v={"S": "\ud83d"})])
def test_half_a_surrogate_pair_in_lines_is_compared(
    line: Item, tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_text(json.dumps(line))
    ledger.change("a", n(1, v={"S": "\ud83d"}))
    ledger.clock.sleep(600)
    assert Verifier(ledger.sources(), FileCopy(path)).run().differing == 0
    ledger.change("a", n(1, v={"S": "x"}))
    ledger.clock.sleep(600)
    assert Verifier(ledger.sources(), FileCopy(path)).run().differing == 1


def test_a_copy_that_cant_be_read_ends_the_scan_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_text('{"pk": "a"}\n[]\n')
    with Ledger(12) as ledger, pytest.raises(UsageError, match="a line is not an item"):
        Verifier(ledger.sources(EndlessTables(ledger)), FileCopy(path)).run()


def test_a_stream_that_is_younger_than_what_a_copy_may_lack_is_no_answer(ledger: Ledger) -> None:
    ledger.clock.sleep(3600)
    ledger.write(20)
    late = dict(ledger.now)
    ledger.change("item-0", n(1, pk={"S": "item-0"}))
    ledger.clock.sleep(5)
    ledger.simulator.disable_stream()
    ledger.simulator.enable_new_stream()
    ledger.clock.sleep(5)
    with pytest.raises(UsageError, match="is before what orders holds"):
        Verifier(ledger.sources(), HandCopy(late)).run()
    ledger.clock.sleep(300)
    late["item-0"] = ledger.now["item-0"]
    assert Verifier(ledger.sources(), HandCopy(late)).run().differing == 0


class EndlessTables(DisturbedTables):
    """Tables whose scans never end."""

    def scan(self, *_: object, **__: object) -> Iterator[list[msgspec.Raw]]:
        while True:
            yield []


@pytest.mark.parametrize("has_token", [False, True])
def test_changes_that_leave_the_stream_during_a_scan_are_no_answer(
    has_token: bool, ledger: Ledger
) -> None:
    ledger.clock.sleep(3600)
    ledger.write(40)
    ledger.clock.sleep(120)
    there, known = dict(ledger.now), ledger.token()
    ledger.write(40)
    copy = HandCopy(there, CopyPosition(token=known if has_token else None))
    slow = DisturbedTables(ledger, once(lambda: ledger.clock.sleep(30 * 3600)))
    with pytest.raises(StreamError, match="no answer, as changes are missing: ") as failed:
        Verifier(ledger.sources(slow), copy).run()
    assert failed.value.exit_status == 3


def once(happens: Callable[[], object]) -> Callable[[], object]:
    """Returns a call that does it the first time only."""
    calls = iter([happens])
    return lambda: next(calls, lambda: None)()


def v(number: int, **more: Item) -> Item:
    return {"v": {"N": str(number)}, **more}


X: Item = {"S": "x"}
STORIES: dict[str, tuple[list[Item | None], Item | None, dict[str | None, int | None]]] = {
    "lost": ([v(1), v(2)], v(1), {"v": 1}),
    "lost-early": ([v(1), v(2), v(2, w=X)], v(1, w=X), {"v": 1}),
    "stale": ([v(1), v(2), v(3)], v(1), {"v": 1}),
    "never": ([v(1), v(2)], None, {None: 0}),
    "removed": ([v(1), None], v(1), {None: 1}),
    "by-hand": ([v(1), v(2)], v(9), {"v": None}),
    "orphan": ([], v(1), {None: None}),
    "two": ([v(1, w=X), v(2, w=X), v(2)], v(1, w=X), {"v": 1, "w": 2}),
}
"""What an item was, what the copy has, and by which of its changes each attribute differs."""


def test_a_difference_names_the_last_change_that_took_away_what_the_copy_has(
    ledger: Ledger,
) -> None:
    for key, (states, _, _) in STORIES.items():
        for state in states:
            put(ledger, key, state)
    ledger.write(20)
    numbers: dict[str, list[str]] = {}
    for written in ledger.simulator.records:
        numbers.setdefault(written.key, []).append(written.sequence_number)
    ledger.clock.sleep(600)
    there = {
        **ledger.now,
        **{key: {**(item or {}), "pk": {"S": key}} for key, (_, item, _) in STORIES.items()},
    }
    del there["never"]
    for _ in range(2):  # before and after changes that the copy may lack
        told: dict[str, dict[str | None, Any]] = {}
        for each in Verifier(ledger.sources(), HandCopy(there)).run().found:
            key = each.key["pk"]["S"]
            told[key] = {
                difference.attribute: difference.missing
                and numbers[key].index(difference.missing.number)
                for difference in each.differences
            }
        assert told == {key: expected for key, (_, _, expected) in STORIES.items()}
        for key in ("lost", "by-hand"):
            put(ledger, key, v(5))
            put(ledger, key, STORIES[key][0][-1])


def put(ledger: Ledger, key: str, item: Item | None) -> None:
    if item is None:
        ledger.simulator.remove(key)
        ledger.note(key, None)
    else:
        ledger.change(key, {**item, "pk": {"S": key}})


class DamagedCopy(HandCopy):
    """A copy whose library fails in the middle."""

    def items(self) -> Iterator[Item]:
        yield from super().items()
        raise KeyError("footer")


def test_a_copy_that_its_library_cant_read_is_trouble(ledger: Ledger) -> None:
    ledger.change("a", n(1))
    ledger.clock.sleep(600)
    with pytest.raises(UsageError, match="can't read copy: 'footer'") as failed:
        Verifier(ledger.sources(), DamagedCopy({"a": n(1)})).run()
    assert failed.value.exit_status == 2
