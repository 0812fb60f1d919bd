"""The live view, driven by keys as a user does; the watch is played."""

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from textual.containers import VerticalScroll
from textual.content import Content
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Static

from tests.support.wire import DIGITS, ODD_VALUES, odd_changes
from watcher.aws.key_schema import remember_key_schema
from watcher.aws.model import ShardKey
from watcher.errors import StreamError
from watcher.live.app import LiveView, TextScreen
from watcher.live.changes import ChangeBuffer, ChangeLine, parse_search
from watcher.observability.watch_stats import Totals, WatchStats
from watcher.records.record import Record

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/{}/stream/2026-11-21T08:00:00.000"


def record(number: int, table: str = "orders", **new: str) -> Record:
    key = {"PK": {"S": f"user-{number % 3}"}}
    change = {
        "Keys": key,
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": 1653658557,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
        "OldImage": {**key, "total": {"N": str(number)}},
        "NewImage": {**key, "total": {"N": str(number + 1)}, **{k: {"S": new[k]} for k in new}},
    }
    wire = {"eventName": "MODIFY", "dynamodb": change}
    return Record.from_json(json.dumps(wire).encode(), "shard-1", ARN.format(table))


class Played:
    """A watch that hands over what a test says, until it is told to end."""

    def __init__(self) -> None:
        self.give: Callable[[Record], Any] = print
        self.began = threading.Event()
        self.fails: Exception | None = None
        self.stopped = False
        self.lags = {ShardKey(ARN.format("orders"), "shard-1"): 3.0}

    def __call__(self, observer: Any, on_stats: Any, stop: threading.Event) -> Totals:
        self.give = observer
        on_stats(WatchStats(lags=self.lags))
        self.began.set()
        if self.fails:
            raise self.fails
        stop.wait()
        self.stopped = True
        return Totals(records=7)


def history(entry: ChangeLine) -> Iterable[Record]:
    return [record(1), record(4)]


def shards(streams: set[str], lags: Mapping[ShardKey, float], columns: int) -> str:
    return f"{columns} columns\n{lags}"


class Case:
    """A view and the watch behind it."""

    def __init__(self, buffer: ChangeBuffer | None = None) -> None:
        self.watch = Played()
        self.view = LiveView(self.watch, history, shards, buffer)

    def run(self, play: Callable[[Pilot[Any]], Any]) -> None:
        async def whole() -> None:
            async with self.view.run_test(size=(160, 20)) as pilot:
                await asyncio.to_thread(self.watch.began.wait)
                await play(pilot)

        try:
            asyncio.run(whole())
        finally:
            self.view.join()

    def give(self, *records: Record) -> None:
        for each in records:
            self.watch.give(each)
        self.view.draw()

    @property
    def figures(self) -> str:
        return str(self.view.query_one("#figures", Static).content)

    def line(self, y: int) -> str:
        return self.view.changes.render_line(y).text


def in_view(play: Callable[[Case, Pilot[Any]], Awaitable[None]]) -> Callable[[], None]:
    """A test of a view, which it drives as a user does."""

    def test() -> None:
        case = Case()
        case.run(partial(play, case))

    return test


@in_view
async def test_changes_are_followed_until_somebody_moves_up(case: Case, pilot: Pilot[Any]) -> None:
    case.give(*(record(number) for number in range(100)))
    await pilot.pause()
    assert "FOLLOWING" in case.figures
    assert "100 changes" in case.figures
    assert case.view.changes.scroll_offset.y > 0
    await pilot.press("up", "up")
    assert not case.view.changes.following
    top, selected = case.view.changes.scroll_offset.y, case.view.changes.selected
    case.give(*(record(number) for number in range(50)))
    await pilot.pause()
    assert (top, selected) == (case.view.changes.scroll_offset.y, case.view.changes.selected)
    assert "PAUSED" in case.figures
    await pilot.press("space")
    assert case.view.changes.following
    assert case.view.changes.selected == case.view.changes.newest


@in_view
async def test_a_search_is_for_what_is_there_and_to_come(case: Case, pilot: Pilot[Any]) -> None:
    case.give(record(1), record(2), record(3, note="Fox"))
    await pilot.press("slash", *"fox", "enter")
    assert case.view.changes.shown == 1
    case.give(record(4), record(5, note="a fox"))
    assert case.view.changes.shown == 2
    assert "2 match" in case.figures
    await pilot.press("slash")
    case.view.query_one("#search", Input).value = "{"
    await pilot.press("enter")
    assert "error" in str(case.view.query_one("#notes", Static).content)
    assert case.view.changes.shown == 2
    await pilot.press("escape", "escape")
    assert case.view.changes.shown == 5


def shown(screen: Screen[Any]) -> str:
    assert isinstance(screen, TextScreen)
    return str(screen.query_one("#text", Static).content)


async def comes(case: Case, pilot: Pilot[Any], text: str) -> str:
    while not isinstance(case.view.screen, TextScreen) or text not in shown(case.view.screen):
        await pilot.pause(0.01)
    return shown(case.view.screen)


@in_view
async def test_the_list_and_its_details_agree_with_the_forms_that_are_printed(
    case: Case, pilot: Pilot[Any]
) -> None:
    arn = ARN.format("cities")
    kinds = {"zz": "HASH", "aa": "RANGE"}
    remember_key_schema({"AttributeName": name, "KeyType": kinds[name]} for name in kinds)
    changes = odd_changes()
    for number, change in enumerate(changes):
        change["dynamodb"]["SequenceNumber"] = str(number)
    case.give(*(Record.from_json(json.dumps(each).encode(), "shard-1", arn) for each in changes))
    await pilot.pause()
    assert "MODIFY zz=p, aa=s" in case.line(1)
    assert "TTL" in case.line(2) and "zz=p, aa=s" in case.line(2)
    await pilot.press("enter")
    text = await comes(case, pilot, "TTL")
    assert [each for each in ODD_VALUES[1:] if not re.search(each, text)] == []
    assert DIGITS[:-1] in text and "zz=p, aa=s (expired by TTL)" in text


@in_view
async def test_enter_opens_a_change_and_k_the_items_history(case: Case, pilot: Pilot[Any]) -> None:
    case.give(record(1), record(2))
    await pilot.press("enter")
    await comes(case, pilot, "~ total: 2 -> 3")
    await pilot.press("escape", "k")
    await comes(case, pilot, "~ total: 4 -> 5")


@in_view
async def test_a_screen_that_can_t_be_read_says_why(case: Case, pilot: Pilot[Any]) -> None:
    def broken(columns: int) -> str:
        raise ValueError(f"no {columns} columns")

    await case.view.push_screen(TextScreen("shards", broken))
    await case.view.workers.wait_for_complete()
    await pilot.pause()
    assert shown(case.view.screen) == "error: ValueError: no 140 columns"


@in_view
async def test_an_item_may_be_called_like_markup(case: Case, pilot: Pilot[Any]) -> None:
    key = "[/][red]x[/red][@click=app.bell]x"
    change = {"Keys": {"PK": {"S": key}}, "SequenceNumber": "1"}
    wire = {"eventName": "INSERT", "dynamodb": change}
    case.give(Record.from_json(json.dumps(wire).encode(), "shard-1", ARN.format("orders")))
    await pilot.press("k")
    await case.view.workers.wait_for_complete()
    (box,) = case.view.screen.query(VerticalScroll)
    assert Content.from_markup(box.border_title or "").plain == f"PK={key}"


@in_view
async def test_s_shows_the_shards_that_fit_with_their_lag(case: Case, pilot: Pilot[Any]) -> None:
    await pilot.press("s")
    await comes(case, pilot, " columns")
    (box,) = case.view.screen.query(VerticalScroll)
    columns, lags = shown(case.view.screen).splitlines()
    assert columns == f"{box.size.width - 2} columns"  # and the scrollbar
    assert lags == str(case.watch.lags)


@in_view
async def test_a_tables_name_filters_and_y_copies(case: Case, pilot: Pilot[Any]) -> None:
    case.give(record(1), record(2, "users"), record(3))
    await pilot.pause()
    assert "users" in case.line(1)
    await pilot.press("slash", *"users", "enter")
    assert case.view.changes.shown == 1
    await pilot.press("y")
    assert json.loads(case.view.clipboard)["dynamodb"]["SequenceNumber"] == "2"
    await pilot.press("question_mark")
    assert isinstance(case.view.screen, TextScreen)


@in_view
async def test_two_tables_of_one_name_are_two_and_called_by_their_regions(
    case: Case, pilot: Pilot[Any]
) -> None:
    there = record(2)
    there.shard_key = ShardKey(ARN.format("orders").replace("eu-west-1", "us-east-1"), "shard-1")
    case.give(record(1))
    await pilot.pause()
    assert "orders" not in case.line(0), "the only one"
    case.give(there)
    await pilot.pause()
    assert "eu-west-1/orders PK=user-1" in case.line(0)
    assert "us-east-1/orders PK=user-2" in case.line(1)
    await pilot.press("slash", *"us-east-1/", "enter")
    assert case.view.changes.shown == 1
    await pilot.press("enter")
    assert case.view.screen.query_one(VerticalScroll).border_title == "us-east-1/orders"


def test_q_ends_the_watch_and_then_the_view() -> None:
    case = Case()

    async def play(pilot: Pilot[Any]) -> None:
        await pilot.press("q")
        await asyncio.to_thread(case.view.watch_thread.join)
        case.view.draw()
        await pilot.pause()

    case.run(play)
    assert case.watch.stopped
    assert case.view.return_value == Totals(records=7)


def test_an_error_of_the_watch_ends_the_view() -> None:
    case = Case()
    case.watch.fails = StreamError("gone")

    async def play(pilot: Pilot[Any]) -> None:
        await asyncio.to_thread(case.view.watch_thread.join)
        case.view.draw()
        await pilot.pause()

    case.run(play)
    assert case.view.error is case.watch.fails


def test_large_items_fall_out_of_view_by_their_size() -> None:
    case = Case(ChangeBuffer(most_bytes=100_000))

    async def play(pilot: Pilot[Any]) -> None:
        for fallen in (7, 17):
            for number in range(10):
                case.give(record(number, note="x" * 30_000))
            assert f"{fallen} fell out of view" in case.figures
            assert case.view.changes.shown == 3
            assert case.view.changes.selected is case.view.changes.newest
            await pilot.press("slash", *"modify", "enter")

    case.run(play)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        *(("", [1, 2, 3]), ("USER-1", [1]), ("PK=user-2", [2]), ("modify", [1, 2, 3])),
        *(('{"dynamodb": {"NewImage": {"total": {"N": ["4"]}}}}', [3]), ("nothing", [])),
    ],
)
def test_a_search_is_a_text_a_key_or_a_pattern(text: str, numbers: list[int]) -> None:
    ring = ChangeBuffer()
    for number in (1, 2, 3):
        ring.add(record(number))
    test = parse_search(text)
    found = [each.number for each in ring.since(0) if test is None or test(each)]
    assert found == numbers
