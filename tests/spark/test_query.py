"""Rows as text, as `query` prints them."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from watcher.spark.jobs.query import _text


def test_bytes_are_base64_wherever_they_are() -> None:
    data = bytearray(b"\x00\x01")

    assert _text(data) == "AAE="
    assert _text([data]) == '["AAE="]'
    assert _text(Row(a=data)) == '{"a": "AAE="}'
