"""The Spark that Delta or Iceberg has a release for, beside the installed one, and jobs on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark import home
from tests.spark.conftest import PATIENCE
from tests.support.dynamodb_local import MissingPart
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
# Spark, and the jars that scripts/jars fetches.
SPARKS = {"delta": "4.2", "iceberg": "4.1"}
# By the format, a Spark that reads its tables; it ends with the end of what it is given.
_READERS = dict[str, subprocess.Popen[str]]()


class Job:
    """A command whose Spark is another than the one installed here: not one that was forked."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self._log = log = folder / "job.log"
        with log.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "watcher", *words],
                env=env,
                stderr=err,
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def said(self) -> str:
        """What it has written to stderr."""
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""

        def holds() -> bool:
            assert self.process.poll() is None, self.said()
            return condition()

        eventually(holds, told=self.said, seconds=PATIENCE)

    def wait_for_status(self, text: str) -> None:
        """Wait until it has written this to stderr."""
        self.wait_for(lambda: text in self.said())

    def end(self) -> int:
        """End it in order; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill it, with its JVM and all of its Pythons."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Lake:
    """Tables of one format in a folder, or in the bucket `lake` of an endpoint of S3."""

    def __init__(self, kind: str, folder: Path, s3: str = "") -> None:
        self.kind = kind
        self.folder = folder
        self._s3 = s3
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "watcher"
        spark = cache / "sparks" / SPARKS[kind]
        if not (spark / "pyspark").exists():
            raise MissingPart(
                f"no Spark {SPARKS[kind]}: scripts/spark-versions --fetch {SPARKS[kind]}"
            )
        jars = [*_jars(kind), *(_jars(f"{kind}-s3") if s3 else [])]
        self.target = str(folder / "orders") if kind == "delta" else "lake.shop.orders"
        settings = [f"spark.jars={','.join(jars)}"]
        if s3:
            settings += _s3_settings(s3)
        elif kind == "iceberg":
            settings += [
                "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type=hadoop",
                f"spark.sql.catalog.lake.warehouse={folder}",
            ]
        self.session = ["--master", "local[2]", *(f"--conf={each}" for each in settings)]
        self.words = ["--to", self.target, "--format", kind, "--engine", "spark", *self.session]
        kept = {name: text for name, text in os.environ.items() if "SPARK" not in name}
        self._environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(spark), str(ROOT)]),
            "SPARK_SUBMIT_OPTS": home.submit_options(),
        }

    def mirror(self, environment: Mapping[str, str], *more: str) -> Job:
        """Start `mirror` of the table orders."""
        return self.job(environment, "mirror", "orders", *self.words, *more)

    def job(self, environment: Mapping[str, str], *words: str) -> Job:
        """Start a command in the folder."""
        return Job(words, {**self._environment, **environment}, self.folder)

    def run(self, environment: Mapping[str, str], *more: str) -> str:
        """Run `mirror` up to now; what it has written to stderr."""
        with self.mirror(environment, "--no-follow", *more) as job:
            assert job.process.wait(PATIENCE) == 0, job.said()
            return job.said()

    def batches(self, log: str) -> int:
        """The number of micro-batches that were begun (`offsets`), or done (`commits`)."""
        return sum(each.name.isdigit() for each in self.folder.glob(f"**/_checkpoint/*/{log}/*"))

    def has_begun(self, more: int) -> Callable[[], bool]:
        """Whether so many micro-batches have begun from now on."""
        before = self.batches("offsets")
        return lambda: self.batches("offsets") >= before + more

    def begun(self) -> float:
        """When the first copy began, from which on the changes count."""
        first, *_ = sorted(self.folder.glob("**/_checkpoint/*"))
        return datetime.strptime(f"{first.name}Z", "%Y-%m-%dT%H%M%S%z").timestamp()

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table as it is now."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            found: list[dict[str, Any]] = DeltaTable(self.target).to_pyarrow_table().to_pylist()
            return found
        return self.rows_in_spark()

    def rows_in_spark(self) -> list[dict[str, Any]]:
        """The rows as Spark reads them, a VARIANT too: one Spark reads all tables of a format."""
        if (reader := _READERS.get(self.kind)) is None:
            reader = _READERS[self.kind] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.lakes", "rows", *self.words],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert reader.stdin and reader.stdout
        place = self.target if self.kind == "delta" else self.folder / "shop" / "orders"
        print(place, file=reader.stdin, flush=True)
        found = []
        while (line := reader.stdout.readline()) != "\n":
            assert line, "the reader has ended"
            found.append(json.loads(line, parse_float=Decimal))
        return found

    def output(self, *words: str, given: str = "", **environment: str) -> str:
        """Run a module on this Spark; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            env={**self._environment, **environment},
            input=given,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=self.folder,
        )
        return done.stdout


def _jars(kind: str) -> list[str]:
    found = subprocess.run([ROOT / "scripts/jars", kind], capture_output=True, text=True)
    if found.returncode:
        raise MissingPart(f"no jars: {found.stderr.strip()}")
    return [str(jar) for jar in Path(found.stdout.strip()).glob("*.jar")]


def _s3_settings(endpoint: str) -> list[str]:
    """Where S3 is: for Hadoop's client, and for Iceberg's."""
    hadoop, iceberg = "spark.hadoop.fs.s3a", "spark.sql.catalog.lake.s3"
    places = [f"{hadoop}.endpoint={endpoint}", f"{iceberg}.endpoint={endpoint}"]
    places.append(f"{hadoop}.endpoint.region=us-east-1")
    return [*places, f"{hadoop}.path.style.access=true", f"{iceberg}.path-style-access=true"]


def session_of(words: list[str]) -> SparkSession:
    """A session for a lake, by the words of a command; with `connect`, one of Spark Connect."""
    from watcher.spark import lake_table, session

    conf = [each.removeprefix("--conf=") for each in words if each.startswith("--conf=")]
    kind = words[words.index("--format") + 1]
    settings = [f"{name}={text}" for name, text in lake_table.SETTINGS[kind]]
    if "connect" in words:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote("local[2]")
        for each in (*settings, *conf, "spark.connect.grpc.binding.address=127.0.0.1"):
            builder = builder.config(*each.split("=", 1))
        return builder.getOrCreate()
    return session.start(master="local[2]", conf=[*settings, *conf])


def print_rows(words: list[str]) -> None:
    """Print the rows of each table that stdin names, as another process sees them."""
    spark, kind = session_of(words), words[words.index("--format") + 1]
    for place in sys.stdin:
        for row in spark.read.format(kind).load(place.strip()).toJSON().collect():
            print(row)
        print(flush=True)
    spark.stop()


def rewrite(words: list[str]) -> None:
    """Make larger files of a table's small ones, eight times beside its writer.

    Prints how often that was done: the others met the writer's commits.
    """
    spark, to = session_of(words), words[words.index("--to") + 1]
    sql = f"OPTIMIZE delta.`{to}`"
    if "iceberg" in words:
        sql = (
            "CALL lake.system.rewrite_data_files(table => 'shop.orders', "
            "options => map('rewrite-all', 'true'))"
        )
    done = 0
    for _ in range(8):
        with contextlib.suppress(Exception):
            spark.sql(sql).collect()
            done += 1
    print(done)
    spark.stop()


if __name__ == "__main__":
    {"rows": print_rows, "rewrite": rewrite}[sys.argv[1]](sys.argv[2:])
