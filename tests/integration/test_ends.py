"""Where "up to now" ends, on the command line: not by a clock, nor by an empty page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.program import run

pytestmark = pytest.mark.proof

ODD: list[dict[str, Any]] = [
    {"closed_empty": 300, "open_empty": 30},
    {"back_rate": 0.3, "max_records": 7},
    {"ahead_rate": 0.3},
    {"date_skew": -600.0},
    {"date_skew": -600.0, "date_skew_rate": 0.5, "ahead_rate": 0.3},
]


@pytest.mark.parametrize("faults", ODD, ids=lambda each: "+".join(each))
def test_an_end_up_to_now_loses_nothing_and_repeats_nothing(faults: dict[str, Any]) -> None:
    with Simulator(table="orders") as sim:
        sim.set_faults(**faults)
        written = sim.write("a", 40)
        sim.rotate()
        written += sim.write("a", 40)
        ended = run(
            *("orders", "--from", "trim-horizon", "--no-follow", "--print-json"),
            env=sim.environment,
        )
    out = [json.loads(line) for line in ended.out]
    assert [each["dynamodb"]["SequenceNumber"] for each in out] == written
    said = "\n".join(ended.err)
    assert said.count(" is open; read up to now (") == 1
    assert ("gives records again" in said) == ("back_rate" in faults)
