"""Spark's Python processes, forked from one that has imported what they need.

Spark starts some of them for each query, with `PYSPARK_PYTHON`, and each imports pyspark, pandas
and watcher for longer than it works. `python` is a program that stands for the Python: it
has a process of this test run, which the first one starts, fork itself, and ends with the fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
from pathlib import Path

from tests.support import prefork

_ROOT = Path(__file__).parents[2]
_RUN = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")
_IMPORTED = (
    *("pandas", "pyarrow", "pyspark.worker"),
    *("pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.create_data_source"),
    *("pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source"),
    *("watcher.spark.source", "watcher.spark.tasks", "watcher.spark.planner"),
)
# None of numpy's, and none of pyarrow's memory: a fork has no thread but one.
_WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
RUN = "PREFORK_RUN"
"""The variable with the id of the process of the tests as a whole."""


def python() -> str:
    """Returns the program that stands for the Python of this test run's Sparks."""
    return _PYTHON.format(
        python=sys.executable,
        root=str(_ROOT),
        run=RUN,
        module=__name__,
        without_threads=_WITHOUT_THREADS,
        ask=prefork.ASK,
    )


_PYTHON = """#!{python} -IS
import os, sys
words, run = sys.argv[1:], os.environ.get("{run}", "")
def be_python():
    os.execv({python!r}, [{python!r}, *words])
if not run or words[:1] != ["-m"] or not words[1].startswith("pyspark."):
    be_python()
import json, signal, socket
from zlib import crc32
address = "watcher-spark-%s-%08x" % (run, crc32(os.environ.get("PYTHONPATH", "").encode()))
asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    asking.connect("\\0" + address)
except OSError:
    if not os.fork():
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in 0, 1, 2:
            os.dup2(nowhere, each)
        path = os.environ.get("PYTHONPATH", "") + os.pathsep + {root!r}
        environment = {{**os.environ, "PYTHONPATH": path, **{without_threads}}}
        os.chdir("/")
        os.execve({python!r}, [{python!r}, "-m", "{module}", address, run], environment)
    be_python()
request = {{"module": words[1], "arguments": words[2:], "env": dict(os.environ)}}
request |= {{"cwd": os.getcwd(), "in_session": True}}
{ask}"""


def main() -> None:
    """Imports everything, and forks until the test run has ended."""
    address, run = sys.argv[1:]
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind("\0" + address)
    except OSError:
        return  # another one is there
    for name in (*_IMPORTED, *_RUN):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in _RUN:  # a fork runs it as its main module
        sys.modules.pop(name, None)
    gc.collect()
    gc.freeze()
    if len(os.listdir("/proc/self/task")) > 1:
        return  # each of them starts by itself, as without this module
    listening.listen(100)
    with contextlib.suppress(ProcessLookupError):
        request = prefork.serve(listening, until=os.pidfd_open(int(run)))
        if request is not None:
            prefork.become(request)


if __name__ == "__main__":
    main()
