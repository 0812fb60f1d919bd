"""On Spark Connect: the client has no JVM, and the server runs the source."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE, missing

ROOT = Path(__file__).parents[2]
_CHANGES = 5


def play(stream: str, endpoint: str, checkpoint: str) -> None:
    """What a Connect client does; runs in a process of its own, since a classic Spark can't."""
    from pyspark.sql import SparkSession

    from watcher.spark import register

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"stream": stream, "endpointUrl": endpoint, "region": "us-east-1"}
    found = spark.read.format("dynamodb_streams").options(**options).load()
    assert found.count() == _CHANGES, "found without a registration"
    register(spark)
    assert spark.read.format("dynamodb_streams").options(**options).load().count() == _CHANGES

    def take(batch: Any, number: int) -> None:
        batch.write.mode("append").saveAsTable("changes")

    changes = spark.readStream.format("dynamodb_streams").options(**options)
    changes = changes.options(startingPosition="trim_horizon", checkpointLocation=checkpoint)
    writer = changes.load().writeStream.option("checkpointLocation", checkpoint)
    writer.foreachBatch(take).trigger(availableNow=True).start().awaitTermination()
    assert spark.table("changes").count() == _CHANGES
    print("played")
    sys.stdout.flush()
    os._exit(0)  # the server's farewell is pages of Java, and not ours


@pytest.mark.spark
@pytest.mark.timeout(PATIENCE + 60)
def test_a_connect_client_reads_batches_and_streams_registered_or_not(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc") is None:
        missing("Spark Connect is not installed")
    package = tmp_path / "site" / "pyspark_dynamodb_streams"
    package.mkdir(parents=True)
    source = ROOT / "watcher" / "spark" / "default_source.py"
    (package / "__init__.py").write_text(source.read_text())
    with Simulator.spawn(shards=2) as simulator:
        simulator.write("a", _CHANGES)
        done = subprocess.run(
            [
                *(sys.executable, __file__, simulator.stream_arn, simulator.endpoint),
                str(tmp_path / "checkpoint"),
            ],
            env=os.environ
            | {
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(package.parent)]),
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    if "JAVA_GATEWAY_EXITED" in done.stderr:
        missing("there is no Java")
    assert done.stdout.strip().endswith("played"), done.stderr[-3000:]


if __name__ == "__main__":
    play(*sys.argv[1:])
