"""Several tables in one watch: the real command line against the real DynamoDB Local."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.integration.test_watch_local import expected, put
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.program import Program, run

pytestmark = pytest.mark.proof


def sort_keys(lines: list[str]) -> dict[str, list[str]]:
    """Table → its records' sort keys, in the order in which they came."""
    found = defaultdict(list)
    for line in lines:
        record = json.loads(line)
        table = record["eventSourceARN"].partition("/stream/")[0].rpartition("/")[2]
        found[table].append(record["dynamodb"]["Keys"]["SK"]["S"])
    return found


def test_two_tables_rotate_under_a_watch_that_is_ended_and_resumed(
    fresh_dynamodb_local: DynamoDBLocal, tmp_path: Path
) -> None:
    server, names = fresh_dynamodb_local, ("orders", "users")
    for name in names:
        server.create_table(name)
    arguments = ("orders", "us*", "--print-json", "--checkpoint", str(tmp_path / "c.json"))
    with Program(*arguments, env=server.environment) as program:
        program.wait_for_status("Watching 2 shards of 2 streams")
        for generation in range(3):
            for name in names:
                put(server, name, generation * 50, 50)
            server.rollover()
        program.wait_for_lines(300)
        assert program.end() == 0
    assert sort_keys(program.out) == {name: expected(0, 150) for name in names}
    stored = json.loads((tmp_path / "c.json").read_text())["streams"]
    assert [each["stream_arn"].split("/")[1] for each in stored] == ["orders", "users"]

    for name in names:
        put(server, name, 150, 20)
    rest = run(*arguments, "--no-follow", env=server.environment)
    assert rest.status == 0
    assert sort_keys(rest.out) == {name: expected(150, 20) for name in names}
    last = run(*arguments[:3], "--tail", "30", "--no-follow", env=server.environment)
    found = sort_keys(last.out)
    assert sum(map(len, found.values())) == 30
    assert all(found[name] == expected(170 - len(found[name]), len(found[name])) for name in names)
