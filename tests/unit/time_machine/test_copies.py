"""Files as copies: what they hold is read exactly, or refused in a line."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from watcher.aws.model import WireItem
from watcher.errors import UsageError
from watcher.time_machine.copied_items import Form
from watcher.time_machine.copies import FileCopy, copy_path


def read(path: Path, text: str = "") -> list[WireItem]:
    if text:
        path.write_text(text)
    return list(FileCopy(path).items())


def s(**values: str) -> WireItem:
    return {name: {"S": value} for name, value in values.items()}


def test_a_columns_null_is_nothing_and_the_columns_are_known(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"pk": "a", "v": None}, {"pk": "b", "v": 1}]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    copy = FileCopy(tmp_path)
    assert copy.columns == frozenset(("pk", "v"))
    assert list(copy.items()) == [s(pk="a"), {**s(pk="b"), "v": {"N": "1"}}]
    item: WireItem = {**s(pk="a", other="x"), "v": {"NULL": True}}
    assert copy.as_copied(item) == s(pk="a")


@pytest.mark.parametrize("turn", [1, -1])
def test_items_in_two_kinds_of_json_are_refused(tmp_path: Path, turn: int) -> None:
    lines = ['{"pk": {"S": "a"}}', '{"pk": "b"}'][::turn]
    (tmp_path / "1.jsonl").write_text(lines[0])
    (tmp_path / "2.jsonl").write_text(lines[1])
    with pytest.raises(UsageError, match=r"2.jsonl: .*DynamoDB's JSON.* plain"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"\xff", b"{", b"[1]", b"1"])
def test_what_is_no_item_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match="can't read"):
            read(tmp_path / name)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b'{"pk": "a"}\n' * 999))
    packed[20:24] = b"oops"
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    with pytest.raises(UsageError, match=r"can't read .*a\.jsonl\.gz"):
        read(tmp_path / "a.jsonl.gz")


def test_an_item_without_attributes_does_not_tell_what_kind_of_json_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{}\n{"pk": "a", "v": {"S": 1}}\n')
    copy = FileCopy(path)
    assert copy.form is Form.JSON
    assert list(copy.items()) == [{}, {**s(pk="a"), "v": {"M": {"S": {"N": "1"}}}}]


def test_a_file_is_read_without_a_word_and_a_folder_named_like_a_table_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "watcher")
    Path("orders.jsonl").write_text("{}\n")
    Path("mirror", "_delta_log").mkdir(parents=True)
    Path("orders").mkdir()
    assert copy_path("orders.jsonl") == Path("orders.jsonl")
    assert copy_path("mirror") == Path("mirror")
    assert copy_path("orders-copy") is None
    assert caplog.messages == []
    assert copy_path("orders") == Path("orders")
    assert "orders is read as a path" in caplog.text
