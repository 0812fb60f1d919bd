"""Put it back: equal to a ledger without those changes, killed or not, whoever writes meanwhile."""

import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.ledger import DisturbedTables, Ledger, native
from watcher.errors import DeniedError, StreamError, UsageError
from watcher.records.filters import record_filter
from watcher.records.record import Record
from watcher.time_machine.as_of import image_before
from watcher.time_machine.counts import Counts
from watcher.time_machine.history import item_history
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.undo import Undo, open_plan, plan_undo
from watcher.time_machine.undo_plan import (
    AS_BEFORE,
    BETWEEN,
    CHANGED,
    NOT_WRITTEN,
    ChangeFilter,
    UndoPlanner,
    UndoStep,
)
from watcher.time_machine.write_back import Outcome

FAST = 1e9


class KilledError(Exception):
    """The program ends here."""


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def plan(
    ledger: Ledger,
    first: int,
    last: int,
    folder: Path,
    tables: DisturbedTables | None = None,
    only: str | None = "insert,modify,remove,ttl",
    key: list[str] | None = None,
) -> Undo:
    choice = ChangeFilter(moment(first), moment(last), only=only, key=key)
    return plan_undo(ledger.sources(tables), choice, new_path(folder))


def new_path(folder: Path) -> Path:
    return next(path for n in count(1) if not (path := folder / f"undo-{n}.jsonl").exists())


def reopened(made: Undo, ledger: Ledger) -> Undo:
    """The plan as a later run reads it from its file."""
    return open_plan(made.path, ledger.connection, ledger.sources().stream)


def taken_back(made: Undo, ledger: Ledger) -> Undo:
    """The plan to revert another, as a later run makes it from its file."""
    return reopened(made, ledger).revert()


def name_of(step: UndoStep) -> str:
    return bytes(step.key).decode().split('"')[5]


def outcomes(made: Undo) -> dict[str, Outcome]:
    return {name_of(step): outcome for step, outcome in made.apply(write_limit=FAST)}


@pytest.mark.parametrize("seed", range(2))
def test_the_table_is_as_it_would_be_without_the_changes(seed: int, tmp_path: Path) -> None:
    with Ledger(seed) as ledger:
        ledger.write(200)
        first = ledger.second + 1
        ledger.clock.sleep(1)
        ledger.write(60)
        last = ledger.second
        ledger.clock.sleep(1)
        ledger.write(10)
        ledger.settle()
        before = ledger.items()
        expected, conflicts = ledger.without(first, last)
        assert conflicts
        assert expected != before

        made = plan(ledger, first, last, tmp_path)
        assert ledger.items() == before, "a plan writes nothing"
        assert not made.path.exists()
        done = outcomes(made)

        assert ledger.items() == expected
        assert {key for key, what in done.items() if what is Outcome.CONFLICT} == conflicts
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o600

        ledger.settle()
        back = taken_back(made, ledger)
        assert Outcome.CONFLICT not in outcomes(back).values()
        assert ledger.items() == before


@given(
    st.lists(
        st.tuples(
            st.integers(1, 13),  # the write at which it is killed; it has twelve at most
            st.booleans(),  # whether that write came through, and only its answer is lost
            # The item that somebody else changes just before the write of this number.
            st.dictionaries(st.integers(1, 12), st.integers(0, 11), max_size=3),
            st.lists(st.integers(0, 11), max_size=2),  # and before the next run
        ),
        max_size=4,
    )
)
@settings(max_examples=8, deadline=None)
def test_killed_as_often_as_may_be_it_ends_and_overwrites_nobody(
    runs: list[tuple[int, bool, dict[int, int], list[int]]],
) -> None:
    with Ledger(11) as ledger, TemporaryDirectory() as folder:
        names = [f"item-{number}" for number in range(12)]
        first = states(ledger, dict.fromkeys(names, "1"), dict.fromkeys(names, "2"))
        others: dict[str, str] = {}

        def interfere(number: int) -> None:
            others[names[number]] = f"{len(others)}th by somebody else"
            item = {"pk": {"S": names[number]}, "v": {"S": others[names[number]]}}
            ledger.simulator.put(item)

        made = plan(ledger, first, first, Path(folder))
        made.save()
        for run in runs:
            apply_and_kill(made, ledger, run, interfere)
            for number in run[-1]:
                interfere(number)
            ledger.settle()
        outcomes(reopened(made, ledger))

        found = {name: item["v"] for name, item in ledger.items().items()}
        assert found == {**dict.fromkeys(names, 1), **others}


def apply_and_kill(
    made: Undo,
    ledger: Ledger,
    run: tuple[int, bool, dict[int, int], list[int]],
    interfere: Callable[[int], None],
) -> None:
    killed_at, is_written, meanwhile, _ = run
    writes: list[str] = []

    def before(key: str) -> None:
        writes.append(key)
        if len(writes) in meanwhile:
            interfere(meanwhile[len(writes)])
        if len(writes) >= killed_at and not is_written:
            raise KilledError

    def after(key: str) -> None:
        if len(writes) >= killed_at and is_written:
            raise KilledError

    tables = DisturbedTables(ledger, before_write=before, after_write=after)
    with suppress(KilledError):
        outcomes(open_plan(made.path, ledger.connection, ledger.sources(tables).stream))


def states(ledger: Ledger, *each: Mapping[str, str | None]) -> int:
    """Items are set to these values, or removed, ten seconds apart; the last one's second."""
    for values in each:
        ledger.clock.sleep(10)
        second = ledger.second
        for key, value in values.items():
            set_to(ledger, key, value)
    ledger.settle()
    return second


def set_to(ledger: Ledger, key: str, value: str | None) -> None:
    if value is None:
        ledger.simulator.remove(key)
        ledger.note(key, None)
    else:
        ledger.change(key, {"pk": {"S": key}, "v": {"N": value}})


def test_what_others_write_meanwhile_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    """Between the look and the write: a value changed, an attribute added, an item removed."""
    keys = [f"item-{number}" for number in range(12)]
    first = states(ledger, dict.fromkeys(keys, "1"), dict.fromkeys(keys, "2"))
    others: dict[str, Any] = {
        "item-1": {"pk": {"S": "item-1"}, "v": {"N": "3"}},
        "item-2": {"pk": {"S": "item-2"}},
        "item-3": {"pk": {"S": "item-3"}, "v": {"N": "2"}, "n": {"S": "!"}},
        "item-4": None,
    }
    waiting = dict(others)

    def interfere(key: str) -> None:
        if key in waiting:
            if item := waiting.pop(key):
                ledger.simulator.put(item)
            else:
                ledger.simulator.remove(key)

    made = plan(ledger, first, first, tmp_path, DisturbedTables(ledger, before_write=interfere))
    done = outcomes(made)

    assert {key for key, what in done.items() if what is Outcome.CONFLICT} == set(others)
    kept = {key: item and native(item) for key, item in others.items()}
    assert {key: ledger.items().get(key) for key in others} == kept
    assert ledger.items()["item-5"]["v"] == 1
    back = taken_back(made, ledger)
    assert {name_of(step) for step in back.conflicts} == set(others)
    outcomes(back)
    found = {key: ledger.items().get(key) for key in others}
    assert found == kept, "what was not written is not taken back"


def test_a_plan_that_was_reverted_is_new_again(ledger: Ledger, tmp_path: Path) -> None:
    bad = states(ledger, {"a": "1"}, {"a": "2"})
    made = plan(ledger, bad, bad, tmp_path)
    made.save()
    for _ in range(3):
        assert outcomes(reopened(made, ledger)) == {"a": Outcome.RESTORED}
        assert ledger.items()["a"]["v"] == 1
        assert outcomes(reopened(made, ledger)) == {"a": Outcome.ALREADY}
        back = taken_back(made, ledger)
        assert outcomes(back) == {"a": Outcome.RESTORED}
        assert ledger.items()["a"]["v"] == 2
    with pytest.raises(UsageError, match="which can be applied again"):
        taken_back(back, ledger)
    outcomes(reopened(made, ledger))
    states(ledger, {"a": "2"})  # one more time than it was reverted: somebody means it
    assert outcomes(reopened(made, ledger)) == {"a": Outcome.CONFLICT}
    assert ledger.items()["a"]["v"] == 2


def test_after_a_kill_what_somebody_has_set_again_stays(ledger: Ledger, tmp_path: Path) -> None:
    bad = states(ledger, {"a": "1"}, {"a": "2"})
    made = plan(ledger, bad, bad, tmp_path)
    made.save()
    apply_and_kill(made, ledger, (1, True, {}, []), lambda _: None)
    assert ledger.items()["a"]["v"] == 1
    states(ledger, {"a": "2"})  # as the plan knows it
    for _ in range(2):
        assert outcomes(reopened(made, ledger)) == {"a": Outcome.CONFLICT}
        assert ledger.items()["a"]["v"] == 2


@pytest.mark.parametrize("is_planned_before", [False, True])
@pytest.mark.parametrize("values", [("2", None), ("1", None), ("3", "2", None)])
def test_a_change_after_the_window_is_a_conflict_whatever_the_item_looks_like(
    values: tuple[str | None, ...], is_planned_before: bool, ledger: Ledger, tmp_path: Path
) -> None:
    """Removed in the window, put back by somebody, and removed by another."""
    bad = states(ledger, {"a": "1"}, {"a": None})
    made = plan(ledger, bad, bad, tmp_path) if is_planned_before else None
    states(ledger, *({"a": value} for value in values))
    made = made or plan(ledger, bad, bad, tmp_path)
    assert outcomes(made) == {"a": Outcome.CONFLICT}
    assert [step.conflict for step in made] == [CHANGED]
    assert ledger.items() == {}


def test_changes_of_others_between_chosen_ones_are_a_conflict_though_they_cancel_out(
    ledger: Ledger, tmp_path: Path
) -> None:
    last = states(ledger, *({"a": value} for value in "12324"))
    of_two = '{"dynamodb": {"NewImage": {"v": {"N": ["2"]}}, "OldImage": {"v": {"N": ["1"]}}}}'
    of_four = '{"dynamodb": {"NewImage": {"v": {"N": ["4"]}}}}'
    choice = ChangeFilter(moment(last - 45), filters=[of_two, of_four])
    (step,) = plan_undo(ledger.sources(), choice, tmp_path / "undo.jsonl")
    assert step.conflict == BETWEEN


def test_a_plan_whose_changes_since_are_not_known_writes_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    bad = states(ledger, {"a": "1"}, {"a": "2"})
    made = plan(ledger, bad, bad, tmp_path)
    made.save()
    denied = {"auth_error": "AccessDeniedException", "auth_operations": ("DescribeStream",)}
    with ledger.simulator.faulty(**denied), pytest.raises(DeniedError):
        outcomes(reopened(made, ledger))
    ledger.clock.sleep(25 * 3600)
    with pytest.raises(UsageError, match=r"is not known \(.*\): make a new one"):
        outcomes(reopened(made, ledger))
    assert ledger.items()["a"]["v"] == 2


def test_what_a_plan_has_not_written_is_not_taken_back(ledger: Ledger, tmp_path: Path) -> None:
    bad = states(ledger, {"a": "1", "b": "1"}, {"a": "2", "b": "2"})
    made = plan(ledger, bad, bad, tmp_path)
    made.save()
    with pytest.raises(UsageError, match=" wrote nothing"):
        made.revert()
    done = made.apply(write_limit=1.0)  # a second's batch is one item
    next(done)
    del done
    ledger.settle()
    back = taken_back(made, ledger)
    assert (len(back.steps), [step.kept for step in back.kept]) == (1, [NOT_WRITTEN])


def test_a_removal_of_nothing_is_no_obstacle() -> None:
    """As some services report it: a REMOVE without an old image."""

    def removal(view: str) -> Record:
        change = {"SequenceNumber": "1", "Keys": {"pk": {"S": "a"}}, "StreamViewType": view}
        return Record.from_json(msgspec.json.encode({"eventName": "REMOVE", "dynamodb": change}))

    nothing, unknown = removal("NEW_AND_OLD_IMAGES"), removal("NEW_IMAGE")
    planner = UndoPlanner(lambda _: True)
    planner.on_record(nothing)
    assert [step.kept for step in planner.steps()] == [AS_BEFORE]
    assert image_before(nothing) == b""
    with pytest.raises(StreamError, match="lacks an image"):
        planner.on_record(unknown)
    with pytest.raises(StreamError, match="has no old image"):
        image_before(unknown)


def test_a_removal_by_time_to_live_comes_back_only_if_asked_for(
    ledger: Ledger, tmp_path: Path
) -> None:
    states(ledger, {"a": "1", "b": "1"})
    first = ledger.second
    ledger.simulator.remove("a", ttl=True)
    ledger.simulator.remove("b")
    ledger.settle()
    for only, key in ((None, "b"), ("ttl", "a")):
        assert keys(plan(ledger, first, first, tmp_path, only=only)) == {key}


def test_what_expired_in_another_region_is_told_alike_by_every_command(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There it is removed without a name; and items that have not expired are removed."""
    expired = ledger.second - 3600
    ledger.simulator.replicate("expires")
    for key, value in (
        ("expired", {"N": str(expired)}),
        ("later", {"N": str(ledger.second + 3600)}),
        ("ancient", {"N": str(expired - 6 * 365 * 86_400)}),
        ("text", {"S": str(expired)}),
    ):
        ledger.change(key, {"pk": {"S": key}, "expires": value})
    states(ledger, {"none": "1"})
    first = ledger.second
    for key in ("expired", *(others := {"later", "ancient", "text", "none"})):
        ledger.simulator.remove(key)
    ledger.settle()

    made = plan(ledger, first, first, tmp_path, only=None)
    assert keys(made) == others
    (kept,) = made.kept
    assert name_of(kept) == "expired" and kept.kept == "it expired; --only ttl puts that back"
    assert keys(plan(ledger, first, first, tmp_path, only="ttl")) == {"expired"}
    only = record_filter(only="ttl")
    assert only is not None
    sources = ledger.sources()
    sources.open(moment(first), only.matching_indexes, tells_expiry=True)
    counts = Counts(["kind", "key"]).add(filter(only, sources.records()))
    assert [row.values for row in counts.rows(0)] == [("TTL", "pk=expired")]
    for key, is_expired in (("expired", True), ("later", False)):
        found = item_history(ledger.sources(), ItemKey({"pk": key}), moment(first))
        assert [each.expired_by_ttl for each in found] == [is_expired]

    denied = {"auth_error": "AccessDeniedException", "auth_operations": ("DescribeTimeToLive",)}
    caplog.clear()
    with ledger.simulator.faulty(**denied):
        assert "expired" in keys(plan(ledger, first, first, tmp_path, only=None))
    (line,) = caplog.messages
    assert "it takes dynamodb:DescribeTimeToLive to tell them" in line


def keys(made: Undo) -> set[str]:
    return {name_of(step) for step in made}


@pytest.mark.parametrize("others", [{"N": "0"}, {"S": "half a pair: \ud83d"}])
def test_a_large_item_is_compared_whole(
    others: dict[str, str], ledger: Ledger, tmp_path: Path
) -> None:
    """With more attributes than a condition has room for; what another wrote comes back whole."""
    many = {"pk": {"S": "a"}, **{f"attribute-{n}": {"N": str(n)} for n in range(400)}}
    ledger.change("a", many)
    ledger.clock.sleep(10)
    first = ledger.second
    ledger.change("a", bad := many | {"attribute-7": {"S": "bad"}})
    ledger.settle()
    other = bad | {"attribute-399": others}
    waiting = [other]
    tables = DisturbedTables(
        ledger, before_write=lambda key: waiting and ledger.simulator.put(waiting.pop())
    )
    assert outcomes(plan(ledger, first, first, tmp_path, tables)) == {"a": Outcome.CONFLICT}
    assert tables.get("orders", {"pk": {"S": "a"}}) == other


@pytest.mark.parametrize("hours", [0, 30])
def test_the_first_second_that_an_error_names_is_taken(
    hours: int, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.clock.sleep(0.4)
    ledger.simulator.enable_new_stream()
    ledger.write(5)
    ledger.clock.sleep(hours * 3600 + 1)
    ledger.write(5)
    ledger.settle()
    with pytest.raises(UsageError, match="is before what orders holds") as refused:
        plan(ledger, ledger.second - 80 * 3600, ledger.second, tmp_path)
    named = str(refused.value).partition("which begins ")[2].partition(";")[0]
    ledger.clock.sleep(20)
    plan(ledger, int(datetime.fromisoformat(named).timestamp()), ledger.second, tmp_path)
