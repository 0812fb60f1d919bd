"""On a cluster: a standalone master and two workers, whose Pythons come with the job, packed.

What travels to an executor is only what was pickled, and what is in `--archives`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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
    from watcher.spark import session
    from watcher.spark.jobs import archive, query

    settings = [
        "spark.archives=bare.tar.gz#bare,environment.tar.gz#environment",
        "spark.executor.memory=512m",
        f"spark.executor.extraJavaOptions={home.JAVA}",
    ]
    spark = session.start(master=master, conf=settings)
    here = AwsConfig("us-east-1", None, endpoint)
    try:
        query(stream, "SELECT count(*) FROM changes", connection=here, spark=spark)
    except WatcherError as error:
        print(error)
    spark.sparkContext.pythonExec = "./environment/bin/python"
    archive(stream, to="lake", once=True, connection=here, spark=spark)
    spark.stop()


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
        for number in (1, 2):
            place = ["--host", "127.0.0.1", "--work-dir", str(tmp_path / f"worker-{number}")]
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


if __name__ == "__main__":
    play(*sys.argv[1:])
