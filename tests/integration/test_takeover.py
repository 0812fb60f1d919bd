"""Watches that share a checkpoint in DynamoDB: one delivers, the next stands by and takes over."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.test_health import ask, wait_for
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.program import Program
from watcher.streams.checkpoint_format import from_json

ROOT = Path(__file__).parents[2]
CHECKPOINT = "dynamodb://watcher-positions/orders"


def watcher(server: DynamoDBLocal) -> Program:
    return Program(
        *("takeover", "--from", "trim-horizon", "--print-json", "--poll-max", "0.3"),
        *("--metrics-port", "0", "--checkpoint", CHECKPOINT, "--endpoint-url", server.endpoint_url),
        env={name: value for name, value in server.environment.items() if name[-3:] != "URL"},
    )


@contextmanager
def written_to(server: DynamoDBLocal) -> Iterator[list[int]]:
    """Every change is one more of `total`, to one of three items; the list holds what is there."""
    client, written, over = server.client(), list[int](), threading.Event()

    def write() -> None:
        while not over.wait(0.05):
            number = len(written)
            item = {
                "PK": {"S": f"user-{number % 3}"},
                "SK": {"S": "x"},
                "total": {"N": f"{number}"},
            }
            client.put_item(TableName="takeover", Item=item)
            written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


def totals(program: Program) -> list[int]:
    found = [json.loads(line)["dynamodb"]["NewImage"]["total"]["N"] for line in list(program.out)]
    return list(map(int, found))


def in_order(numbers: list[int]) -> bool:
    """Whether each item's changes come in order, each once."""
    kept = [[number for number in numbers if number % 3 == which] for which in range(3)]
    return all(each == sorted(set(each)) for each in kept)


def test_the_next_one_takes_over_from_one_that_is_stopped_and_from_one_that_is_killed(
    dynamodb_local: DynamoDBLocal,
) -> None:
    dynamodb_local.create_table("takeover")
    with written_to(dynamodb_local) as written, watcher(dynamodb_local) as first:
        first.wait_for_lines(20)
        with watcher(dynamodb_local) as second:
            second.wait_for_status("Standing by: ")
            first.wait_for_lines(len(first.out) + 40)
            assert second.out == []
            assert ask(second, "/readyz") == (200, "ok, standing by: another watch has the lease\n")
            assert ask(second, "/livez") == (200, "ok\n")
            with watcher(dynamodb_local) as fourth:
                fourth.wait_for_status("Standing by: ")
                assert fourth.end() == 0, "its turn had not come"

            os.kill(first.process.pid, signal.SIGSTOP)
            second.wait_for_lines(1)  # how soon: the simulation
            second.wait_for_lines(50)
            wait_for(second, "/readyz", 200)
            by_first = len(first.out)
            os.kill(first.process.pid, signal.SIGCONT)
            assert first.wait() == 1
            assert "the lease on" in first.err[-1]
            assert "start it again to have it stand by" in first.err[-1]
            assert len(first.out) <= by_first + 1, "the record that it was printing, at most"

            with watcher(dynamodb_local) as third:
                third.wait_for_status("Standing by: ")
                second.wait_for_lines(len(second.out) + 20)
                os.killpg(second.process.pid, signal.SIGKILL)
                third.wait_for_lines(1)
                count = len(written)
                third.wait_for(lambda: bool(third.out) and totals(third)[-1] >= count)
                assert third.end() == 0
                told = [totals(each) for each in (first, second, third)]
                assert all(map(in_order, told))
                assert set(range(count)) <= {number for each in told for number in each}
                # What was delivered and not saved: about a second of it, at each takeover.
                repeated = sum(map(len, told)) - len(set().union(*told))
                assert repeated < 120

    item = dynamodb_local.client().get_item(
        TableName="watcher-positions", Key={"name": {"S": "orders"}}
    )["Item"]
    stored = json.loads(item["record"]["S"])
    assert stored["holder"] == "", "given back"
    assert (
        from_json(json.dumps(stored["token"]))
        .stream_arn.partition("/stream/")[0]
        .endswith("takeover")
    )
