"""Put it back: equal to a ledger without those changes, killed or not, whoever writes meanwhile."""

import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.ledger import DisturbedTables, Ledger, native
from tests.support.gate import DrippingCalls
from watcher.errors import DeniedError, StreamError, UsageError
from watcher.time_machine.table import TableHandle
from watcher.time_machine.undo import (
    Undo,
    open_plan,
    plan_revert,
    plan_undo,
)
from watcher.time_machine.undo_log import Outcome, WriteBack
from watcher.time_machine.undo_plan import AFTER_UNDO, DONE, OWN, PUT_BACK, ChangeFilter, UndoStep

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


def kept(made: Undo) -> list[str]:
    return [step.kept for step in made.kept]


def outcomes(made: Undo) -> dict[str, Outcome]:
    return {step.key.decode().split('"')[5]: outcome for step, outcome in made.apply(rate=FAST)}


@pytest.mark.parametrize("seed", range(3))
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
        back = plan_revert(made.path, ledger.connection)
        assert Outcome.CONFLICT not in outcomes(back).values()
        assert ledger.items() == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_write_it_goes_on(when: str, tmp_path: Path) -> None:
    for killed_at in (1, 4, 7):
        with Ledger(killed_at) as ledger:
            ledger.write(80)
            first = ledger.second + 1
            ledger.clock.sleep(1)
            ledger.write(40)
            last = ledger.second
            ledger.settle()
            before = ledger.items()
            expected, _ = ledger.without(first, last)
            writes = 0

            def kill(key: str) -> None:
                nonlocal writes
                writes += 1
                if writes >= killed_at:  # noqa: B023
                    raise KilledError

            hook = {f"{when}_write": kill}
            tables = DisturbedTables(ledger, **hook)  # type: ignore[arg-type]
            made = plan(ledger, first, last, tmp_path, tables)
            with pytest.raises(KilledError):
                outcomes(made)
            with open(made.path, "ab") as torn:
                torn.write(b'{"line":"resu')
            ledger.settle()

            done = outcomes(reopened(made, ledger))
            assert Outcome.CONFLICT not in done.values()
            assert ledger.items() == expected

            ledger.settle()
            outcomes(plan_revert(made.path, ledger.connection))
            assert ledger.items() == before


class KilledRun(NamedTuple):
    """A run of `undo --apply`, and what happens during it and before the next one."""

    killed_at: int
    """The number of the write at which it is killed; it has twelve at most."""
    is_written: bool
    """True if that write came through, and only its answer is lost."""
    meanwhile: dict[int, int]
    """The item that somebody else changes just before the write of this number."""
    afterwards: list[int]
    """The items that somebody else changes before the next run."""
    is_torn: bool
    """True if the log's last line is cut."""


@given(
    st.lists(
        st.builds(
            KilledRun,
            killed_at=st.integers(1, 13),
            is_written=st.booleans(),
            meanwhile=st.dictionaries(st.integers(1, 12), st.integers(0, 11), max_size=3),
            afterwards=st.lists(st.integers(0, 11), max_size=2),
            is_torn=st.booleans(),
        ),
        max_size=4,
    )
)
@settings(max_examples=8, deadline=None)
def test_killed_as_often_as_may_be_it_ends_and_overwrites_nobody(runs: list[KilledRun]) -> None:
    with Ledger(11) as ledger, TemporaryDirectory() as folder:
        names = [f"item-{number}" for number in range(12)]
        for value in ("1", "2"):
            ledger.clock.sleep(10)
            first = ledger.second
            for name in names:
                ledger.change(name, {"pk": {"S": name}, "v": {"N": value}})
        others: dict[str, str] = {}

        def interfere(number: int) -> None:
            others[names[number]] = f"{len(others)}th by somebody else"
            item = {"pk": {"S": names[number]}, "v": {"S": others[names[number]]}}
            ledger.simulator.put(item)

        ledger.settle()
        made = plan(ledger, first, first, Path(folder))
        for run in runs:
            _apply_and_kill(made, ledger, run, interfere)
            for number in run.afterwards:
                interfere(number)
            ledger.settle()
        outcomes(reopened(made, ledger) if made.path.exists() else made)

        found = {name: item["v"] for name, item in ledger.items().items()}
        assert found == {**dict.fromkeys(names, 1), **others}


def _apply_and_kill(
    made: Undo, ledger: Ledger, run: KilledRun, interfere: Callable[[int], None]
) -> None:
    writes = 0

    def before(key: str) -> None:
        nonlocal writes
        writes += 1
        if writes in run.meanwhile:
            interfere(run.meanwhile[writes])
        if writes >= run.killed_at and not run.is_written:
            raise KilledError

    def after(key: str) -> None:
        if writes >= run.killed_at and run.is_written:
            raise KilledError

    tables = DisturbedTables(ledger, before_write=before, after_write=after)
    if not made.path.exists():
        made.save()
    stream = ledger.sources(tables).stream
    with suppress(KilledError):
        outcomes(open_plan(made.path, ledger.connection, stream))
    if run.is_torn:
        with open(made.path, "ab") as torn:
            torn.write(b'{"line":"resu')


def one_bad_change(ledger: Ledger) -> int:
    """Item a becomes 1, and ten seconds later 2; in which second that was."""
    ledger.change("a", {"pk": {"S": "a"}, "v": {"N": "1"}})
    ledger.clock.sleep(10)
    bad = ledger.second
    ledger.change("a", {"pk": {"S": "a"}, "v": {"N": "2"}})
    ledger.settle()
    return bad


def test_what_others_write_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Between the look and the write: a value changed, removed, or an attribute added."""
    with Ledger(11, keys=12) as ledger:
        for number in range(12):
            key = f"item-{number}"
            ledger.change(key, {"pk": {"S": key}, "v": {"N": "1"}, "w": {"SS": ["x"]}})
        ledger.clock.sleep(10)
        first = ledger.second
        for number in range(12):
            key = f"item-{number}"
            ledger.change(key, {"pk": {"S": key}, "v": {"N": "2"}, "w": {"SS": ["x"]}})
        last = ledger.second
        ledger.settle()
        others: dict[str, Any] = {
            "item-1": {"pk": {"S": "item-1"}, "v": {"N": "3"}, "w": {"SS": ["x"]}},
            "item-2": {"pk": {"S": "item-2"}, "v": {"N": "2"}},
            "item-3": {"pk": {"S": "item-3"}, "v": {"N": "2"}, "w": {"SS": ["x"]}, "n": {"S": "!"}},
            "item-4": None,
        }
        waiting = dict(others)

        def interfere(key: str) -> None:
            if key in waiting:
                item = waiting.pop(key)
                if item is None:
                    ledger.simulator.remove(key)
                else:
                    ledger.simulator.put(item)

        tables = DisturbedTables(ledger, before_write=interfere)
        made = plan(ledger, first, last, tmp_path, tables)
        done = outcomes(made)

        assert {key for key, what in done.items() if what is Outcome.CONFLICT} == set(others)
        found = ledger.items()
        for key, item in others.items():
            assert found.get(key) == (None if item is None else native(item))
        assert found["item-5"]["v"] == 1
        back = outcomes(plan_revert(made.path, ledger.connection))
        assert not set(back) & set(others), "what was not written is not taken back"


def test_changes_in_between_that_are_not_chosen_are_conflicts(tmp_path: Path) -> None:
    """Bad, good, bad: to go back to before the first would lose the good one."""
    with Ledger(12) as ledger:
        for value in ("1", "2", "3", "4"):
            ledger.clock.sleep(10)
            item = {"pk": {"S": "a"}, "v": {"N": value}}
            item |= {"by": {"S": "deploy"}} if value in "24" else {}
            ledger.change("a", item)
        ledger.settle()
        pattern = '{"dynamodb": {"NewImage": {"by": {"S": ["deploy"]}}}}'
        choice = ChangeFilter(moment(ledger.second - 85), filters=[pattern])
        (step,) = plan_undo(ledger.sources(), choice, tmp_path / "undo.jsonl")
        assert step.conflict == "another change lies between those that are to be undone"


def test_what_was_undone_and_taken_back_can_be_undone_again(tmp_path: Path) -> None:
    with Ledger(20) as ledger:
        bad = one_bad_change(ledger)
        made = plan(ledger, bad, bad, tmp_path)
        outcomes(made)
        later = plan(ledger, bad, bad, tmp_path)
        assert (later.steps, kept(later)) == ([], ["an undo has put it back"])
        outcomes(made.revert())
        ledger.settle()
        assert outcomes(plan(ledger, bad, bad, tmp_path)) == {"a": Outcome.RESTORED}
        assert ledger.items()["a"]["v"] == 1


def test_who_changes_an_item_after_its_undo_has_meant_it(tmp_path: Path) -> None:
    """Removed (bad), put back, removed by a person: by the same plan, and by a new one."""
    with Ledger(26) as ledger:
        ledger.change("a", {"pk": {"S": "a"}})
        ledger.clock.sleep(10)
        bad = ledger.second
        ledger.change("a", {"pk": {"S": "a"}, "bad": {"BOOL": True}})
        ledger.settle()
        made = plan(ledger, bad, bad, tmp_path)
        assert outcomes(made) == {"a": Outcome.RESTORED}
        ledger.clock.sleep(60)
        meant = ledger.second
        ledger.change("a", {"pk": {"S": "a"}, "bad": {"BOOL": True}})
        ledger.settle()
        again = reopened(made, ledger)
        assert outcomes(again) == {"a": Outcome.ALREADY}
        assert [step.kept for step in again.kept + again.steps] == [DONE]
        for last in (bad, ledger.second):
            later = plan(ledger, bad, last, tmp_path)
            assert [step.conflict for step in later] == [AFTER_UNDO]
            assert outcomes(later) == {"a": Outcome.CONFLICT}
        assert "bad" in ledger.items()["a"]
        after = plan(ledger, meant, meant, tmp_path)
        assert outcomes(after) == {"a": Outcome.RESTORED}, "that change alone can be chosen"


def test_a_write_that_a_kill_left_open_is_looked_up_in_the_stream(tmp_path: Path) -> None:
    """It was made, and a person set the item again to what the plan knows: that stays."""
    with Ledger(27) as ledger:
        bad = one_bad_change(ledger)

        def kill(key: str) -> None:
            raise KilledError

        made = plan(ledger, bad, bad, tmp_path, DisturbedTables(ledger, after_write=kill))
        with pytest.raises(KilledError):
            outcomes(made)
        assert ledger.items()["a"]["v"] == 1
        ledger.clock.sleep(10)
        ledger.change("a", {"pk": {"S": "a"}, "v": {"N": "2"}})
        ledger.settle()
        for _ in range(2):
            assert outcomes(reopened(made, ledger)) == {"a": Outcome.ALREADY}
            assert ledger.items()["a"]["v"] == 2


def test_without_the_stream_a_write_that_a_kill_left_open_is_a_conflict(tmp_path: Path) -> None:
    with Ledger(28) as ledger:
        bad = one_bad_change(ledger)

        def kill(key: str) -> None:
            raise KilledError

        made = plan(ledger, bad, bad, tmp_path, DisturbedTables(ledger, before_write=kill))
        with pytest.raises(KilledError):
            outcomes(made)
        denied = {"auth_error": "AccessDeniedException", "auth_operations": ("DescribeStream",)}
        with ledger.simulator.faulty(**denied):
            later = reopened(made, ledger)
            assert outcomes(later) == {"a": Outcome.CONFLICT}
        assert "the stream does not tell" in later.steps[0].conflict
        assert outcomes(reopened(made, ledger)) == {"a": Outcome.RESTORED}


def test_what_others_have_put_right_is_listed_with_its_reason(tmp_path: Path) -> None:
    with Ledger(29) as ledger:
        for key in "abc":
            ledger.change(key, {"pk": {"S": key}, "v": {"N": "1"}})
        ledger.clock.sleep(10)
        first = ledger.second
        for key in "abc":
            ledger.change(key, {"pk": {"S": key}, "v": {"N": "2"}})
        ledger.change("c", {"pk": {"S": "c"}, "v": {"N": "1"}})
        ledger.clock.sleep(10)
        for key, value in (("a", "1"), ("b", "1"), ("b", "2"), ("c", "3")):
            ledger.change(key, {"pk": {"S": key}, "v": {"N": value}})
        ledger.settle()
        made = plan(ledger, first, first + 1, tmp_path)
        assert {step.key[12:13]: step.kept for step in made.kept} == {
            b"a": "it is as it was before",
            b"c": "the changes themselves have put it back",
        }
        assert [(step.key[12:13], step.conflict) for step in made] == [(b"b", PUT_BACK)]


def test_one_process_at_a_time_applies_a_plan(tmp_path: Path) -> None:
    with Ledger(30) as ledger:
        bad = one_bad_change(ledger)
        made = plan(ledger, bad, bad, tmp_path)
        made.save()
        first = reopened(made, ledger).apply(rate=FAST)
        with pytest.raises(UsageError, match="it is in use: another process applies it"):
            reopened(made, ledger).apply()
        assert [outcome for _, outcome in first] == [Outcome.RESTORED]
        with pytest.raises(UsageError, match="it already exists"):
            plan_undo(ledger.sources(), ChangeFilter(moment(bad)), made.path).save()


def test_a_removal_by_time_to_live_comes_back_only_if_asked_for(tmp_path: Path) -> None:
    with Ledger(13) as ledger:
        ledger.change("a", {"pk": {"S": "a"}})
        ledger.change("b", {"pk": {"S": "b"}})
        ledger.clock.sleep(10)
        first = ledger.second
        ledger.simulator.remove("a", ttl=True)
        ledger.simulator.remove("b")
        ledger.settle()
        assert [step.key for step in plan(ledger, first, first, tmp_path, only=None)] == [
            b'{"pk":{"S":"b"}}'
        ]
        assert [step.key for step in plan(ledger, first, first, tmp_path, only="ttl")] == [
            b'{"pk":{"S":"a"}}'
        ]


def in_a_replica(ledger: Ledger) -> int:
    """Items that expired and were removed without a name, and one that somebody removed."""
    expired = ledger.second - 3600
    ledger.simulator.replicate("expires")
    for key, value in (
        ("expired", {"N": str(expired)}),
        ("later", {"N": str(ledger.second + 3600)}),
        ("ancient", {"N": str(expired - 6 * 365 * 86_400)}),
        ("text", {"S": str(expired)}),
    ):
        ledger.change(key, {"pk": {"S": key}, "expires": value})
    ledger.change("none", {"pk": {"S": "none"}})
    ledger.clock.sleep(10)
    first = ledger.second
    for key in ("expired", "later", "ancient", "text", "none"):
        ledger.simulator.remove(key)
    ledger.settle()
    return first


def keys(made: Iterable[UndoStep]) -> set[str]:
    return {step.key.decode().split('"')[5] for step in made}


def test_what_expired_in_another_region_comes_back_only_if_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with Ledger(31) as ledger:
        first = in_a_replica(ledger)
        made = plan(ledger, first, first, tmp_path, only=None)
        assert keys(made) == {"later", "ancient", "text", "none"}
        (kept,) = made.kept
        assert keys([kept]) == {"expired"} and kept.kept == "it expired; --only ttl puts that back"
        assert keys(plan(ledger, first, first, tmp_path, only="ttl")) == {"expired"}


def test_a_role_that_may_not_ask_for_time_to_live_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(32) as ledger:
        first = in_a_replica(ledger)
        denied = {
            "auth_error": "AccessDeniedException",
            "auth_operations": ("DescribeTimeToLive",),
        }
        with ledger.simulator.faulty(**denied):
            assert "expired" in keys(plan(ledger, first, first, tmp_path, only=None))
        assert len(caplog.messages) == 1
        assert "it takes dynamodb:DescribeTimeToLive to tell them" in caplog.messages[0]


def test_a_table_that_is_no_replica_names_what_has_expired(tmp_path: Path) -> None:
    with Ledger(33) as ledger:
        ledger.change("a", {"pk": {"S": "a"}, "expires": {"N": str(ledger.second - 60)}})
        ledger.clock.sleep(10)
        first = ledger.second
        ledger.simulator.remove("a")
        ledger.settle()
        assert keys(plan(ledger, first, first, tmp_path, only=None)) == {"a"}
        assert "DescribeTimeToLive" not in ledger.simulator.calls


def test_force_puts_back_what_was_changed_since(tmp_path: Path) -> None:
    with Ledger(14) as ledger:
        for value in ("1", "2", "3"):
            ledger.change("a", {"pk": {"S": "a"}, "v": {"N": value}})
            ledger.clock.sleep(10)
        ledger.settle()
        second = ledger.second - 80
        made = plan(ledger, second, second, tmp_path)
        assert [step.conflict for step in made] == ["it was changed since"]
        assert [what for _, what in made.apply(rate=FAST, force=True)] == [Outcome.RESTORED]
        assert ledger.items()["a"]["v"] == 1
        outcomes(made.revert())
        assert ledger.items()["a"]["v"] == 3


def test_an_undo_is_told_apart_from_the_changes_of_others(tmp_path: Path) -> None:
    """A later undo over an interval with the writes of a former one leaves those alone."""
    with Ledger(15) as ledger:
        bad = one_bad_change(ledger)
        made = plan(ledger, bad, bad, tmp_path)
        outcomes(made)
        after = ledger.second
        ledger.settle()
        later = plan(ledger, bad + 1, ledger.second, tmp_path)
        assert (later.steps, kept(later)) == ([], [OWN])
        made.path.unlink()
        assert len(plan(ledger, after, ledger.second, tmp_path).steps) == 1


def test_a_large_item_is_compared_whole(tmp_path: Path) -> None:
    """With more attributes than a condition has room for."""
    with Ledger(16) as ledger:
        many = {f"attribute-{number}": {"N": str(number)} for number in range(400)}
        ledger.change("a", {"pk": {"S": "a"}, **many})
        ledger.clock.sleep(10)
        first = ledger.second
        ledger.change("a", {"pk": {"S": "a"}, **many, "attribute-7": {"S": "bad"}})
        ledger.settle()
        other = {"pk": {"S": "a"}, **many, "attribute-7": {"S": "bad"}, "attribute-399": {"N": "0"}}
        waiting = [other]
        tables = DisturbedTables(
            ledger, before_write=lambda key: waiting and ledger.simulator.put(waiting.pop())
        )
        assert outcomes(plan(ledger, first, first, tmp_path, tables)) == {"a": Outcome.CONFLICT}
        assert ledger.items()["a"] == native(other)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with Ledger(17) as ledger:
        ledger.write(10)
        ledger.settle()
        now = ledger.second
        with pytest.raises(UsageError, match="is before what orders holds"):
            plan(ledger, now - 7200, now, tmp_path)
        with pytest.raises(UsageError, match=r"until .*: it is before the beginning"):
            plan(ledger, now, now - 5, tmp_path)
        with pytest.raises(UsageError, match="key id: no such key attribute"):
            plan(ledger, now - 10, now, tmp_path, key=["id=1"])
        with pytest.raises(UsageError, match="start: give the time of the first change"):
            ChangeFilter(None)
        other = tmp_path / "other.jsonl"
        other.write_text("{}\n")
        with pytest.raises(UsageError, match="it is not an undo plan"):
            plan_revert(other, ledger.connection)
        with pytest.raises(UsageError, match="it is not an undo plan"):
            open_plan(other, ledger.connection)
        with pytest.raises(UsageError, match="rate 0: give more than 0"):
            list(plan(ledger, now - 10, now, tmp_path).apply(rate=0))


def test_a_role_that_may_only_read_gets_the_plan(tmp_path: Path) -> None:
    with Ledger(18) as ledger:
        ledger.change("item-1", {"pk": {"S": "item-1"}})
        ledger.clock.sleep(10)
        first = ledger.second
        ledger.change("item-1", {"pk": {"S": "item-1"}, "new": {"S": "x"}})
        ledger.settle()
        before = ledger.items()
        made = plan(ledger, first, first, tmp_path)
        denied = {"auth_error": "AccessDeniedException", "auth_operations": ("PutItem",)}
        with ledger.simulator.faulty(**denied):
            assert made.steps
            with pytest.raises(DeniedError, match="the role needs dynamodb:PutItem on"):
                outcomes(made)
        assert ledger.items() == before


def test_new_images_are_needed(tmp_path: Path) -> None:
    with Ledger(19) as ledger:
        ledger.simulator.enable_new_stream(view_type="OLD_IMAGE")
        ledger.write(5)
        with pytest.raises(StreamError, match="view type is OLD_IMAGE"):
            plan(ledger, ledger.second, ledger.second, tmp_path)


def test_an_equal_change_by_somebody_else_is_not_taken_for_the_undo_s_own(tmp_path: Path) -> None:
    """On, off (bad), on (undone), off (meant), on (bad again)."""
    with Ledger(21) as ledger:
        on, off = ({"pk": {"S": "a"}, "v": {"S": value}} for value in ("on", "off"))
        ledger.change("a", on)
        ledger.clock.sleep(10)
        bad = ledger.second
        ledger.change("a", off)
        ledger.settle()
        assert outcomes(plan(ledger, bad, bad, tmp_path)) == {"a": Outcome.RESTORED}
        for pause in (1, 60):
            ledger.clock.sleep(pause)
            ledger.change("a", off)
            ledger.clock.sleep(pause)
            first = bad + 1 if pause == 1 else ledger.second
            ledger.change("a", on)
            last = ledger.second
            ledger.settle()
            turned_on = ['{"dynamodb": {"NewImage": {"v": {"S": ["on"]}}}}']
            made = plan_undo(
                ledger.sources(),
                ChangeFilter(moment(first), moment(last), filters=turned_on),
                new_path(tmp_path),
            )
            (step,) = made
            assert step.before is not None and b"off" in step.before
            assert step.conflict == (AFTER_UNDO if pause == 1 else "")


def test_a_write_is_told_by_any_log_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"eventName":"INSERT"}\n')
    (tmp_path / "pretty.jsonl").write_text('{\n  "eventName": "INSERT"\n}\n')
    with Ledger(22) as ledger:
        bad = one_bad_change(ledger)
        choice = ChangeFilter(moment(bad), moment(bad))
        outcomes(plan_undo(ledger.sources(), choice, tmp_path / "mine.jsonl"))
        ledger.settle()
        later = plan(ledger, bad + 1, ledger.second, tmp_path)
        assert (later.steps, kept(later)) == ([], [OWN])


def test_an_equal_change_soon_after_an_undo_is_somebody_elses(tmp_path: Path) -> None:
    """Ours lies before what is chosen: it has to be read all the same, to be told apart."""
    with Ledger(25) as ledger:
        bad = one_bad_change(ledger)
        outcomes(plan(ledger, bad, bad, tmp_path))
        ledger.clock.sleep(2)
        ledger.change("a", {"pk": {"S": "a"}, "v": {"N": "2"}})
        ledger.clock.sleep(2)
        again = ledger.second
        ledger.change("a", {"pk": {"S": "a"}, "v": {"N": "1"}})
        ledger.settle()
        later = plan(ledger, again, again, tmp_path)
        assert (kept(later), len(later.steps)) == ([], 1)


def test_a_log_of_a_former_version_without_times_is_still_one(tmp_path: Path) -> None:
    with Ledger(24) as ledger:
        bad = one_bad_change(ledger)
        made = plan(ledger, bad, bad, tmp_path)
        outcomes(made)
        lines = [each for each in made.path.read_text().splitlines(True) if '"step"' not in each]
        made.path.write_text(re.sub(r',"(at|start|until)":("[^"]*"|null)', "", "".join(lines)))
        assert not re.search('"at"|"step"|"start"', made.path.read_text())
        ledger.settle()
        later = plan(ledger, bad + 1, ledger.second, tmp_path)
        assert (later.steps, kept(later)) == ([], [OWN])
        with pytest.raises(UsageError, match="it holds no plan"):
            reopened(made, ledger)
        assert outcomes(plan_revert(made.path, ledger.connection)) == {"a": Outcome.RESTORED}


def test_ctrl_c_waits_for_no_call_that_drips() -> None:
    asked = iter(range(9))
    nothing: Any = None

    class Tables:
        def get(self, table: str, key: object) -> None:
            calls.drip(next(asked))

    tables: Any = Tables()
    made = WriteBack(TableHandle(tables, "orders", nothing), nothing, FAST)
    steps = [UndoStep(b'{"pk":{"S":"%d"}}' % number, None, None, None) for number in range(3)]
    with DrippingCalls() as calls:
        with pytest.raises(KeyboardInterrupt):
            list(made.run(steps))
        assert not calls.ended
