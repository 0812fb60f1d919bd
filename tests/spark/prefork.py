"""Spark's Python processes, forked from one that has imported what they need.

Spark starts some of them for each query, with `PYSPARK_PYTHON`, and each imports pyspark, pandas
and watcher for longer than it works. `python` is a program that stands for the Python: it
has a process of this test run, which the first one starts, fork itself, and ends with the fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping
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
request["cwd"] = os.getcwd()
signals = {{signal.SIGINT, signal.SIGTERM, signal.SIGHUP}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
pid, _ = json.loads(asking.recv(1000))
for each in signals:
    signal.signal(each, lambda number, frame: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
for each in 0, 1:  # whoever reads or writes there is to see the end of it
    os.close(each)
_, status = json.loads(asking.recv(1000))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
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
    with contextlib.suppress(ProcessLookupError):
        request = _serve(listening, until=os.pidfd_open(int(run)))
        if request is not None:
            _become(request)


def _serve(listening: socket.socket, *, until: int) -> dict[str, Any] | None:
    """Fork for each request, and tell of each end; in a fork, return its request.

    A program dies with the process that stands for it. Ends once there is something to read from
    the descriptor `until`.
    """
    ending: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(until, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    selector.register(listening.accept()[0], selectors.EVENT_READ)
                elif key.fileobj == until:
                    return None
                elif isinstance(key.fileobj, socket.socket):
                    asked = key.fileobj
                    message, fds = _received(asked)
                    if not message:
                        selector.unregister(asked)
                        asked.close()
                        for pid, by in ending.values():
                            if by is asked:
                                os.kill(pid, signal.SIGKILL)
                        continue
                    pid = os.fork()
                    if not pid:
                        for other in selector.get_map().values():
                            one: Any = other.fileobj
                            os.close(one) if isinstance(one, int) else one.close()
                        for number, fd in enumerate(fds):
                            os.dup2(fd, number)
                            os.close(fd)
                        request: dict[str, Any] = json.loads(message)
                        return request
                    for fd in fds:
                        os.close(fd)
                    _send(asked, pid, None)
                    ended = os.pidfd_open(pid)
                    ending[ended] = pid, asked
                    selector.register(ended, selectors.EVENT_READ)
                else:
                    assert isinstance(key.fileobj, int)
                    selector.unregister(key.fileobj)
                    pid, asked = ending.pop(key.fileobj)
                    os.close(key.fileobj)
                    _send(asked, pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become(request: Mapping[str, Any]) -> None:
    """In a fork: run the module that was asked for, and exit as it does."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.path[0] = request["cwd"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _received(asked: socket.socket) -> tuple[bytes, list[int]]:
    try:
        message, fds, *_ = socket.recv_fds(asked, 1024 * 1024, 3)
    except ConnectionError:
        return b"", []
    return message, fds


def _send(asked: socket.socket, pid: int, status: int | None) -> None:
    with contextlib.suppress(OSError):  # it is gone: its program ends, too
        asked.send(json.dumps([pid, status]).encode())


if __name__ == "__main__":
    main()
