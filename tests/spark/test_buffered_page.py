"""Pages that wait in the driver."""

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from watcher.aws.model import TrimHorizon
from watcher.spark.read_ahead import HeldPage
from watcher.streams.messages import Page


@given(st.binary(max_size=5000))
def test_a_page_comes_out_as_it_went_in(body: bytes) -> None:
    page = Page(3, 7, "12", body)

    assert HeldPage.of(page, TrimHorizon()).page() == page


def test_a_page_of_like_records_gets_small() -> None:
    body = b'{"Records":[' + b'{"eventName":"MODIFY","awsRegion":"us-east-1"},' * 1000 + b"{}]}"

    assert HeldPage.of(Page(0, 1001, "1", body), TrimHorizon()).size < len(body) / 10
