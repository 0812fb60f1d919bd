"""The engine of the contributors' page works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.simulator import Simulator, judge

PAGE = Path(__file__).parents[3] / "docs" / "contributing.md"


def engine() -> dict[str, object]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "engine"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_engine_of_the_contributors_page_prints_all_records_up_to_now_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Simulator(table="orders", shards=2, seed=3) as simulator:
        monkeypatch.setenv("AWS_ENDPOINT_URL", simulator.endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        simulator.set_faults(error_rate=0.1, empty_page_rate=0.1, back_rate=0.05)
        for _ in range(3):
            simulator.bulk(200, keys=20)
            simulator.split()
            simulator.rotate("all")
        simulator.bulk(50)
        engine()["print_stream"]("orders")  # type: ignore[operator]
        lines = capsys.readouterr().out.splitlines()
        printed = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in lines]
        assert len(printed) == 650
        assert not any(judge(simulator.records, printed))
