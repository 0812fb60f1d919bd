"""Programs that start in a tenth of the time: forks of a Python that has imported them already.

Three quarters of what a short run of `python -m watcher` costs are its imports. `start` has one
process a worker of pytest make them once, and fork itself for each program; all else is as in a
process of its own: session, environment, working folder, standard streams, signals, exit status.

What makes another Python (a variable of it, another locale or zone) is started as ever; and so are
the programs of tests of the start itself: those of the wheel, the README and the shells.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).parents[2]
# What each watch imports, sooner or later.
_ROOMS = (
    *("aws", "records", "streams", "pull", "delivery", "stores", "runtime", "formatting"),
    *("observability", "cli"),
)
# What some of it imports starts threads, and has to be imported in the fork.
_NOT_YET = ("moto", "pyarrow", "pyspark", "textual")
_MESSAGE_BYTES = 1024 * 1024


def start(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdout: IO[Any] | None = None,
) -> Forked | subprocess.Popen[Any]:
    """Start `python -m module`, its output in pipes (of text), or in the file that is given."""
    if _interpreters(env) != _interpreters(os.environ):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    return _Server.shared().start(module, arguments, env, cwd or Path.cwd(), stdout)


def _interpreters(env: Mapping[str, str]) -> dict[str, str]:
    """What a Python makes of it as it starts."""
    own = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC", "SSL_")
    return {name: value for name, value in env.items() if name.startswith(own)}


class Forked:
    """A program that runs; as `subprocess.Popen`, as far as tests use that."""

    def __init__(
        self, server: _Server, pid: int, stdout: IO[str] | None, stderr: IO[str] | None
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._server = server

    def poll(self) -> int | None:
        """The exit status, once there is one."""
        if self.returncode is None:
            self.returncode = self._server.status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._server.wait(left)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that forks, as seen by the tests."""

    _shared: _Server | None = None
    _lock = threading.Lock()

    @classmethod
    def shared(cls) -> _Server:
        """That of this process."""
        with cls._lock:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._started: list[int] = []
        self._statuses: dict[int, int] = {}
        self._guard = threading.RLock()
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stdout: IO[Any] | None,
    ) -> Forked:
        """Have it fork."""
        request = {"module": module, "arguments": arguments, "env": dict(env), "cwd": str(cwd)}
        with contextlib.ExitStack() as ours:
            stdin = ours.enter_context(open(os.devnull))
            out, to = (None, stdout) if stdout else _pipe(ours)
            err, err_to = _pipe(ours)
            assert to is not None
            fds = [stdin.fileno(), to.fileno(), err_to.fileno()]
            with self._guard:
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
                while not self._started:
                    self._hear()
                pid = self._started.pop()
        return Forked(self, pid, out, err)

    def status(self, pid: int) -> int | None:
        """The exit status of one that has ended."""
        with self._guard:
            while self._has_news(0.0):
                self._hear()
            return self._statuses.get(pid)

    def wait(self, seconds: float | None) -> None:
        """Wait until one of them may have ended; another thread may hear of it meanwhile."""
        self._has_news(0.05 if seconds is None else min(seconds, 0.05))

    def _has_news(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], seconds)[0])

    def _hear(self) -> None:
        message = self._socket.recv(_MESSAGE_BYTES)
        if not message:
            raise RuntimeError("what forks the programs has ended; see its standard error")
        pid, status = json.loads(message)
        if status is None:
            self._started.append(pid)
        else:
            self._statuses[pid] = status


def _pipe(closing: contextlib.ExitStack) -> tuple[IO[str], IO[str]]:
    reading, writing = os.pipe()
    return open(reading, encoding="utf-8"), closing.enter_context(open(writing, "w"))


# In the process that forks


def main() -> None:
    """Import everything, and fork until the tests have ended."""
    _import_all()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.path[0] = request["cwd"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _import_all() -> None:
    import watcher

    names = list[str]()
    for room in _ROOMS:
        folder = Path(watcher.__file__).with_name(room)
        names.append(f"watcher.{room}")
        names += [f"watcher.{room}.{each.name}" for each in pkgutil.iter_modules([str(folder)])]
    sys.modules.update(dict.fromkeys(_NOT_YET))  # type: ignore[arg-type]
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in _NOT_YET:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"what is imported has started {threads - 1} threads: none would be forked"


def _serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, and tell of each end; in a fork, return its request."""
    ending: dict[int, int] = {}
    with selectors.DefaultSelector() as selector, asked:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is asked:
                    message, fds, *_ = socket.recv_fds(asked, _MESSAGE_BYTES, 3)
                    if not message:
                        return None
                    pid = os.fork()
                    if not pid:
                        _become(fds, ending)
                        return dict(json.loads(message))
                    for fd in fds:
                        os.close(fd)
                    asked.send(json.dumps([pid, None]).encode())
                    ended = os.pidfd_open(pid)
                    ending[ended] = pid
                    selector.register(ended, selectors.EVENT_READ)
                else:
                    assert isinstance(key.fileobj, int)
                    selector.unregister(key.fileobj)
                    pid, status = os.waitpid(ending.pop(key.fileobj), 0)
                    os.close(key.fileobj)
                    code = os.waitstatus_to_exitcode(status)
                    with contextlib.suppress(OSError):  # nobody asks any more
                        asked.send(json.dumps([pid, code]).encode())


def _become(fds: Sequence[int], ending: Mapping[int, int]) -> None:
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    for fd in ending:
        os.close(fd)


if __name__ == "__main__":
    main()
