"""What each printer of a change prints."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from watcher import Record
from watcher.delivery import handler_modules
from watcher.errors import UsageError
from watcher.formatting import style

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/products/stream/2026-11-21T08:00:00.000"


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    style.set_up(color="never", utc=True)
    yield
    style.set_up(color="never")


def record(
    kind: str = "MODIFY",
    old: dict[str, Any] | None = None,
    new: dict[str, Any] | None = None,
    view: str = "NEW_AND_OLD_IMAGES",
    **more: Any,
) -> Record:
    """A record of the item id=111; images are given without their key."""
    key = {"id": {"N": "111"}}
    change: dict[str, Any] = {
        "Keys": key,
        "SequenceNumber": "100000000000000000001",
        "ApproximateCreationDateTime": 1589362330,
        "StreamViewType": view,
    }
    change |= {"OldImage": key | old} if old is not None else {}
    change |= {"NewImage": key | new} if new is not None else {}
    wire = {"eventName": kind, "awsRegion": "eu-west-1", "dynamodb": change, **more}
    return Record.from_json(json.dumps(wire).encode(), "shard-1", ARN)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(
    name: str, *records: Record, on: type[io.StringIO] = io.StringIO, **options: Any
) -> list[str]:
    with contextlib.redirect_stdout(on()) as out:
        observer = handler_modules.load(handler_modules.find()[f"print_{name}"], options)
        for each in records:
            observer.handle(each)
        observer.close()
    return out.getvalue().splitlines()


def n(digits: str) -> dict[str, str]:
    return {"N": digits}


def scooter(weight: str) -> dict[str, Any]:
    return {
        "name": {"S": "scooter"},
        "description": {"S": "Big 2-wheel scooter"},
        "weight": n(weight),
    }


CHANGES = (
    record("INSERT", new=scooter("5.18")),
    record("MODIFY", scooter("5.18"), scooter("5.15")),
    record("REMOVE", scooter("5.15")),
)
EXPIRED = record(
    "REMOVE",
    {"n": {"S": "\x1b[31m"}},
    userIdentity={"type": "Service", "principalId": "dynamodb.amazonaws.com"},
)


def test_a_summary_is_one_line_and_a_removal_by_time_to_live_is_marked() -> None:
    begin = "[2020-05-13T09:32:10+00:00] - "
    assert printed("summary", CHANGES[0], CHANGES[2], EXPIRED) == [
        begin + "INSERT - id=111",
        begin + "REMOVE - id=111",
        begin + "REMOVE - id=111 (expired by TTL)",
    ]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": n("1")}, {"a": n("1")}, []),
        (
            {"a": {"L": [n("1"), {"M": {"q": n("1")}}, n("3")]}},
            {"a": {"L": [n("1"), {"M": {"q": n("2")}}]}},
            ["~ a[1].q: 1 -> 2", "- a[2]: 3"],
        ),
        ({"a": {"SS": ["x", "y"]}}, {"a": {"SS": ["y", "z", "w"]}}, ["~ a: +'w' +'z' -'x'"]),
        ({"\x1b": n("1")}, {}, ["- `\\x1b`: 1"]),
    ],
)
def test_a_diff_has_one_line_for_the_item_and_one_for_each_difference(
    old: Any, new: Any, lines: list[str]
) -> None:
    head = "MODIFY 2020-05-13T09:32:10+00:00 id=111"
    shown = printed("diff", record(old=old, new=new))
    assert shown == [head, *(f"  {each}" for each in lines)]


@pytest.mark.parametrize(
    ("view", "images", "lines"),
    [
        ("KEYS_ONLY", {}, []),
        ("NEW_IMAGE", {"new": {"n": n("2")}}, ["  new {id: 111, n: 2}"]),
        ("OLD_IMAGE", {"old": {"n": n("2")}}, ["  old {id: 111, n: 2}"]),
    ],
)
def test_where_there_is_nothing_to_compare_a_diff_shows_what_there_is(
    view: str, images: dict[str, Any], lines: list[str]
) -> None:
    said = f"  (nothing to compare: the stream's view type is {view})"
    assert printed("diff", record(view=view, **images))[1:] == [*lines, said]


def test_jsonl_has_every_digit() -> None:
    long = "1234567890123456789012345678.0000000001"
    (line,) = printed("jsonl", record("INSERT", new={"n": n(long)}))
    assert f'"n":{long}' in line
    made = json.loads(line)
    assert (made["eventName"], made["key"], made["old"]) == ("INSERT", {"id": 111}, None)
    assert [*made] == [
        *("eventName", "key", "old", "new", "createdAt", "sequenceNumber", "shardId", "table"),
        "expiredByTtl",
    ]


def test_csv_has_one_line_of_names_and_the_values_that_differ() -> None:
    odd = record("INSERT", new={})
    odd.shard_key = odd.shard_key._replace(stream=ARN.replace("products", "-1+1"))
    lines = printed("csv", *CHANGES, odd)
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    assert [(each["kind"], each["key"], each["table"]) for each in rows] == [
        *((kind, '{"id":111}', "products") for kind in ("INSERT", "MODIFY", "REMOVE")),
        ("INSERT", '{"id":111}', "'-1+1"),  # a spreadsheet would run it
    ]
    assert (rows[1]["old"], rows[1]["new"]) == ('{"weight":5.18}', '{"weight":5.15}')
    assert rows[0]["old"] == "" and json.loads(rows[0]["new"])["name"] == "scooter"
    assert rows[0]["time"] == "2020-05-13T09:32:10+00:00"
    assert printed("csv") == ["time,kind,by_ttl,table,key,old,new,sequence_number"]


def test_a_table_s_columns_stand_below_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    head, *lines = printed("table", *CHANGES[:2], EXPIRED)
    assert head.split() == ["TIME", "KIND", "KEY", "CHANGES"]
    place = head.index("CHANGES")
    assert lines[1][place:] == "~weight: 5.18 -> 5.15"
    assert lines[2][place:] == "-n: '\\x1b[31m'"
    assert [line.split()[1] for line in lines] == ["INSERT", "MODIFY", "TTL"]

    monkeypatch.setenv("COLUMNS", "60")
    head, line = printed("table", CHANGES[1], on=Terminal)
    assert head == "TIME      KIND    KEY               CHANGES"
    assert line.startswith("09:32:10  MODIFY  id=111            ~weight: 5.18 ->")
    assert len(line) <= 60
    style.set_up(color="always", utc=True)
    assert "  \x1b[33mMODIFY\x1b[0m  id=111" in printed("table", CHANGES[1], on=Terminal)[1]


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{time:%H:%M:%S} {kind} {key} {changes}", "09:32:10 MODIFY id=111 ~total: 5 -> 7"),
        ("{kind:<8}|{new.total:>6}|", "MODIFY  |     7|"),
        ("{new.total:.2f} {old.lines.0.sku} {key.id}", "7.00 a-1 111"),
        ("{new.nothing}{new.total.deeper}{old.lines.9}{old.lines.x}", ""),
        ("{table} {shard} {sequence}", "products shard-1 100000000000000000001"),
        ("{old.name} {{as it is}}", "\\x1b[2J {as it is}"),
    ],
)
def test_fields_of_a_template_are_filled_in(template: str, line: str) -> None:
    lines = {"lines": {"L": [{"M": {"sku": {"S": "a-1"}}}]}, "name": {"S": "\x1b[2J"}}
    change = record(old={**lines, "total": n("5")}, new={**lines, "total": n("7")})
    assert printed("template", change, print_template=template) == [line]


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
        printed("template", print_template=template)
