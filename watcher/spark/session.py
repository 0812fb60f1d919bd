"""Starts Spark for a command: finds a Java, sets this Python, and silences Spark's own output."""

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.spark import jvm
from watcher.spark.error_mapping import one_line
from watcher.spark.source import register

logger = logging.getLogger("watcher")

JavaObject: TypeAlias = Any
"""An object in the JVM, by way of py4j, which has no types."""

# Of Hadoop, and of the same version as Spark's own.
_MODULES = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
# As Delta and Iceberg name a jar for one Spark; any other fails in the middle of the work.
_FOR_ONE_SPARK = re.compile(r"(?:delta-spark_|iceberg-spark-runtime-)(\d\.\d+)_[\d.]+")
_LOGGING = Path(__file__).with_name("log4j2.properties")

# Where neither the user nor spark-defaults.conf sets anything.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Instants for every reader; Spark's INT96 is a local time to them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Partitions of an aggregation; Spark's 200 are for a cluster.
    "spark.sql.shuffle.partitions": "8",
    # A task that fails is tried again, also on one machine (local[N,failures] says otherwise).
    "spark.task.maxFailures": "4",
    # A job that is killed as it notes its first offsets leaves a temporary file, and Spark then
    # refuses the checkpoint (SPARK-53103). The jobs note themselves what a checkpoint is for.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}

# For a Spark on this machine alone, where the user sets nothing else.
LOCAL_DEFAULTS: Final = {
    # Not the machine's own address, which others can reach; spark.driver.bindAddress follows.
    "spark.driver.host": "127.0.0.1",
    # Other users of this machine get no answer either: Spark makes a secret for the session.
    "spark.authenticate": "true",
    # Only the user may read items. This is for Hadoop's files; the JVM's umask is for the others.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}


def start(
    *,
    master: Annotated[str | None, Opt("Spark master; default local[*]", "URL", "spark")] = None,
    conf: Annotated[
        list[str] | None,
        Opt("a Spark setting, such as --conf spark.ui.enabled=true", "KEY=VALUE", "spark"),
    ] = None,
    packages: Annotated[
        str | None, Opt("Maven packages to add, as spark-submit takes them", "COORDINATES", "spark")
    ] = None,
) -> SparkSession:
    """Starts a session with `dynamodb_streams` registered.

    Raises UsageError for a wrong setting.
    """
    own_settings = dict(key_value(each, "conf") for each in conf or ())
    _refuse_connect(master, own_settings)
    for jar in _FOR_ONE_SPARK.finditer(f"{packages} {own_settings}"):
        if not pyspark.__version__.startswith(f"{jar[1]}."):
            raise UsageError(
                f"{jar[0]} is for Spark {jar[1]}, and this is {pyspark.__version__}: "
                f"pip install 'pyspark=={jar[1]}.*', or give the jar for this one"
            )
    jvm.set_java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if packages:
        logger.info(f"Fetching {packages}")
        own_settings = {"spark.jars.packages": packages, **own_settings}
    settings = _settings(master or "local[*]") | own_settings
    if SparkContext._gateway is None:
        # The start takes some seconds without any other output.
        logger.info(f"Starting Spark ({settings['spark.master']})")
    if not logger.isEnabledFor(logging.DEBUG):
        jvm.hush_py4j()
    output = jvm.launch(settings, is_private=_is_local(settings["spark.master"]))
    try:
        spark = _built(settings)
        register(spark)
    except KeyboardInterrupt:
        jvm.end()
        raise
    except Exception as error:
        raise UsageError(f"Spark did not start: {one_line(error)}") from error
    finally:
        if output is not None:
            output.pass_on(held=logger.isEnabledFor(logging.DEBUG))
    _quiet(spark)
    return spark


def _settings(master: str) -> dict[str, str]:
    """Returns the settings that only `--conf` overrides."""
    return {
        "spark.app.name": "watcher",
        "spark.master": master,
        # Not extraJavaOptions: those are the user's.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # spark-submit takes this program for a shell, and would switch the bar on.
        "spark.ui.showConsoleProgress": "false",
    }


def _built(settings: Mapping[str, str]) -> SparkSession:
    # pyspark warns of pandas 3, which nothing here uses, at the start and at each function.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder
    for name, value in (_defaults(settings["spark.master"]) | dict(settings)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _quiet(spark: SparkSession) -> None:
    """Keeps Spark's own threads from writing to stderr."""
    # This one writes a traceback where a signal to the whole group has ended the JVM.
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None
    # These write a page of JSON for an error that is raised as well.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _defaults(master: str) -> dict[str, str]:
    """Returns what neither the user nor spark-defaults.conf sets."""
    given = SparkConf()  # with spark-defaults.conf
    ours = _DEFAULTS | (LOCAL_DEFAULTS if _is_local(master) else {})
    return {name: value for name, value in ours.items() if not given.contains(name)}


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def key_value(text: str, option: str) -> tuple[str, str]:
    """Returns KEY=VALUE in two. Raises UsageError, which names the option."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError("give KEY=VALUE", option, text)
    return name, value


def _refuse_connect(master: str | None, conf: dict[str, str]) -> None:
    """Raises UsageError where Spark Connect is asked for, in any of Spark's ways."""
    name = "spark.api.mode"
    asked = {
        "--master": (master or "").startswith("sc://"),
        "--conf spark.remote": "spark.remote" in conf,
        f"--conf {name}": conf.get(name) == "connect",
        "SPARK_REMOTE": bool(os.environ.get("SPARK_REMOTE")),
        "SPARK_API_MODE": os.environ.get("SPARK_API_MODE") == "connect",
    }
    if found := [option for option, is_asked in asked.items() if is_asked]:  # not its token
        raise UsageError(
            f"{found[0]} asks for Spark Connect, and the jobs start a Spark of their own: leave it "
            "out, or use the source there: watcher.spark.register(spark)"
        )


def file_system(spark: SparkSession, path: str) -> JavaObject:
    """Returns Hadoop's file system of a path, in the JVM. Raises UsageError where it has none."""
    context: Any = spark.sparkContext
    try:
        found = context._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(context._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        if "ClassNotFound" not in str(error) and "No FileSystem for scheme" not in str(error):
            raise
        scheme = path.partition(":")[0]
        if scheme == "s3":
            raise UsageError(f"{path}: Hadoop calls it s3a://") from error
        if scheme not in _MODULES:
            text = f"{path}: Spark knows no {scheme}://; --packages can bring it"
            raise UsageError(text) from error
        version = context._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        module = f"org.apache.hadoop:{_MODULES[scheme]}:{version}"
        text = f"{path}: this Spark has no {scheme}://; give --packages {module}"
        raise UsageError(text) from error


def stop(spark: SparkSession) -> None:
    """Ends a session, also one whose JVM has ended by itself (a signal to the whole group)."""
    with contextlib.suppress(Py4JError, OSError):
        spark.stop()
