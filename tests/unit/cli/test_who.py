"""`--who`: the callers of changes on the command line."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support import trails
from tests.support.hand_clock import HandClock
from tests.support.program import told
from tests.support.trails import ACCOUNT, ARN, Event, deliver, role
from watcher.aws.arns import table_of
from watcher.time_machine.callers import NO_CALL

HOUR = 3600
ONE = ("--key", "PK=ada", "--key", "SK=order-7")


class Shop:
    """A table, and a trail beside it; it began two hours ago."""

    def __init__(self, simulator: Simulator, began: float, folder: Path) -> None:
        self.simulator = simulator
        self.now = began
        self.folder = folder

    def write(self, order: int, total: int, *events: Event) -> None:
        key = {"PK": {"S": "ada"}, "SK": {"S": f"order-{order}"}}
        self.simulator.put({**key, "total": {"N": str(total)}})
        if events:
            deliver(self.folder, self.now + 60, *events)

    def advance(self, seconds: float) -> None:
        self.simulator.advance(seconds)
        self.now += seconds

    def called(self, by: str, *, session: str = "bob", order: int = 7) -> Event:
        key = {"PK": "ada", "SK": f"order-{order}"}
        return trails.put(self.now, key=key, by=role(by, session))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    began = time.time() - 2 * HOUR
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "trail"
    folder.mkdir()
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: began) as simulator:
        assert table_of(simulator.stream_arn) == ARN
        simulator.set_environment(monkeypatch.setenv)
        yield Shop(simulator, began, folder)


@pytest.fixture
def night(shop: Shop) -> Shop:
    """Each kind of answer, a minute apart."""
    shop.write(7, 110, shop.called("api"))
    shop.advance(60)
    shop.write(7, 0, shop.called("release-112", session="ci-8841"))
    shop.advance(60)
    shop.write(7, 5, shop.called("api"), shop.called("release-112"))
    shop.advance(60)
    shop.write(7, 6)
    shop.advance(60)
    text = "INSERT INTO orders VALUE {'PK': ***(Redacted), 'SK': ***(Redacted)}"
    shop.write(7, 7, trails.statement(shop.now, text))
    shop.advance(60)
    return shop


def test_history_as_json(night: Shop) -> None:
    rows: list[dict[str, Any]] = json.loads(
        told(0, "history", "orders", *ONE, "--who", "trail", "-o", "json").printed
    )
    who = [row["who"] for row in rows if "who" in row]
    certainties = ["certain", "certain", "one of several", "unknown", "may be"]
    assert [each["certainty"] for each in who] == certainties
    (release,) = who[1]["callers"]
    assert (release["name"], release["session"]) == ("role/release-112", "ci-8841")
    assert who[3]["reason"] == NO_CALL


def test_data_events_that_are_off_are_told(shop: Shop) -> None:
    shop.write(7, 1, trails.put(shop.now, table=f"{ARN}-of-others"))
    done = told(0, "history", "orders", *ONE, "--who", "trail")
    assert f"by whom is unknown   {NO_CALL}" in done.printed
    assert f"no call that writes to {ARN}: have the trail log its data events" in done.said


def test_a_file_of_changes_does_not_tell_its_table(night: Shop) -> None:
    Path("changes.jsonl").write_text(
        told(0, "orders", "--from", "trim-horizon", "--no-follow", "--print-json").printed
    )
    assert (
        "name its stream, too" in told(2, "history", "./changes.jsonl", *ONE, "--who", "trail").said
    )
    assert (
        f"by {ACCOUNT}:role/release-112 ("
        in told(0, "history", "./changes.jsonl", "orders", *ONE, "--who", "trail").printed
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--by", "caller"], "--who PLACE"), (["--by", "kind", "--who", "trail"], "--by kind,caller")],
)
def test_a_trail_and_the_callers_go_together(words: list[str], said: str, shop: Shop) -> None:
    assert said in told(2, "count", "orders", *words).said
