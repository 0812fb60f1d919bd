"""Spark's Python processes, forked from one that has imported what they need.

Spark starts some of them for each query, with `PYSPARK_PYTHON`, and each imports pyspark, pandas
and watcher for longer than it works. `python` is a program that stands for the Python: it
has a process of this test run, which the first one starts, fork itself, and each of the two ends
with the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

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
RUN = "PREFORK_RUN"  # the variable with the id of the process of the tests as a whole


def python() -> str:
    """Returns the program that stands for the Python of this test run's Sparks."""
    return _PYTHON.format(
        python=sys.executable,
        root=str(_ROOT),
        run=RUN,
        module=__name__,
        without_threads=_WITHOUT_THREADS,
    )


_PYTHON = """#!{python} -IS
import os, sys
words, run = sys.argv[1:], os.environ.get("{run}", "")
def be_python():
    os.execv({python!r}, [{python!r}, *words])
if not run or words[:1] != ["-m"] or not words[1].startswith("pyspark."):
    be_python()
import json, socket
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
request = [os.getcwd(), words[1:], dict(os.environ)]
socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
for each in 0, 1:  # whoever reads or writes there is to see the end of it
    os.close(each)
asking.recv(1)  # nothing but its end
os._exit(0)
"""


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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(int(run))
        while ended not in select.select([listening.fileno(), ended], [], [])[0]:
            asked, _ = listening.accept()
            message, fds, *_ = socket.recv_fds(asked, 1024 * 1024, 3)
            if message and not os.fork():
                listening.close()
                os.close(ended)
                _become(json.loads(message), fds, asked)
                return
            asked.close()
            for fd in fds:
                os.close(fd)


def _become(request: tuple[str, list[str], dict[str, str]], fds: list[int], asked: Any) -> None:
    """In a fork: run the module that was asked for; it dies with the one that stands for it."""
    folder, words, environment = request
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    fcntl.fcntl(asked, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(asked, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(asked, fcntl.F_SETFL, os.O_ASYNC)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    sys.path[0] = folder
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
