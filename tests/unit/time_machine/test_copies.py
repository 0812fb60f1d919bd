"""Files as copies: what they hold is read exactly, or refused in a line."""

from __future__ import annotations

import json
import logging
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support.memory import traced_memory
from watcher.aws.model import WireItem
from watcher.errors import UsageError
from watcher.time_machine.copied_items import Form
from watcher.time_machine.copies import FileCopy, SqliteCopy, copy_path


def read(path: Path, text: str = "") -> list[WireItem]:
    if text:
        path.write_text(text)
    return list(FileCopy(path, {}, None).items())


def s(**values: str) -> WireItem:
    return {name: {"S": value} for name, value in values.items()}


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "\ufeffpk,v\na,1\n") == [s(pk="a", v="1")]
    assert read(tmp_path / "a.jsonl", '\ufeff{"pk": "a"}\n') == [s(pk="a")]
    assert read(tmp_path / "b.jsonl", '\ufeff{"pk": {"S": "a"}}\n') == [s(pk="a")]


def test_a_column_with_the_name_of_an_attribute_that_has_another_is_left_out(
    tmp_path: Path,
) -> None:
    rows = [{"pk": "a", "w": "right", "v": "wrong"}]
    names = {"v": "w", "x": "none"}
    (tmp_path / "a.csv").write_text("pk,w,v,x\na,right,wrong,wrong\n")
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0]))
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE orders AS SELECT 'a' pk, 'right' w, 'wrong' v")
        database.commit()
    copies: list[FileCopy | SqliteCopy] = [
        FileCopy(tmp_path / f"a.{kind}", names, None) for kind in ("csv", "jsonl", "parquet")
    ]
    copies.append(SqliteCopy(f"sqlite:///{tmp_path}/a.db?table=orders", names, None))
    for copy in copies:
        assert list(copy.items()) == [s(pk="a", v="right")]
        assert copy.columns in (None, {"pk", "v"})


def test_a_long_cell_is_read_whole(tmp_path: Path) -> None:
    long = "x" * 300_000
    assert read(tmp_path / "a.csv", f"pk,v\na,{long}\n") == [s(pk="a", v=long)]


def test_cells_may_hold_line_breaks_and_a_row_may_lack_its_last_ones(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", 'pk,v,w\r\na,"x\r\ny",1\r\n\r\nb\r\n')
    assert found == [s(pk="a", v="x\r\ny", w="1"), s(pk="b")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pk,v\na,1\nb,2,3\n", "line 3 has 3 cells, and the header 2"),
        ("pk,v,v\na,1,2\n", "two columns are called v"),
    ],
)
def test_rows_that_do_not_fit_their_header_are_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path / "a.csv", text)


@pytest.mark.parametrize("turn", [1, -1])
def test_items_in_two_kinds_of_json_are_refused(tmp_path: Path, turn: int) -> None:
    lines = ['{"pk": {"S": "a"}}', '{"pk": "b"}'][::turn]
    (tmp_path / "1.jsonl").write_text(lines[0])
    (tmp_path / "2.jsonl").write_text(lines[1])
    with pytest.raises(UsageError, match=r"2.jsonl: .*DynamoDB's JSON.* plain"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"\xff", b"{", b"[1]", b"1"])
def test_what_is_no_item_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    for each in (path, tmp_path / "a.jsonl.gz"):
        each.write_bytes(content)
        with pytest.raises(UsageError, match="can't read"):
            read(each)


def test_an_item_without_attributes_does_not_tell_what_kind_of_json_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{}\n{"pk": "a", "v": {"S": 1}}\n')
    copy = FileCopy(path, {}, None)
    assert copy.form is Form.JSON
    assert list(copy.items()) == [{}, {**s(pk="a"), "v": {"M": {"S": {"N": "1"}}}}]


def test_numbers_that_are_none_are_read(tmp_path: Path) -> None:
    row = {"pk": "a", "v": float("nan"), "w": float("-inf")}
    expected = [{**s(pk="a"), "v": {"N": "nan"}, "w": {"N": "-inf"}}]
    assert read(tmp_path / "a.jsonl", json.dumps(row)) == expected
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({name: [value] for name, value in row.items()}), path)
    assert read(path) == expected


def test_memory_holds_a_few_large_rows_of_parquet(tmp_path: Path) -> None:
    rows = [random.Random(at).randbytes(15_000).hex() for at in range(1_000)]
    pyarrow.parquet.write_table(pa.table({"pk": rows}), tmp_path / "a.parquet")
    del rows
    with traced_memory() as most:
        assert sum(1 for _ in FileCopy(tmp_path, {}, None).items()) == 1_000
        assert most() < 15_000_000


def test_a_file_is_read_without_a_word_and_a_folder_named_like_a_table_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "watcher")
    Path("orders.csv").write_text("pk\n")
    Path("mirror", "_delta_log").mkdir(parents=True)
    Path("orders").mkdir()
    assert copy_path("orders.csv") == Path("orders.csv")
    assert copy_path("mirror") == Path("mirror")
    assert copy_path("orders-copy") is None
    assert caplog.messages == []
    assert copy_path("orders") == Path("orders")
    assert "orders is read as a path" in caplog.text
