"""Streams by their names, on the command line and in the library, with every kind of service."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from tests.simulator import Simulator
from tests.support.program import run
from watcher import Stream, watch
from watcher.errors import StreamError

pytestmark = pytest.mark.proof

ELSEWHERE = "999999999999"


def version(record: Any) -> int:
    """How often the item has changed by then."""
    return int(record.new["v"])


def pulled(sim: Simulator, text: str) -> list[int]:
    """What `Stream` reads."""
    stream = Stream(text, "trim_horizon", region="us-east-1", endpoint_url=sim.endpoint)
    return list(map(version, iter(lambda: next(stream), None)))


def watched(sim: Simulator, text: str) -> list[int]:
    """What a watch reads; `Stream` reads the same."""
    seen: list[int] = []
    watch(
        text,
        [lambda record: seen.append(version(record))],
        start="trim_horizon",
        follow=False,
        region="us-east-1",
        endpoint_url=sim.endpoint,
    )
    assert pulled(sim, text) == seen
    return seen


def test_another_accounts_table_is_read_and_not_our_own_of_that_name(simulator: Simulator) -> None:
    simulator.write("a", 2)
    theirs = simulator.add_foreign_table("orders", ELSEWHERE, records=5)
    table = theirs.partition("/stream/")[0]
    assert watched(simulator, table) == [1, 2, 3, 4, 5]
    assert watched(simulator, simulator.table_arn) == [1, 2]
    ours = ["orders", "--from", "trim-horizon", "--no-follow", "-pj"]
    program = run(table, *ours[1:], env=simulator.environment)
    assert (program.status, len(program.out)) == (0, 5)
    program = run("shards", table, env=simulator.environment)
    assert (program.status, program.out[0].split()[0]) == (0, theirs)
    simulator.set_faults(table_arns="stripped")
    program = run(table, *ours[1:], env=simulator.environment)
    assert (program.status, program.out) == (3, [])
    assert program.err == [
        f"error: no table '{table}' in us-east-1: there is {simulator.table_arn}; "
        "check the ARN, --region and --profile"
    ]
    with pytest.raises(StreamError, match="there is arn"):
        watched(simulator, table)


@pytest.mark.parametrize("naming", ["alternator", "alternator-kcl"])
def test_alternators_names_are_taken_as_they_are(naming: str) -> None:
    with Simulator(naming=naming, shards=3) as sim:
        sim.set_faults(table_arns="refused", at_timestamp=False)
        sim.write("a", 2)
        assert watched(sim, sim.stream_arn) == [1, 2]
        sim.rotate("all")
        sim.write("a", 1)
        for text in (sim.table_name, sim.table_arn):
            assert pulled(sim, text) == [1, 2, 3]


@pytest.mark.parametrize("naming", ["aws", "alternator", "alternator-kcl"])
def test_tags_choose_tables_however_their_streams_are_called(naming: str) -> None:
    with Simulator(naming=naming) as sim:
        sim.set_faults(table_arns="refused", at_timestamp=False)
        sim.add_table("users")
        sim.write("a", 2)
        session = boto3.Session("any", "any", region_name="us-east-1")
        tables = session.client("dynamodb", endpoint_url=sim.endpoint)
        tables.tag_resource(ResourceArn=sim.table_arn, Tags=[{"Key": "env", "Value": "prod"}])
        tables.close()
        options: Any = {"start": "trim_horizon", "follow": False, "region": "us-east-1"}
        options["endpoint_url"] = sim.endpoint
        seen: list[Any] = []
        watch("*", [seen.append], tags=["env=prod"], **options)
        assert list(map(version, seen)) == [1, 2]
        with pytest.raises(StreamError, match="is let through by its tags"):
            watch("*", [seen.append], tags=["env=no"], **options)
