"""Printers that take pages print what they print of each record, byte for byte."""

from __future__ import annotations

import io
import sys
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.support.wire import record
from watcher.aws.model import ShardKey
from watcher.delivery import handler_modules
from watcher.delivery.handler import Handler
from watcher.formatting import style
from watcher.records.page import RecordPage, decode

ORIGIN = ShardKey("arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026", "shard-1")
OBSERVERS = {
    name: handler_modules.load(handler_modules.find()[name])
    for name in ("print_json", "print_summary")
}


class Output(io.TextIOWrapper):
    """What `stdout.whole` puts in place of a standard output that is no terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    @property
    def printed(self) -> bytes:
        self.flush()
        made: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return made


def one_by_one(observer: Handler, page: RecordPage) -> bytes | Exception:
    with mock.patch.object(sys, "stdout", Output()) as out:
        try:
            for record in page:
                observer.handle(record)
        except Exception as error:
            return error
        return out.printed


def together(observer: Handler, page: RecordPage) -> bytes | None:
    """What was printed; None where it was refused, with nothing printed."""
    assert observer.handle_page is not None
    with mock.patch.object(sys, "stdout", Output()) as out:
        try:
            taken = observer.handle_page(page)
        except Exception:
            taken = False
        assert taken or not out.printed
        return out.printed if taken else None


@pytest.mark.parametrize("write_through", [True, False])
def test_json_and_text_are_printed_in_turn(
    monkeypatch: pytest.MonkeyPatch, write_through: bool
) -> None:
    """Though one goes around the text's buffer."""
    output = io.BytesIO()
    out = io.TextIOWrapper(io.BufferedWriter(output), "utf-8", write_through=write_through)
    monkeypatch.setattr(sys, "stdout", out)
    for each in map(record, range(3)):
        for name in ("print_summary", "print_json"):
            OBSERVERS[name].handle(each)
    out.flush()
    assert [line[:1] for line in output.getvalue().splitlines()] == [b"[", b"{"] * 3


@pytest.mark.parametrize("name", OBSERVERS)
@given(body=pages(), several=st.booleans(), data=st.data())
def test_a_page_is_printed_as_its_records_are(
    name: str, body: bytes, several: bool, data: st.DataObject
) -> None:
    count = len(decode(body).Records)
    places = data.draw(
        st.lists(st.sampled_from(range(count)), unique=True) if count else st.just([])
    )
    page = RecordPage(body, ORIGIN, sorted(places))
    style.show_tables(several)
    try:
        found = together(OBSERVERS[name], page)
        expected = one_by_one(OBSERVERS[name], page)
    finally:
        style.show_tables(False)
    assert found == expected or (found is None and isinstance(expected, Exception))
