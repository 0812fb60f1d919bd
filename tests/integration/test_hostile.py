"""Whatever the endpoint, the table's data or the network hands us: an error at most, no crash."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.simulator import Simulator
from tests.support.wire import body, shard_key, wire
from watcher import watch
from watcher.aws import deadline
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.retry import retry_at_start
from watcher.cli import main
from watcher.delivery.handler_modules import find, load
from watcher.errors import TransientError, UnexpectedAnswerError
from watcher.records import page
from watcher.records.record import Record


def walk(records: Iterable[Record]) -> None:
    """Look at a record as the built-in handlers do."""
    for record in records:
        record.sequence_number, record.event_name, record.created_at  # noqa: B018
        bytes(record.raw)


def decoded(raw: bytes) -> None:
    try:
        wire_page = page.decode(raw)
    except (TransientError, UnexpectedAnswerError):
        return
    walk(page.RecordPage(raw, shard_key("shard"), range(len(wire_page.Records))))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_a_passing_trouble(raw: bytes) -> None:
    decoded(raw)


@given(st.data())
def test_any_damage_to_a_page_is_a_page_or_a_passing_trouble(data: st.DataObject) -> None:
    whole = bytearray(body(range(3)))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["cut", "flip", "insert"])):
            case "cut":
                del whole[where : where + data.draw(st.integers(1, 30))]
            case "flip":
                whole[where] = data.draw(st.integers(0, 255))
            case _:
                whole[where:where] = data.draw(st.binary(max_size=8))
        if not whole:
            break
    decoded(bytes(whole))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "dynamodb": ANY
                | st.fixed_dictionaries(
                    {"SequenceNumber": st.text(max_size=5) | st.just("1" * 22)},
                    optional={
                        "ApproximateCreationDateTime": ANY | st.floats(),
                        "Keys": ANY,
                        "NewImage": ANY,
                        "SizeBytes": ANY,
                    },
                ),
                "eventName": ANY,
                "userIdentity": ANY,
            },
        ),
        max_size=3,
    )
)
def test_anything_like_a_page_is_one_or_a_passing_trouble(records: list[Any]) -> None:
    decoded(json.dumps({"Records": records, "NextShardIterator": "x"}).encode())


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_absurd_nesting_is_a_passing_trouble(depth: int) -> None:
    nested = '{"L":[' * depth + "]}" * depth
    raw = body([1]).replace(b'{"S": "a"}', nested.encode(), 1)
    decoded(raw)


NASTY = {
    "escape": {"S": "\x1b[2J\x1b]0;owned\x07"},
    "c1\u009b31m": {"S": "\u009b31m\u202e"},
    "newline": {"S": "one\ntwo\r\u2028three"},
    "lone": {"S": "\ud800"},
    "deep": {},
    "digits": {"N": "-9.9999999999999999999999999999999999999E+125"},
    "large": {"S": "x" * 390_000},
    "binary": {"B": "AAEC"},
}
nested: dict[str, Any] = {"S": "bottom"}
for _ in range(32):
    nested = {"M": {"m": nested}}
NASTY["deep"] = nested


@pytest.mark.parametrize("name", ["print_json", "print_record", "print_summary"])
@pytest.mark.parametrize("attribute", sorted(NASTY))
def test_a_built_in_handler_prints_any_item_without_steering_the_terminal(
    name: str, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    output.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", output)
    observer = load(find()[name])
    change: Any = wire(1)
    value = NASTY[attribute]
    if attribute not in ("lone", "large", "deep"):
        change["dynamodb"]["Keys"] = {attribute: value}
    change["dynamodb"]["NewImage"] = {attribute: value}
    # As the service sends it: UTF-8, not \u escapes (a lone surrogate has none).
    text = json.dumps(change, ensure_ascii=attribute == "lone")
    try:
        observer.handle(Record.from_json(text.encode()))
    except (ValueError, UnicodeError):
        assert attribute == "lone"  # not UTF-8: the handler fails, by its policy
    printed = output.getvalue()
    assert not set(printed) & {"\x1b", "\u009b", "\r", "\u2028", "\u202e", "\x07"}
    lines = 4 if name == "print_record" else 1
    assert printed.count("\n") <= lines


# The endpoint


def test_an_endpoint_that_stops_answering_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "READ_SECONDS", 0.3)
    monkeypatch.setattr(deadline, "LOOP_READ_SECONDS", 0.3)
    with Simulator(table="orders") as sim:
        sim.bulk(100)
        for operation in ("GetRecords", "GetShardIterator", "DescribeStream"):
            sim.fail_next(operation, "hang")
        seen: list[str] = []
        watch(
            "orders",
            [lambda record: seen.append(record.sequence_number)],
            start="trim_horizon",
            follow=False,
            region="us-east-1",
            endpoint_url=sim.endpoint,
        )
        assert seen == [record.sequence_number for record in sim.records]
    assert not multiprocessing.active_children()


@pytest.fixture
def answering_in_the_clear() -> Iterator[str]:
    """An endpoint that speaks HTTP where TLS is expected."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = server.accept()
                    connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connected.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_endpoint_without_tls_where_it_is_expected(
    answering_in_the_clear: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["orders", "--endpoint-url", answering_in_the_clear, "--region", "us-east-1"]
    assert main(arguments) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: can't reach the stream: ")
    assert "SSL" in line or "Connection" in line


@pytest.mark.parametrize("trouble", ["truncate", "invalid-json", "reset-midway", "unavailable"])
def test_a_listing_cut_off_is_asked_for_again(simulator: Simulator, trouble: str) -> None:
    simulator.write("a", 5)
    simulator.fail_next("DescribeStream", trouble, times=2)
    simulator.fail_next("DescribeTable", trouble, times=2)
    made, arn = connect("orders", AwsConfig("us-east-1", None, simulator.endpoint))
    assert len(retry_at_start(lambda: made.list_shards(arn)).shards) == 1


@pytest.mark.parametrize(
    "name", ["a\x1b[2J", "../etc", "a" * 300, "", "arn:aws:dynamodb", "tab\tle", "é"]
)
def test_a_hostile_table_name_is_refused_on_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--region", "us-east-1"]) in (2, 3)
    assert "\x1b" not in capsys.readouterr().err
