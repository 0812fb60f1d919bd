"""On Spark Connect: the client has no JVM, and the server runs the source; and a pipeline on it.

`spark-pipelines` is a client of Spark Connect, and takes the server that is there: one start of
Spark for both.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.simulator import Simulator
from tests.spark import every_use, home
from tests.spark.conftest import PATIENCE, WHOLE, missing
from tests.support.pages import PAGES, blocks

pytestmark = pytest.mark.proof

pyspark = pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CHANGES = 5
_RETAINED = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.materialized_view
def retained():
    return spark.read.format("dynamodb_streams").option("stream", "orders").load()
"""


def play(server: str, stream: str) -> None:
    """What a Connect client does; runs in a process of its own, since a classic Spark can't."""
    from pyspark.sql import SparkSession

    from watcher.spark import compat, register

    spark = SparkSession.builder.remote(server).getOrCreate()
    found = spark.read.format("dynamodb_streams").option("stream", stream).load()
    assert found.count() == _CHANGES, "found without a registration"
    register(spark)
    found = spark.read.format("dynamodb_streams").option("stream", stream).load()
    every_use.check(spark, found, {"INSERT": 1, "MODIFY": _CHANGES - 1})

    def changes(checkpoint: str) -> Any:
        found = spark.readStream.format("dynamodb_streams").option("stream", stream)
        found = found.options(startingPosition="trim_horizon", checkpointLocation=checkpoint)
        return found.load()

    writer = changes("checkpoint").writeStream.option("checkpointLocation", "checkpoint")
    assert writer.trigger(availableNow=True).toTable("taken").awaitTermination(PATIENCE)
    assert spark.table("taken").count() == _CHANGES
    if importlib.util.find_spec("pyspark.pipelines"):
        play_the_pipeline(spark, server, needs_checkpoint=not compat.HAS_ADMISSION_CONTROL)
    print("played")


def play_the_pipeline(spark: Any, server: str, *, needs_checkpoint: bool) -> None:
    """docs/spark.md's, as written: first with a batch read, then with changes."""
    project = Path("project")
    place = project.absolute().as_uri()
    checkpoint = f"{place}/pipeline/_checkpoints/spark_catalog/default/changes/changes/0"
    start = '.option("startingPosition", "trim_horizon")'
    parts = {"transformations/retained.py": _RETAINED}
    for _, text in blocks(PAGES["spark.md"]):
        parts[text.splitlines()[0].removeprefix("# ")] = text
    client = boto3.client("dynamodb")

    def run(*names: str) -> dict[str, int]:
        shutil.rmtree(project / "transformations", ignore_errors=True)
        (project / "transformations").mkdir(parents=True)
        for name in ("spark-pipeline.yml", *names):
            text = parts[name].replace("file:///lake", place)
            if needs_checkpoint:
                text = text.replace(start, f'{start}.option("checkpointLocation", "{checkpoint}")')
            (project / name).write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
            cwd=project,
            env=os.environ | {"SPARK_REMOTE": server},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        spark.catalog.refreshTable("changes_by_kind")
        return dict(spark.table("changes_by_kind").collect())

    def put(key: str, total: int) -> None:
        item = {"pk": {"S": key}, "total": {"N": str(total)}}
        client.put_item(TableName="orders", Item=item)

    found = run("transformations/changes.py", "transformations/retained.py")
    assert found == {"INSERT": 1, "MODIFY": _CHANGES - 1}
    assert spark.table("retained").count() == _CHANGES
    for total in (5, 6):
        put("b", total)
    client.delete_item(TableName="orders", Key={"pk": {"S": "a"}})
    put("c", 7)
    found = run("transformations/changes.py")
    assert found == {"INSERT": 3, "MODIFY": _CHANGES, "REMOVE": 1}, found


@contextmanager
def connect_server(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """A server of Spark Connect; yields its address."""
    from watcher.errors import UsageError
    from watcher.spark import jvm

    try:
        jvm.set_java_home()
    except UsageError as error:
        missing(str(error))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    settings = {
        "spark.connect.grpc.binding.address": address[0],
        "spark.connect.grpc.binding.port": address[1],
        "spark.ui.enabled": "false",
    }
    confs = [each for key, value in settings.items() for each in ("--conf", f"{key}={value}")]
    spark = home.link(folder / "spark", all_jars=True)  # it lacks no MLlib
    submit = [
        str(spark / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--class",
        _SERVER,
        *confs,
    ]
    with (
        open(folder / "server.log", "wb") as log,
        subprocess.Popen(
            [*submit, "spark-internal"],
            cwd=folder,
            env=os.environ | env | {"SPARK_HOME": str(spark)},
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    socket.create_connection(address).close()
                    break
                except ConnectionRefusedError:
                    is_there = server.poll() is None and time.monotonic() < deadline
                    assert is_there, (folder / "server.log").read_text()[-3000:]
                    time.sleep(0.1)  # nobody tells us across processes
            yield f"sc://{address[0]}:{address[1]}"
        finally:
            server.terminate()


@pytest.mark.spark
@pytest.mark.timeout(2 * WHOLE)
def test_a_connect_client_and_a_pipeline_read_batches_and_streams(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc") is None:
        missing("Spark Connect is not installed")
    package = tmp_path / "site" / "pyspark_dynamodb_streams"
    package.mkdir(parents=True)
    source = ROOT / "watcher" / "spark" / "default_source.py"
    (package / "__init__.py").write_text(source.read_text())
    with Simulator(shards=2) as simulator:
        simulator.write("a", _CHANGES)
        paths = [str(SPARK.parent), str(ROOT), str(package.parent)]
        env = {
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": simulator.endpoint,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with connect_server(tmp_path, env) as server:
            done = subprocess.run(
                [sys.executable, __file__, server, simulator.stream_arn],
                env=os.environ | env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=WHOLE,
                check=False,
            )
    assert done.stdout.strip().endswith("played"), done.stderr


if __name__ == "__main__":
    play(*sys.argv[1:])
