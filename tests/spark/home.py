"""The Spark that tests run: as it is installed, but its processes start in less CPU time.

Spark's Python processes take pyspark out of a zip of sources, and each of hundreds would compile it
anew: here the installed folders stand for the zips. Its JVMs look for each class in 280 jars, one
after the other, and MLlib has its part in each session: here are the jars that the tests need.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Of Kubernetes and Hadoop's cluster, Hive and its database, MLlib and its sums, other systems.
_NOT_NEEDED = re.compile(
    r"kubernetes|volcano|vertx|zjsonpatch|jjwt|spark-yarn"
    r"|spark-hive|hive-(?!storage)|datanucleus|derby|jdo|HikariCP|commons-(dbcp|pool)|lib(fb|thrift)"
    r"|ST4|antlr-runtime|jta|transaction-api|jline|opencsv|super-csv|jpam"
    r"|mllib|graphx|breeze|spire|cats-|algebra|arpack|lapack|blas|JLarge|JTransforms"
    r"|-(osx|windows)-"
)

# For JVMs that live for seconds. Without the optimizing compiler and its threads, and without the
# check of Spark's own classes, a Spark command takes half of the CPU time.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
JAVA += " -XX:-BytecodeVerificationRemote"
_SETTINGS = "-Dspark.sql.shuffle.partitions=2 -Dspark.sql.streaming.numRecentProgressUpdates=99"


def make() -> None:
    """Make a folder of links in the environment, and have each Spark from here on start there.

    Not where SPARK_HOME is set, or Spark not installed.
    """
    spark = _folder("pyspark")
    if "SPARK_HOME" in os.environ or spark is None:
        return
    made_of = f"{spark} {_NOT_NEEDED.pattern}"
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
    os.environ["SPARK_CONF_DIR"] = str(home / "conf")
    os.environ["SPARK_SUBMIT_OPTS"] = submit_options()
    os.environ["PYSPARK_PYTHON"] = sys.executable


def submit_options() -> str:
    """SPARK_SUBMIT_OPTS of a session that lives for seconds, and has few rows."""
    return f"{JAVA} {_SETTINGS}"


def link(home: Path, *, all_jars: bool = False) -> Path:
    """Make the links in this folder, which may not be there yet; `all_jars` for Spark Connect."""
    spark = _folder("pyspark")
    assert spark is not None
    (home / "conf").mkdir(parents=True)
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
    return home


def _folder(package: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent if found and found.origin else None
