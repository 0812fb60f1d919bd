"""`as-of`: its two forms, and where it writes."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.support.program import Ran, told


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A moment half an hour ago; what was there then was changed since."""
    began = time.time() - 7200
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    with Simulator(table="orders", clock=lambda: began) as simulator:
        simulator.set_environment(monkeypatch.setenv)
        simulator.put({"pk": {"S": "a"}, "v": {"N": "1.50"}, "w": {"SS": ["x", "y"]}})
        simulator.put({"pk": {"S": "b\x1b"}, "v": {"N": "2"}, "b": {"B": "AAE="}})
        simulator.advance(600)
        simulator.put({"pk": {"S": "a"}, "v": {"N": "7"}})
        simulator.remove("b\x1b")
        simulator.put({"pk": {"S": "c"}})
        simulator.advance(60)
        yield datetime.fromtimestamp(began + 300, UTC).isoformat()


def test_formats(at: str) -> None:
    def out(*more: str) -> Ran:
        return told(0, "as-of", "orders", at, *more)

    rows = ['{"pk":"a","v":1.50,"w":["x","y"]}', '{"pk":"b\\u001b","v":2,"b":"AAE="}']
    assert out().out == rows
    typed = out("--dynamodb-json", "--key", "pk=a").printed
    assert json.loads(typed) == {"pk": {"S": "a"}, "v": {"N": "1.50"}, "w": {"SS": ["x", "y"]}}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "count orders --filter vv=1",
            "Counted 0 changes; 0 of 5 changes matched; none has vv (v?)",
        ),
        ("count orders --filter v=9", "Counted 0 changes; 0 of 5 changes matched"),
        ("report orders --filter vv=1", ": 0 changes; 0 of 5 changes matched; none has vv (v?)"),
        ("report ./lines --filter vv=1", ": 0 changes; 0 of 1 change matched; none has vv (v?)"),
        ("count orders --only modify", "Counted 1 change"),
    ],
)
def test_a_condition_that_can_not_match_is_told(
    at: str, command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change = {"SequenceNumber": "1", "Keys": {"pk": {"S": "a"}}, "NewImage": {"v": {"N": "1"}}}
    Path("lines").write_text(json.dumps({"eventName": "INSERT", "dynamodb": change}))
    assert told(0, *command.split()).err[-1].endswith(said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["orders"], "name a stream and a time: as-of orders 2h"),
        (
            ["orders", "soon"],
            ": TIME: can't read 'soon' as a time: use an age like 2h or 1h30m, or a time like",
        ),
        (["orders", "1h", "--key", "id=a"], "--key id: no such key attribute; the table has pk"),
        (["orders", "1h", "--to", "/no/folder/x"], "can't write /no/folder/x: No such file"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, at: str) -> None:
    (line,) = told(2, "as-of", *words).err
    assert message in line
