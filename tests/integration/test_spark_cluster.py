"""On a cluster: a standalone master and two workers, whose Pythons come with the job, packed.

What travels to an executor is only what was pickled, and what is in `--archives`. An executor is
killed, a task fails, and one is so slow that Spark starts it a second time: each row comes once.
Executors come and go with the work (dynamic allocation).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.simulator import Simulator
from tests.spark import home
from tests.spark.conftest import PATIENCE, WHOLE, missing

pytestmark = pytest.mark.proof

pyspark = pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
_DAEMONS = "org.apache.spark.deploy."


def play(master: str, stream: str, endpoint: str) -> None:
    """The driver: a question to workers without watcher, an archive by workers that have it."""
    from watcher.aws.config import AwsConfig
    from watcher.errors import WatcherError
    from watcher.spark import register, session
    from watcher.spark.jobs import archive, query

    settings = [
        "spark.archives=bare.tar.gz#bare,environment.tar.gz#environment",
        "spark.executor.memory=512m",
        f"spark.executor.extraJavaOptions={home.JAVA}",
        # Executors go after a job and come with the next. The start of one costs 5 CPU s.
        "spark.dynamicAllocation.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.enabled=true",
        "spark.dynamicAllocation.initialExecutors=2",
        "spark.dynamicAllocation.executorIdleTimeout=10s",
        "spark.speculation=true",
        "spark.speculation.interval=100ms",
        "spark.speculation.minTaskRuntime=1s",
        "spark.speculation.task.duration.threshold=5s",  # also of a stage of one task
    ]
    spark = session.start(master=master, conf=settings)
    here = AwsConfig("us-east-1", None, endpoint)
    try:
        query(stream, "SELECT count(*) FROM changes", connection=here, spark=spark)
    except WatcherError as error:
        print(error)
    spark.sparkContext.pythonExec = "./environment/bin/python"
    register(spark)
    archive(stream, to="lake", once=True, connection=here, spark=spark)
    deadline, blocks = time.monotonic() + PATIENCE, spark.sparkContext._jsc.sc()
    while blocks.getExecutorMemoryStatus().size() > 1:  # the driver's own
        assert time.monotonic() < deadline, "idle executors stay"
        time.sleep(0.1)
    read = spark.readStream.format("dynamodb_streams").option("maxRecordsPerTrigger", 300)
    read = read.options(stream=stream, endpointUrl=endpoint, region="us-east-1")
    numbers = read.option("startingPosition", "trim_horizon").load().select("sequence_number")
    writer = in_trouble(numbers, os.getcwd()).writeStream.format("parquet")
    writer = writer.options(path="troubled", checkpointLocation="checkpoint")
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    spark.stop()


def in_trouble(rows: Any, folder: str) -> Any:
    """The same rows; of the first tasks one kills its executor, one fails, and one hangs."""

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        troubles = () if task.attemptNumber() else ("killed", "failed", "slow")
        for batch in batches:
            for trouble in troubles:
                try:
                    os.close(os.open(os.path.join(folder, trouble), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                if trouble == "failed":
                    raise ValueError("a task fails")
                if trouble == "killed":  # this process's parent is Spark's daemon, its parent a JVM
                    with open(f"/proc/{os.getppid()}/stat") as daemon:
                        os.kill(int(daemon.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(PATIENCE)
            yield batch

    return rows.mapInArrow(passed, rows.schema)


def pack(folder: Path, name: str, *, with_watcher: bool) -> None:
    """A virtual environment and its archive, as venv-pack makes them; the large parts are links."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / name], check=True)
    (packages,) = (folder / name).glob("lib/python*/site-packages")
    (packages / "parts.pth").write_text(sysconfig.get_path("purelib"))
    if with_watcher:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "watcher", packages / "watcher", ignore=skip)
    shutil.make_archive(str(folder / name), "gztar", folder / name)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    from watcher.errors import UsageError
    from watcher.spark import jvm

    try:
        jvm.set_java_home()
    except UsageError as error:
        missing(str(error))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    start = [Path(pyspark.__file__).parent / "bin" / "spark-class"]
    web = ["--webui-port", "0"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": home.JAVA,
    }
    env.pop("PYTHONPATH", None)
    with ExitStack() as started, open(tmp_path / "daemons.log", "wb") as log:

        def daemon(name: str, *arguments: str) -> None:
            process = subprocess.Popen(
                [*start, _DAEMONS + name, *web, *arguments], env=env, stdout=log, stderr=log
            )
            started.callback(process.wait)
            started.callback(process.terminate)

        daemon("master.Master", "--host", address[0], "--port", str(address[1]))
        url = f"spark://127.0.0.1:{address[1]}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(address).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, (tmp_path / "daemons.log").read_text()[-3000:]
                time.sleep(0.1)  # nobody tells us across processes
        # A host that had a task gets no speculative try of it: so two names of this one.
        for number, host in enumerate(("127.0.0.1", "localhost"), 1):
            place = ["--host", host, "--work-dir", str(tmp_path / f"worker-{number}")]
            daemon("worker.Worker", "--cores", "1", "--memory", "1g", *place, url)
        yield url


@pytest.mark.spark
@pytest.mark.timeout(WHOLE)
def test_workers_read_with_the_environment_that_came_packed_or_name_what_they_lack(
    master: str, tmp_path: Path
) -> None:
    pack(tmp_path, "bare", with_watcher=False)
    pack(tmp_path, "environment", with_watcher=True)
    with Simulator(shards=2) as simulator:
        simulator.bulk(800, keys=20)
        simulator.split()
        simulator.bulk(200, keys=20)
        simulator.advance(2)
        done = subprocess.run(
            [sys.executable, __file__, master, simulator.stream_arn, simulator.endpoint],
            cwd=tmp_path,
            env=os.environ
            | {
                # Planning, in the driver, starts the same path; it finds watcher here.
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": "./bare/bin/python",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        written = [each.sequence_number for each in simulator.records]

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Spark's workers can't import dynamodb-watcher")
    assert "send a packed environment with --archives" in done.stdout
    assert done.stdout.count("\n") == 1
    workers = {path.name for path in tmp_path.glob("worker-*") if list(path.glob("app-*/*"))}
    assert workers == {"worker-1", "worker-2"}
    data = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet", partitioning="hive")
    numbers = data.to_table(columns=["sequence_number"])["sequence_number"].to_pylist()
    assert sorted(numbers, key=int) == written
    assert {path.name for path in tmp_path.glob("*") if not path.suffix} >= {
        "killed",
        "failed",
        "slow",
    }
    data = pyarrow.dataset.dataset(files_of(tmp_path / "troubled"), format="parquet")
    numbers = data.to_table()["sequence_number"].to_pylist()
    assert sorted(numbers, key=int) == written


def files_of(sink: Path) -> list[str]:
    """The files that the log of Spark's file sink names: those of tries that failed are no rows."""
    logs = [path for path in (sink / "_spark_metadata").iterdir() if path.name.isdigit()]
    lines = [line for path in logs for line in path.read_text().splitlines()[1:]]
    return [json.loads(line)["path"].removeprefix("file://") for line in lines]


if __name__ == "__main__":
    play(*sys.argv[1:])
