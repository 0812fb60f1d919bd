"""A mirror is equal to a scan, whatever is written meanwhile and whenever it is killed."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tests.ledger.ledger import DisturbedTables, Item, Ledger
from tests.support import exports
from watcher.aws.arns import table_of
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.model import Listing, WireValue
from watcher.aws.tables import TablesClient
from watcher.call_pool import CallPool
from watcher.errors import DataLossError, StreamError, UsageError, WatcherError
from watcher.mirror import table
from watcher.mirror.columns import given_columns, item_of, kind_of
from watcher.mirror.job import MirrorJob
from watcher.mirror.table import MirrorTable
from watcher.mirror.versions import COPIED, OWN, MirrorForm
from watcher.records.redaction import Redaction, redaction
from watcher.time_machine.copied_items import Form, differing_names, parsed_value, plain_value
from watcher.time_machine.exports import Export
from watcher.time_machine.table import TableHandle

NOT_ATTRIBUTES = (*OWN, "_rescued_data")


def job(
    ledger: Ledger,
    to: Path,
    tables: TablesClient | None = None,
    *,
    service: StreamsClient | None = None,
    redaction: Redaction | None = None,
    form: Mapping[str, Any] | None = None,
    **more: Any,
) -> MirrorJob:
    tables, arn = tables or TablesClient(ledger.connection), ledger.simulator.stream_arn
    name, description = tables.named(table_of(arn))
    return MirrorJob(
        arn=arn,
        service=service or StreamsClient(ledger.connection),
        table=TableHandle(tables, name, description),
        mirror=MirrorTable(str(to)),
        form=MirrorForm.of(arn, description.types, redaction=redaction, **form or {}),
        redaction=redaction,
        once=True,
        calls=CallPool(threads=False),
        clock=ledger.clock,
        **more,
    )


def run(mirror: MirrorJob) -> MirrorJob:
    mirror.run(1.0, lambda: False)
    return mirror


def rows(to: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(to)).to_pyarrow_table().to_pylist()
    return found


def item_in(row: dict[str, Any], schema: pa.Schema) -> dict[str, WireValue]:
    """A row's item, from its columns and what was rescued."""
    item = dict(item_of((row["_rescued_data"] or "{}").encode()))
    for name, value in row.items():
        if value is not None and name not in NOT_ATTRIBUTES:
            kind = kind_of(schema.field(name))
            has_json = kind in ("M", "L", "NS", "BS")
            item[name] = {"SS": value} if kind == "SS" else plain_value(value)
            item[name] = parsed_value(value) if has_json else item[name]
    return item


def is_same(wanted: Item, found: dict[str, WireValue]) -> bool:
    """An attribute that is null has no value in a table either."""
    some = {name: value for name, value in wanted.items() if "NULL" not in value}
    return not differing_names(some, found, Form.JSON)


def current(to: Path) -> dict[str, dict[str, WireValue]]:
    schema = MirrorTable(str(to)).schema
    found = [item_in(row, schema) for row in rows(to) if row.get("_valid_to") is None]
    by_key = {str(item["pk"]["S"]): item for item in found}
    assert len(found) == len(by_key)
    return by_key


def is_equal(to: Path, ledger: Ledger) -> bool:
    found = current(to)
    return found.keys() == ledger.now.keys() and all(
        is_same(item, found[key]) for key, item in ledger.now.items()
    )


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def test_its_history_is_every_version_with_its_time(to: Path, ledger: Ledger) -> None:
    ledger.write(80)
    ledger.clock.sleep(3600)
    before = dict(ledger.now)
    first = ledger.second
    disturbed = DisturbedTables(ledger, lambda: ledger.write(10))
    run(job(ledger, to, disturbed, form={"history": True}))
    for _ in range(3):
        ledger.write(50)
        ledger.settle()
        run(job(ledger, to, form={"history": True}))
    schema = MirrorTable(str(to)).schema
    found: dict[str, list[Any]] = defaultdict(list)
    for row in sorted(rows(to), key=lambda row: row["_sequence_number"]):
        span = [row[name] and row[name].timestamp() for name in ("_valid_from", "_valid_to")]
        found[row["pk"]].append((*span, item_in(row, schema)))
    for key, past in ledger.past.items():
        chain: list[Any] = [(None, before[key])] if key in before else []
        chain += [each for each in past if each[0] >= first]
        spans = []
        for place, (begins, item) in enumerate(chain):
            ends = chain[place + 1][0] if place + 1 < len(chain) else None
            if item is not None:
                spans.append((begins, ends, item))
        assert [each[:2] for each in found[key]] == [each[:2] for each in spans], key
        assert all(map(is_same, [each[2] for each in spans], [each[2] for each in found[key]])), key


class Killed(BaseException):
    pass


def dying(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What is wrapped so dies at a call, before or after it has done its work."""
    calls = count(1)

    def wrapped(write: Callable[..., None]) -> Callable[..., None]:
        def dies(*arguments: Any, **options: Any) -> None:
            is_now = next(calls) > number % 3
            if number % 2 and is_now:
                raise Killed
            write(*arguments, **options)
            if is_now:
                raise Killed

        return dies

    return wrapped


@pytest.mark.parametrize("history", [False, True])
def test_killed_at_every_commit_it_goes_on_exactly_once(
    to: Path, history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a commit, and after one."""
    whole = to.with_name("whole")
    with Ledger(13, keys=12) as ledger:
        ledger.write(60)
        ledger.settle()
        few = 8
        run(job(ledger, whole, form={"history": history}, limit=few))
        kills = 0
        for number in range(1, 10):
            with monkeypatch.context() as patched:
                appending, merging = dying(number), dying(number)
                patched.setattr(MirrorTable, "create", appending(MirrorTable.create))
                patched.setattr(MirrorTable, "append", appending(MirrorTable.append))
                patched.setattr(MirrorTable, "merge", merging(MirrorTable.merge))
                try:
                    run(job(ledger, to, form={"history": history}, limit=few))
                except Killed:
                    kills += 1
            if number < 7:
                ledger.write(20)
                ledger.settle()
        run(job(ledger, to, form={"history": history}, limit=few))
        run(job(ledger, whole, form={"history": history}, limit=few))
        assert kills >= 4
        assert current(to) == current(whole) and is_equal(to, ledger)
        numbers = [row["_sequence_number"] for row in rows(to)] if history else []
        made = [number for number in numbers if number != COPIED]
        assert len(made) == len({*made})


def test_from_exports_with_gaps_bridged_it_is_equal(
    to: Path, tmp_path: Path, ledger: Ledger
) -> None:
    ledger.write(200)
    before, since = dict(ledger.now), ledger.clock.time()
    made = [exports.full(tmp_path, list(before.values()), since)]
    for _ in range(2):
        ledger.write(100)
        after, until = dict(ledger.now), ledger.clock.time()
        made.append(exports.incremental(tmp_path, before, after, since, until))
        before, since = after, until
    ledger.simulator.trim()
    ledger.write(50)
    opened = [Export(str(each), AwsConfig()) for each in made]
    stopped = job(ledger, to, DisturbedTables(ledger), limit=1)
    stopped.run(1.0, lambda: stopped.items >= 3)  # of the table: the exports begin anew
    first = job(ledger, to, limit=7, exports=opened)
    first.run(1.0, lambda: first.items >= 14)
    second = run(job(ledger, to, exports=opened))
    assert second.items == len(before)
    ledger.settle()
    run(job(ledger, to))
    assert is_equal(to, ledger)


def test_a_copy_of_hidden_keys_begins_again_and_stores_none(
    to: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.setenv("WATCHER_REDACT_KEY", "0123456789abcdef" * 4)
    rules = redaction(["pk=hash"])
    ledger.write(100)
    ledger.settle()
    disturbed = DisturbedTables(ledger)
    first = job(ledger, to, disturbed, limit=1, redaction=rules)
    first.run(1.0, lambda: first.items >= 10)
    log = [each.read_text() for each in to.rglob("*.json")]
    assert log and "item-" not in "".join(log)
    second = run(job(ledger, to, disturbed, redaction=rules))
    assert second.items == len(ledger.now) == len(rows(to))


class Restarted(StreamsClient):
    """An emulator that was started again: the same ARN, enabled now."""

    def list_shards(self, *arguments: Any, **options: Any) -> Listing:
        found = super().list_shards(*arguments, **options)
        return msgspec.structs.replace(found, created=found.time)


@pytest.mark.parametrize("cause", ["age", "begun anew"])
def test_a_loss_ends_it(cause: str, ledger: Ledger, to: Path) -> None:
    ledger.write(100)
    ledger.settle()
    run(job(ledger, to))
    anew = Restarted(ledger.connection) if cause == "begun anew" else None
    ledger.clock.sleep(0 if anew else 25 * 3600)
    ledger.write(30)
    ledger.settle()
    with pytest.raises(DataLossError, match="; make a new copy, in another folder"):
        run(job(ledger, to, service=anew))


def test_others_optimize_and_vacuum_beside_it(to: Path, ledger: Ledger) -> None:
    ledger.write(40)
    run(job(ledger, to))
    for _ in range(3):
        ledger.change(f"new-{ledger.second}", None)
        ledger.settle()
        late = job(ledger, to)  # it has opened the table as it is
        other = DeltaTable(str(to))
        write_deltalake(other, other.to_pyarrow_table().slice(0, 0), mode="append")
        other.optimize.compact()
        other.optimize.z_order(["pk"])
        other.vacuum(dry_run=False)
        run(late)
        assert is_equal(to, ledger)


def test_a_quiet_day_of_runs_up_to_now_is_no_loss(to: Path, ledger: Ledger) -> None:
    ledger.change("a")
    ledger.settle()
    for _ in range(6):
        run(job(ledger, to))
        ledger.clock.sleep(5 * 3600)
        ledger.simulator.rotate("all")  # as AWS does it about every four hours
    ledger.change("a")
    ledger.settle()
    run(job(ledger, to))
    assert is_equal(to, ledger)


def test_a_removal_of_what_is_not_there_moves_the_position(to: Path, ledger: Ledger) -> None:
    ledger.change("a")
    ledger.settle()
    run(job(ledger, to))
    ledger.change("b", {"pk": {"S": "b"}})
    ledger.simulator.remove("b")
    ledger.note("b", None)
    ledger.settle()
    assert [run(job(ledger, to)).changes for _ in range(2)] == [2, 0]
    assert is_equal(to, ledger)


def test_columns_grow_and_what_fits_in_none_is_rescued(to: Path, ledger: Ledger) -> None:
    ledger.change("a", {"pk": {"S": "a"}, "total": {"N": "12.50"}})
    ledger.settle()
    given = given_columns("total decimal(12,2), m string")
    run(job(ledger, to, form={"columns": given}))
    ledger.change("a", {"pk": {"S": "a"}, "m": {}, "total": {"N": "0.001"}, "new": {"S": "x"}})
    ledger.change("b", {"pk": {"S": "b"}, "new": {"N": "1"}, "NEW": {"S": "y"}})
    ledger.settle()
    run(job(ledger, to, form={"columns": given}))

    a, b = sorted(rows(to), key=lambda row: str(row["pk"]))
    assert (a["total"], a["new"]) == (None, "x")
    assert json.loads(a["_rescued_data"]) == {"total": {"N": "0.001"}}
    assert json.loads(b["_rescued_data"]) == {"NEW": {"S": "y"}, "new": {"N": "1"}}
    run(job(ledger, to))  # the types that it has are its own
    with pytest.raises(UsageError, match=r"total is decimal128\(12, 2\) in the mirror"):
        job(ledger, to, form={"columns": given_columns("total string")})
    run(job(ledger, to, form={"columns": given_columns("later timestamp")}))
    assert MirrorTable(str(to)).schema.field("later").type == pa.timestamp("us", tz="UTC")


def test_what_it_can_not_do_is_said(tmp_path: Path, ledger: Ledger, to: Path) -> None:
    ledger.change("a")
    run(job(ledger, to))
    ledger.change("a")
    ledger.settle()
    late = job(ledger, to)
    run(job(ledger, to))
    with pytest.raises(WatcherError, match="was changed by another mirror"):
        run(late)
    slow = MirrorTable(str(to))
    assert slow.state
    ledger.change("a")
    ledger.settle()
    run(job(ledger, to))
    slow.compact()  # so that it has read the other's commits
    with pytest.raises(WatcherError, match="was changed by another mirror"):
        slow.append(slow.schema.empty_table(), slow.state)
    with pytest.raises(UsageError, match="has the history false, not true"):
        job(ledger, to, form={"history": True})
    ledger.clock.sleep(60)
    ledger.simulator.enable_new_stream()
    with pytest.raises(UsageError, match=r"follows arn:.*, which another stream has replaced"):
        job(ledger, to)
    write_deltalake(str(tmp_path / "theirs"), pa.table({"a": [1]}))
    with pytest.raises(UsageError, match="that mirror has not made"):
        job(ledger, tmp_path / "theirs")
    earlier = CommitProperties(custom_metadata={"watcher": '{"stream": "arn", "copied": true}'})
    place = str(tmp_path / "earlier")
    write_deltalake(place, pa.table({"a": [1]}), commit_properties=earlier)
    with pytest.raises(UsageError, match="of another version of watcher: give another folder"):
        job(ledger, tmp_path / "earlier")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "mine.txt").touch()
    with pytest.raises(UsageError, match="files that are no Delta table"):
        run(job(ledger, tmp_path / "files"))


def test_a_view_type_without_old_images_has_no_history(ledger: Ledger, to: Path) -> None:
    ledger.simulator.enable_new_stream(view_type="NEW_IMAGE")
    with pytest.raises(StreamError, match="to keep every version"):
        job(ledger, to, form={"history": True})


def test_it_compacts_and_vacuums_now_and_then(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "COMMITS_TO_COMPACT", 5)
    monkeypatch.setattr(table, "VACUUM_AFTER", timedelta(0))
    with Ledger(23, keys=1_000) as ledger:
        run(job(ledger, to))
        DeltaTable(str(to)).alter.set_table_properties(
            {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        )
        for number in range(12):
            ledger.change(f"new-{number}")
            ledger.settle()
            run(job(ledger, to))
        done = Counter(each["operation"] for each in DeltaTable(str(to)).history())
        assert done["OPTIMIZE"] >= 2
        assert done["VACUUM END"] >= 5
        live = {Path(each).name for each in DeltaTable(str(to)).file_uris()}
        assert len({each.name for each in to.glob("*.parquet")} - live) < 6
        assert is_equal(to, ledger)
