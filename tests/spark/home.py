"""The Spark that tests run: as it is installed, but its processes start in half of the CPU time.

Spark's Python processes take pyspark out of a zip of sources, and each of hundreds would compile it
anew: here the installed folders stand for the zips. Its JVMs look for each class in 280 jars, one
after the other, and MLlib has its part in each session: here are the jars that the tests need.
"""

from __future__ import annotations

import os
import re
import tempfile
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

_SITE = Path(__file__).with_name("sitecustomize.py")


def make() -> Path | None:
    """A folder of links, SPARK_HOME from here on; None where that is set, or Spark not installed.

    Its maker removes it.
    """
    if "SPARK_HOME" in os.environ or _folder("pyspark") is None:
        return None
    home = link(Path(tempfile.mkdtemp(prefix="watcher-spark-home-")))
    os.environ["SPARK_HOME"] = str(home)
    return home


def link(home: Path, *, all_jars: bool = False) -> Path:
    """Make the links in this folder, which may not be there yet; `all_jars` for Spark Connect."""
    spark = _folder("pyspark")
    assert spark is not None
    library, jars = home / "python" / "lib", home / "jars"
    jars.mkdir(parents=True)
    for path in spark.iterdir():
        if path.name not in ("jars", "python"):
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
