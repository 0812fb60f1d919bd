"""Packed pages."""

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from watcher.spark.packed import pack


@given(st.binary(max_size=5000))
def test_a_page_comes_out_as_it_went_in(body: bytes) -> None:
    assert pack(body).body() == body


def test_a_page_of_like_records_gets_small() -> None:
    body = b'{"Records":[' + b'{"eventName":"MODIFY","awsRegion":"us-east-1"},' * 1000 + b"{}]}"

    assert len(pack(body).data) < len(body) / 10
