"""What a proxy, a load balancer or nobody knows who answers in DynamoDB's place."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.simulator.errors import ODD
from tests.support.program import Program, run
from watcher import watch

pytestmark = pytest.mark.proof
SHARDS = 2

ANY = (*ODD, "else", "AccessDeniedException")


def test_no_odd_answer_ends_a_running_watch(sim: Simulator) -> None:
    with Program("orders", "--print-json", "--poll-max", "0.05", env=sim.environment) as program:
        program.wait_for_status("Watching")
        for count, odd in enumerate(ANY, 1):
            sim.fail_next("GetRecords", odd)
            sim.bulk(10)
            program.wait_for_lines(10 * count)
        for operation, odd in product(("GetShardIterator", "DescribeStream"), ANY[::6]):
            sim.fail_next(operation, odd)
        sim.rotate("all")
        sim.bulk(10)
        program.wait_for_lines(10 * len(ANY) + 10)
        assert program.end() == 0
    delivered = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in program.out]
    assert sorted(delivered) == sorted(record.sequence_number for record in sim.records)


@pytest.mark.parametrize(("times", "said"), [(1, 0), (2, 1)])
def test_answers_without_an_iterator_do_not_end_an_open_shard(
    sim: Simulator, tmp_path: Path, times: int, said: int
) -> None:
    """Localstack #12483: in a run up to now, and in the next one, which resumes."""
    checkpoint, arguments = str(tmp_path / "checkpoint.json"), ("--from", "trim-horizon", "-pj")
    delivered = []
    for _ in range(2):
        sim.bulk(20)
        sim.fail_next("GetRecords", "ends", times)
        program = run(
            "orders", *arguments, "--no-follow", "--checkpoint", checkpoint, env=sim.environment
        )
        assert program.status == 0
        assert sum("still show it as open" in line for line in program.err) == said
        delivered += [json.loads(line)["dynamodb"]["SequenceNumber"] for line in program.out]
    assert sorted(delivered) == sorted(record.sequence_number for record in sim.records)


NAMED = {
    "status-403": ("(403)", "says the proxy"),
    "status-204": ("HTTP 204 with nothing instead of an answer",),
    "cbor": ("HTTP 200 with b'", "instead of an answer"),
    "page": ('HTTP 200 with a page ("Sign in"', "a proxy or gateway is in the way"),
    "else": (": an answer ",),  # without what was asked for
}


@pytest.mark.parametrize(
    ("command", "operation", "odd"),
    [
        (["orders"], "DescribeTable", "page"),
        (["orders"], "DescribeStream", "status-403"),
        (["orders"], "GetRecords", "status-204"),
        (["orders"], "GetShardIterator", "else"),
        (["shards", "orders"], "DescribeStream", "page"),
        (["streams"], "ListStreams", "cbor"),
    ],
)
def test_at_the_start_an_odd_answer_is_the_end_and_named(
    sim: Simulator, command: list[str], operation: str, odd: str
) -> None:
    sim.fail_next(operation, odd, times=100)
    program = run(*command, env=sim.environment)
    assert program.status == 3
    (line,) = [line for line in program.err if line.startswith("error: ")]
    assert operation in line and all(part in line for part in NAMED[odd])


def test_what_is_read_up_to_now_over_odd_answers_is_whole(sim: Simulator) -> None:
    sim.bulk(20 * len(ANY))
    sim.set_faults(max_records=5)
    odd = iter(ANY)
    seen: list[str] = []

    def take(record: object) -> None:
        if len(seen) % 20 == 3:
            sim.fail_next("GetRecords", next(odd))
        seen.append(record.sequence_number)  # type: ignore[attr-defined]

    watch("orders", [take], start="trim_horizon", follow=False, endpoint_url=sim.endpoint)
    assert sorted(seen) == sorted(record.sequence_number for record in sim.records)
