"""How a command's Spark starts, and what it says where it does not."""

import os
import re
import signal
import socket
import struct
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE, Run
from tests.support.program import Program
from watcher.errors import UsageError
from watcher.spark import session
from watcher.spark.jobs.archive import ArchiveFolder

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>
<artifactId>tiny</artifactId><version>1.0</version></project>"""
IVY = """<ivysettings><settings defaultResolver="here"/><resolvers>
<ibiblio name="here" m2compatible="true" root="{repository}"/></resolvers></ivysettings>"""


def ask(sim: Simulator, sql: str, *more: str) -> CompletedProcess[str]:
    """A command in a process of its own, since a session's JVM is what this is about."""
    command = [sys.executable, "-m", "watcher", "query", sim.stream_arn, sql, "--output", "csv"]
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    whole = [*command, *place, *more]
    return run(whole, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.proof
def test_what_the_user_sets_counts_and_ours_is_beside_it(spark: Any) -> None:
    """It is in SPARK_SUBMIT_OPTS; tests/aws/test_spark.py sets some in spark-defaults.conf."""
    management: Any = spark._jvm.java.lang.management.ManagementFactory
    java = list(management.getRuntimeMXBean().getInputArguments())

    assert "-XX:+UseSerialGC" in java
    assert any(each.endswith("watcher/spark/log4j2.properties") for each in java), "beside ours"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "not our default"
    assert spark.conf.get("spark.ui.enabled") == "false", "our default"
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false", "spark-submit says true"


def pid_of(spark: Any) -> int:
    """The process of its JVM."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def listening(pid: int) -> list[str]:
    """The addresses, as /proc has them, at which a process waits for connections."""
    sockets = set()
    with suppress(OSError):  # it, or one of its files, is gone
        for each in Path(f"/proc/{pid}/fd").iterdir():
            sockets |= {*re.findall(r"socket:\[(\d+)\]", os.readlink(each))}
    lines = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    rows = [line.split() for line in lines.splitlines()]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets]


@pytest.mark.proof
@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="Linux tells who listens where")
def test_a_local_spark_listens_on_this_machine_s_own_address_only(spark: Any) -> None:
    found = listening(pid_of(spark))

    assert found
    assert {*found} <= {"0100007F", "0000000000000000FFFF00000100007F"}, "127.0.0.1"


@pytest.mark.proof
def test_a_local_spark_reads_no_object_of_who_does_not_know_its_secret(spark: Any) -> None:
    """Without authentication it looks for the class, and says that there is none."""
    java = b"\xac\xed\0\5sr\0\x0bcom.example" + bytes(7) + b"\1\2\0\0xp"
    body = b"\0\0" + struct.pack(">H4s", 4, b"name") + java
    call = struct.pack(">BQI", 3, 7, len(body)) + body  # an RpcRequest
    address = (spark.conf.get("spark.driver.host"), int(spark.conf.get("spark.driver.port")))
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        connection.sendall(struct.pack(">Q", 8 + len(call)) + call)
        (length,) = struct.unpack(">Q", connection.recv(8, socket.MSG_WAITALL))
        answer = connection.recv(length - 8, socket.MSG_WAITALL).decode(errors="replace")

    assert "ClassNotFoundException" not in answer
    assert "Expected SaslMessage" in answer


@pytest.mark.proof
def test_a_local_spark_leaves_its_secret_and_its_files_to_nobody_else(
    spark: Any, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "made"))
    made = [tmp_path / "made", *(tmp_path / "made").iterdir()]
    assert {each.stat().st_mode & 0o077 for each in made} == {0}

    process = Path(f"/proc/{pid_of(spark)}")
    if process.exists():
        assert "Umask:\t0077" in (process / "status").read_text(), "of shuffles"
        assert b"authenticate.secret" not in (process / "cmdline").read_bytes()


@pytest.fixture
def maven(tmp_path: Path) -> list[str]:
    """A repository with one tiny package, org.example:tiny:1.0, and the options to use it."""
    folder = tmp_path / "maven/org/example/tiny/1.0"
    folder.mkdir(parents=True)
    (folder / "tiny-1.0.pom").write_text(POM)
    with zipfile.ZipFile(folder / "tiny-1.0.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(IVY.format(repository=f"{(tmp_path / 'maven').as_uri()}/"))
    return [
        *("--conf", f"spark.jars.ivySettings={settings}"),
        *("--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"),
    ]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "environment", "given"),
    [
        ("--master", {}, {"master": "sc://somewhere/;token=secret"}),
        ("SPARK_REMOTE", {"SPARK_REMOTE": "sc://somewhere/;token=secret"}, {}),
        ("SPARK_REMOTE", {"SPARK_REMOTE": "local"}, {"master": "local[2]"}),
        ("SPARK_API_MODE", {"SPARK_API_MODE": "connect"}, {}),
        ("--conf spark.remote", {}, {"conf": ["spark.remote=local"]}),
        ("--conf spark.api.mode", {}, {"conf": ["spark.api.mode=connect"]}),
    ],
)
def test_a_job_on_spark_connect_is_refused_in_a_sentence_that_says_what_works(
    name: str, environment: dict[str, str], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match="or use the source there") as error:
        session.start(**given)
    assert str(error.value).startswith(f"{name} asks for Spark Connect, ")
    assert "secret" not in str(error.value)


def processes_with(variable: str) -> list[int]:
    """Those that have it in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and variable.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def is_java(pid: int) -> bool:
    with suppress(OSError):
        return b"org.apache.spark.deploy.SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.proof
@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="Linux tells what has started")
@pytest.mark.parametrize("ports", [0, 2], ids=["Java starts", "Spark starts"])
def test_ctrl_c_while_spark_starts_is_a_quiet_end_that_leaves_no_jvm(
    sim: Simulator, ports: int
) -> None:
    mark = f"CTRL_C_{os.getpid()}_{ports}"
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    asked = ["query", sim.stream_arn, "SELECT count(*) FROM changes", *place]
    with Program(*asked, env={mark: "1"}) as program:
        program.wait_for_status("Starting Spark")
        deadline = time.monotonic() + PATIENCE
        while program.process.poll() is None:
            started = [pid for pid in processes_with(mark) if is_java(pid)]
            if any(len(listening(pid)) >= ports for pid in started):
                break
            assert time.monotonic() < deadline, "no JVM"
            time.sleep(0.01)
        os.killpg(program.process.pid, signal.SIGINT)

        assert program.wait(PATIENCE) == 130, program.err
    assert program.err == ["Starting Spark (local[*])"]
    # The one that only finds out the command line ends by itself a moment after its shell.
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in processes_with(mark) if is_java(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.mark.proof
def test_packages_reach_spark_and_stdout_is_for_data(sim: Simulator, maven: list[str]) -> None:
    done = ask(sim, "LIST JARS", "--packages", "org.example:tiny:1.0", *maven)

    assert done.returncode == 0, done.stderr
    (header, jar) = done.stdout.splitlines()
    assert header == "Results"
    assert jar.endswith("/jars/org.example_tiny-1.0.jar")
    assert done.stderr.splitlines() == [
        "Fetching org.example:tiny:1.0",
        "Starting Spark (local[*])",
        "Done: 1 row",
    ]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--packages", "org.example:other:1.0"], "org.example#other;1.0: not found"),
        (["--master", "nonsense"], "Master must either be"),
        (["--conf", "spark.driver.memory=lots"], "Invalid maximum heap size"),
        (["--conf", "nonsense"], "--conf nonsense: give KEY=VALUE"),
    ],
)
def test_a_spark_that_does_not_start_is_one_line(
    sim: Simulator, maven: list[str], options: list[str], text: str
) -> None:
    done = ask(sim, "SELECT 1", *options, *maven)

    assert done.returncode == 2
    assert done.stdout == ""
    *before, last = done.stderr.splitlines()
    assert all(line.startswith(("Fetching ", "Starting Spark (")) for line in before)
    assert last.startswith("error: ") and text in last


def test_what_a_batch_raises_is_one_line_and_no_traceback_of_py4j(
    command: Run,
    sim: Simulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*given: Any) -> None:
        raise UsageError("the disk is full")

    monkeypatch.setattr(ArchiveFolder, "append", fail)
    sim.bulk(5)
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    done = command("archive", sim.stream_arn, *place, "--to", str(tmp_path / "lake"), "--once")

    assert (done.status, done.err.splitlines()[-1]) == (2, "error: the disk is full")
    assert [each.name for each in caplog.records if each.name.startswith("py4j")] == []
