"""A copy is equal to its table, whoever writes meanwhile; where it is not, the cause is told."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import msgspec
import polars
import pytest

from tests.ledger.ledger import DisturbedTables, Item, Ledger, an_item
from tests.ledger.verified import HandCopy, copied, plain, value_of, verify_while_written
from tests.support.hand_clock import HandClock
from tests.support.memory import traced_memory
from watcher.aws.client import StreamsClient
from watcher.aws.tables import Description, TablesClient
from watcher.errors import StreamError, UsageError
from watcher.time_machine import sorted_lines, verify
from watcher.time_machine.copied_items import (
    Form,
    differing_names,
    reads_as,
)
from watcher.time_machine.copies import CopyPosition, FileCopy, TableCopy
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.verify import Verifier


def n(number: object, **more: Item) -> Item:
    return {"pk": {"S": "a"}, "v": {"N": str(number)}, **more}


@pytest.mark.parametrize("form", Form)
def test_an_item_is_equal_to_its_copy_in_every_form(form: Form) -> None:
    chance = random.Random(7)
    for _ in range(1_000):
        item = an_item(chance)
        assert differing_names(item, copied(item, form), form) == []


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ({"N": "10"}, {"S": "1_0"}),  # only Python takes that for a number
        ({"N": "10"}, {"S": "１０"}),  # noqa: RUF001 (other digits)
        ({"N": "12.345678901234567890"}, {"N": "12.345678901234567"}),
        ({"N": "1"}, {"N": "NaN"}),
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


def test_a_type_that_columns_lose_is_kept_in_json() -> None:
    for wanted, text in (({"N": "1"}, "1.0"), ({"BOOL": True}, "true"), ({"SS": ["a"]}, '["a"]')):
        assert reads_as(wanted, {"S": text}, Form.COLUMNS)
        assert not reads_as(wanted, {"S": text}, Form.JSON)


@pytest.mark.parametrize("seed", range(8))
def test_no_difference_is_made_up_and_none_is_hidden_while_others_write(seed: int) -> None:
    verify_while_written(seed)


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_wrong_clock_here_neither_hides_a_difference_nor_makes_one_up(hours: int) -> None:
    with Ledger(4) as ledger:
        ledger.clock.sleep(4 * 3600)
        ledger.write(100)
        ledger.clock.sleep(600)
        late = dict(ledger.now)
        ledger.write(20)
        wrong = HandClock()
        wrong.passed = ledger.clock.passed + hours * 3600
        stream = StreamSource(
            ledger.simulator.stream_arn,
            StreamsClient(ledger.connection),
            TablesClient(ledger.connection),
            clock=wrong,
        )
        verified = Verifier(Sources([], stream, strict=True), HandCopy(late)).run()
        assert verified.differing == 0
        key = sorted(late)[0]
        del late[key]
        (found,) = Verifier(Sources([], stream, strict=True), HandCopy(late)).run().found
        assert found.key == {"pk": {"S": key}}


MB = 1024 * 1024


def test_memory_holds_a_part_of_large_items_that_all_differ_and_of_one_that_changes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_lines, "MEMORY_BYTES", MB // 4)
    monkeypatch.setattr(verify, "MOST_DIFFERENCE_BYTES", MB)
    with Ledger(5) as ledger:
        for number in range(90):
            ledger.change(f"big-{number}", n(1, pk={"S": f"big-{number}"}, w=an_image(80)))
        for number in range(90):
            ledger.change("hot", n(number, pk={"S": "hot"}, w=an_image(80)))
        ledger.clock.sleep(600)
        for number in range(90):
            ledger.change("hot", n(2_000 + number, pk={"S": "hot"}, w=an_image(80)))
        path = tmp_path / "copy.jsonl"
        with path.open("wb") as file:
            for key, item in ledger.now.items():
                there = {**item, "v": {"N": "7" if key == "hot" else "-1"}}
                file.write(msgspec.json.encode(there) + b"\n")
        copy = FileCopy(path)
        with traced_memory() as peak:
            tables = DisturbedTables(ledger)  # small pages: the simulator has no other limit
            found = Verifier(ledger.sources(tables), copy).run()
            most = peak()
    assert found.differing == 91
    assert 4 < len(found.found) < 15  # 1 MB of both sides
    # A page of the stream and one of the scan, here and in the simulator's threads.
    assert most < 25 * MB, f"{most / MB:.1f} MB"


def an_image(kilobytes: int) -> Item:
    return {"S": "x" * kilobytes * 1024}


def test_the_read_limit_counts_the_services_units_and_no_json() -> None:
    with Ledger(8) as ledger:
        for number in range(40):
            # 12 KB, and as JSON three times that.
            numbers = [{"N": str(each)} for each in range(3_000)]
            ledger.change(f"item-{number}", n(1, pk={"S": f"item-{number}"}, w={"L": numbers}))
        ledger.clock.sleep(600)
        table = ledger.sources().stream
        assert table is not None
        began = ledger.clock.monotonic()
        copy = TableCopy(table.table, "itself", read_limit=10)
        there = HandCopy({item["pk"]["S"]: dict(item) for item in copy.items()})
        units = 40 * 12_000 / 4096
        assert units / 10 * 0.8 < ledger.clock.monotonic() - began < units / 10 * 1.2
        times = []
        seen: list[tuple[int, float]] = []

        def note(items: int, used: float, share: float) -> None:
            seen.append((items, used))

        for limit in (None, 20):  # the stream's own pauses, and those with the limit's
            began = ledger.clock.monotonic()
            verifier = Verifier(ledger.sources(), there, read_limit=limit, on_progress=note)
            verified = verifier.run()
            times.append(ledger.clock.monotonic() - began)
        assert units / 20 * 0.8 < times[1] - times[0] < units / 20 * 1.2
        assert (verified.items, verified.differing) == (40, 0)
        assert seen[-1][0] == 40
        assert abs(seen[-1][1] - units) < 0.2 * units


ALL_TYPES: list[Item] = [
    {"n": {"N": "1"}, "t": {"S": "00012"}, "b": {"BOOL": True}},
    {"n": {"N": "12.5"}, "t": {"S": ""}, "b": {"BOOL": False}},
    {"n": {"N": "-0.5"}, "t": {"S": "é\u2028\n\"'\\,;"}, "u": {"NULL": True}},
    {"n": {"N": "0"}, "t": {"S": "[1, 2]"}, "d": {"B": "AAH//w=="}},
    {"n": {"N": "1" + "0" * 15}, "t": {"S": "null"}, "d": {"B": ""}},
    {"ss": {"SS": ["b", "a"]}, "ns": {"NS": ["3", "1", "2.5"]}, "bs": {"BS": ["AQ==", "AA=="]}},
    {"m": {"M": {"a": {"N": "1.10"}, "b": {"B": "AAE="}, "s": {"SS": ["y", "x"]}}}},
    {"m": {"M": {}}, "l": {"L": []}},
    {"l": {"L": [{"N": "1"}, {"N": "2.50"}]}, "t": {"S": "x" * 380_000}},
    {"t": {"S": "2026-01-01T00:00:00Z"}},
]
OTHER_TEXT = {"N": {"1": "1E0", "12.5": "+12.50", "0": "-0"}}


def test_copies_that_others_write_of_all_types_are_equal(tmp_path: Path) -> None:
    items = [{"pk": {"S": f"item-{at}"}, **each} for at, each in enumerate(ALL_TYPES)]
    names = sorted({name for each in items for name in each})
    plain_items = [
        {name: plain(value_of(each, Form.JSON)) for name, each in item.items()} for item in items
    ]
    flat = [
        [
            json.dumps(cell) if isinstance(cell, dict | list) else cell
            for cell in map(item.get, names)
        ]
        for item in plain_items
    ]
    made = tmp_path / "plain.jsonl"
    made.write_text("".join(f"{json.dumps(each)}\n" for each in plain_items))
    others = [
        {
            name: {kind: OTHER_TEXT.get(kind, {}).get(str(content), content)}
            for name, value in item.items()
            for kind, content in value.items()
        }
        for item in items
    ]
    (tmp_path / "wire.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in others))
    duckdb.execute(f"CREATE OR REPLACE TABLE o AS FROM read_json('{made}')")
    for end in ("parquet", "json"):
        duckdb.execute(f"COPY o TO '{tmp_path}/duckdb.{end}'")
    frame = polars.DataFrame(flat, schema=names, orient="row", infer_schema_length=None)
    frame.write_parquet(tmp_path / "polars.parquet")
    with Ledger(16) as ledger:
        for item in items:
            ledger.change(item["pk"]["S"], item)
        ledger.clock.sleep(600)
        copies = [FileCopy(path) for path in sorted(tmp_path.iterdir())]
        assert len(copies) == 5
        for copy in copies:
            found = Verifier(ledger.sources(), copy).run()
            assert (found.items, found.differing) == (len(items), 0), (copy.label, found.found)
        lost: Item = {**items[0], "u": {"NULL": True}}  # in plain JSON a null says so
        ledger.change("item-0", lost)
        ledger.clock.sleep(600)
        (found_one,) = Verifier(ledger.sources(), FileCopy(made)).run().found
        assert [each.attribute for each in found_one.differences] == ["u"]


@pytest.mark.parametrize("line", [{"pk": "a", "v": "\ud83d"}, n(1, v={"S": "\ud83d"})])
def test_half_a_surrogate_pair_in_lines_is_compared(line: Item, tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_text(json.dumps(line))
    with Ledger(11) as ledger:
        ledger.change("a", n(1, v={"S": "\ud83d"}))
        ledger.clock.sleep(600)
        assert Verifier(ledger.sources(), FileCopy(path)).run().differing == 0
        ledger.change("a", n(1, v={"S": "x"}))
        ledger.clock.sleep(600)
        assert Verifier(ledger.sources(), FileCopy(path)).run().differing == 1


def test_what_leaves_the_stream_during_a_slow_scan_is_read_before_it() -> None:
    with Ledger(10) as ledger:
        for number in range(50):
            ledger.change(f"item-{number}", n(1, pk={"S": f"item-{number}"}, w=an_image(12)))
        ledger.clock.sleep(600)
        copy = HandCopy(dict(ledger.now))
        ledger.clock.sleep(60)
        ledger.change("item-1", n(2, pk={"S": "item-1"}))
        ledger.clock.sleep(6 * 3600)
        for number in range(10, 20):  # in all shards: the positions behind them live longer
            ledger.change(f"item-{number}", n(2, pk={"S": f"item-{number}"}, w=an_image(12)))
        limit = 50 * 12_288 / 4096 / (20 * 3600)  # the changes are older than a day after it
        sources = ledger.sources(SizedTables(ledger))
        lag = timedelta(hours=7)
        assert Verifier(sources, copy, lag=lag, read_limit=limit).run().differing == 0


def test_a_copy_that_cant_be_read_ends_the_scan_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_text('{"pk": "a"}\n[]\n')
    with Ledger(12) as ledger, pytest.raises(UsageError, match="a line is not an item"):
        Verifier(ledger.sources(EndlessTables(ledger)), FileCopy(path)).run()


def test_a_stream_that_is_younger_than_what_a_copy_may_lack_is_no_answer() -> None:
    with Ledger(17) as ledger:
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
def test_changes_that_leave_the_stream_during_a_scan_are_no_answer(has_token: bool) -> None:
    with Ledger(14) as ledger:
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


class SizedTables(DisturbedTables):
    """Tables whose size is known; the simulator tells none."""

    def named(self, arn: str) -> tuple[str, Description]:
        name, description = super().named(arn)
        return name, msgspec.structs.replace(description, size=50 * 12_288)


def test_a_difference_names_the_last_change_that_took_away_what_the_copy_has() -> None:
    with Ledger(9) as ledger:
        for key, states in STORIES.items():
            for state in states:
                put(ledger, key, state)
        ledger.write(20)
        numbers: dict[str, list[str]] = {}
        for written in ledger.simulator.records:
            numbers.setdefault(written.key, []).append(written.sequence_number)
        ledger.clock.sleep(600)
        there = dict(ledger.now)
        for key, item in COPIED.items():
            there.pop(key, None)
            if item is not None:
                there[key] = {**item, "pk": {"S": key}}
        for _ in range(2):  # before and after changes that the copy may lack
            found = Verifier(ledger.sources(), HandCopy(there)).run().found
            told = {
                f"{each.key['pk']['S']} {difference.attribute}": difference.missing
                and numbers[each.key["pk"]["S"]].index(difference.missing.number)
                for each in found
                for difference in each.differences
            }
            assert told == {
                "lost v": 1,
                "lost-early v": 1,
                "stale v": 1,
                "never None": 0,
                "removed None": 1,
                "by-hand v": None,
                "orphan None": None,
                "two v": 1,
                "two w": 2,
            }
            for key in ("lost", "by-hand"):
                put(ledger, key, v(5))
                put(ledger, key, STORIES[key][-1])


def v(number: int, **more: Item) -> Item:
    return {"v": {"N": str(number)}, **more}


STORIES: dict[str, list[Item | None]] = {
    "lost": [v(1), v(2)],
    "lost-early": [v(1), v(2), v(2, w={"S": "x"})],
    "stale": [v(1), v(2), v(3)],
    "never": [v(1), v(2)],
    "removed": [v(1), None],
    "by-hand": [v(1), v(2)],
    "two": [v(1, w={"S": "x"}), v(2, w={"S": "x"}), v(2)],
}
COPIED: dict[str, Item | None] = {
    "lost": v(1),
    "lost-early": v(1, w={"S": "x"}),
    "stale": v(1),
    "never": None,
    "removed": v(1),
    "by-hand": v(9),
    "orphan": v(1),
    "two": v(1, w={"S": "x"}),
}


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


def test_a_copy_that_its_library_cant_read_is_trouble() -> None:
    with Ledger(19) as ledger:
        ledger.change("a", n(1))
        ledger.clock.sleep(600)
        with pytest.raises(UsageError, match="can't read copy: 'footer'") as failed:
            Verifier(ledger.sources(), DamagedCopy({"a": n(1)})).run()
        assert failed.value.exit_status == 2
