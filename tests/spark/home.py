"""The Spark that tests run: as it is installed, but its Python modules are compiled only once.

Spark's Python processes take pyspark out of a zip of sources. Each of the hundreds that the tests
start would compile it anew, half of its CPU time: here the installed folders stand for the zips.
"""

from __future__ import annotations

import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path


def make() -> Path | None:
    """A folder of links, SPARK_HOME from here on; None where that is set, or Spark not installed.

    Its maker removes it.
    """
    spark = None if "SPARK_HOME" in os.environ else _folder("pyspark")
    if spark is None:
        return None
    home = Path(tempfile.mkdtemp(prefix="watcher-spark-home-"))
    library = home / "python" / "lib"
    for path in spark.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for zipped in (spark / "python" / "lib").iterdir():
        name = re.split(r"[-.]", zipped.name)[0]
        (library / zipped.name).mkdir(parents=True)
        (library / zipped.name / name).symlink_to(_folder(name) or zipped)
    os.environ["SPARK_HOME"] = str(home)
    return home


def _folder(package: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent if found and found.origin else None
