"""Programs that start in a tenth of the time: forks of a Python that has imported them already.

Three quarters of what a short run of `python -m watcher` costs are its imports. `start` has one
process a worker of pytest make them once, and fork itself for each program; all else is as in a
process of its own: session, environment, working folder, standard streams, signals, exit status.
What shells and scripts start as `python` or `watcher` is the same through `write_command`.

What makes another Python (a variable of it, another locale or zone) starts in a process of its own;
so do the programs of tests of the start itself: the wheel's, and all that is not `-m watcher`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
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
import termios
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
Place = IO[Any] | int | None
"""A standard stream: a file, a descriptor, `subprocess.DEVNULL`; None is a pipe of text."""


def start(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: Place = subprocess.DEVNULL,
    stdout: Place = None,
    stderr: Place = None,
) -> Forked | subprocess.Popen[Any]:
    """Start `python -m module`, its output in pipes (of text), or in the file that is given.

    Where its standard input is a terminal, that is the one that controls it.
    """
    streams = (stdin, stdout, stderr)
    if changes_python(env):
        pipes = [subprocess.PIPE if each is None else each for each in streams]
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=env,
            cwd=cwd,
            stdin=pipes[0],
            stdout=pipes[1],
            stderr=pipes[2],
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    return _Server.shared().start(module, arguments, env, cwd or Path.cwd(), streams)


def write_command(path: Path, module: str = "") -> None:
    """Write a program that is `python`, or `python -m module`, for shells and scripts."""
    path.write_text(
        _COMMAND.format(
            python=sys.executable,
            address=_Server.shared().address,
            words=["-m", module] if module else [],
            ask=ASK,
        )
    )
    path.chmod(0o755)


# Of a program that stands for a fork, behind its `request`, on the socket `asking`.
ASK = """\
signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
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

_COMMAND = """#!{python} -IS
import json, os, signal, socket, sys
words = {words} + sys.argv[1:]
if words[:2] != ["-m", "watcher"]:
    os.execv({python!r}, [{python!r}, *words])
asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asking.connect("\\0{address}")
request = {{"module": "watcher", "arguments": words[2:], "env": dict(os.environ)}}
request["cwd"] = os.getcwd()
{ask}"""


def changes_python(env: Mapping[str, str]) -> bool:
    """Whether a variable is another one that a Python looks at as it starts."""
    return _interpreters({**os.environ, **env}) != _interpreters(os.environ)


def _interpreters(env: Mapping[str, str]) -> dict[str, str]:
    """What a Python makes of it as it starts."""
    own = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC", "SSL_")
    return {name: value for name, value in env.items() if name.startswith(own)}


class Forked:
    """A program that runs; as `subprocess.Popen`, as far as tests use that."""

    def __init__(self, server: _Server, pid: int, streams: Sequence[IO[str] | None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = streams
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
        self.address = f"watcher-prefork-{os.getpid()}"
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, listening:
            listening.bind("\0" + self.address)
            listening.listen(100)
            fds = [theirs.fileno(), listening.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, fds)],
                cwd=_ROOT,
                pass_fds=fds,
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
        streams: Sequence[Place],
    ) -> Forked:
        """Have it fork."""
        request = {"module": module, "arguments": arguments, "env": dict(env), "cwd": str(cwd)}
        with contextlib.ExitStack() as theirs:
            modes = ("r", "w", "w")  # as the program sees them
            pairs = [_opened(*each, theirs) for each in zip(streams, modes, strict=True)]
            fds = [fd for _, fd in pairs]
            with self._guard:
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
                while not self._started:
                    self._hear()
                pid = self._started.pop()
        return Forked(self, pid, [ours for ours, _ in pairs])

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
            self._statuses.pop(pid, None)  # of one before that had the same id
            self._started.append(pid)
        else:
            self._statuses[pid] = status


def _opened(place: Place, mode: str, closing: contextlib.ExitStack) -> tuple[IO[str] | None, int]:
    """Our end, where that is a pipe, and the descriptor of the program's."""
    if place is None:
        reading, writing = os.pipe()
        ours, theirs = (writing, reading) if mode == "r" else (reading, writing)
        closing.callback(os.close, theirs)
        return open(ours, "w" if mode == "r" else "r", encoding="utf-8"), theirs
    if place == subprocess.DEVNULL:
        return None, closing.enter_context(open(os.devnull, mode)).fileno()
    return None, place if isinstance(place, int) else place.fileno()


# In the process that forks


def main() -> None:
    """Import everything, and fork until the tests have ended."""
    _import_all()
    tests, listening = (socket.socket(fileno=int(each)) for each in sys.argv[1:])
    with tests, listening:
        request = serve(listening, tests=tests)
    if request is not None:
        become(request)


def become(request: Mapping[str, Any]) -> None:
    """In a fork: run the module that was asked for, and exit as it does."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.path[0] = request["cwd"]
    status: object = 0
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        status = error.code or 0
        raise
    finally:
        if isinstance(status, int) and isinstance(sys.exc_info()[1], SystemExit | None):
            sys.last_value = _End(status)  # type: ignore[assignment]


class _End:
    """Ends a fork as Python drops it: threads, exit functions and streams have ended by then.

    What is left would be to free each object of each module, which takes ten times as long as
    the fork, in a copy of each page of memory.
    """

    def __init__(self, status: int) -> None:
        self._status = status

    def __del__(self) -> None:
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                if not stream.closed:
                    stream.flush()
        except OSError:
            os._exit(120)  # as Python does
        os._exit(self._status & 0xFF)


def _import_all() -> None:
    import watcher

    names = list[str]()
    for room in _ROOMS:
        folder = Path(watcher.__file__).with_name(room)
        names.append(f"watcher.{room}")
        names += [f"watcher.{room}.{each.name}" for each in pkgutil.iter_modules([str(folder)])]
    names.append("tests.simulator")
    sys.modules.update(dict.fromkeys(_NOT_YET))  # type: ignore[arg-type]
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in _NOT_YET:
        del sys.modules[name]
    keep_what_botocore_repeats()
    _keep_service_models()
    expect_writes_at_once()
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"what is imported has started {threads - 1} threads: none would be forked"


def expect_writes_at_once() -> None:
    """Has bounded reads wait a moment for writes, which services on this machine show at once."""
    from watcher.streams.timing import TIMING

    TIMING.written_seconds = 0.05


def keep_what_botocore_repeats() -> None:
    """For each session botocore looks at 120 functions and their events, half of what one costs."""
    from botocore import hooks

    hooks.accepts_kwargs = functools.cache(hooks.accepts_kwargs)
    names = dict[str, str]()
    aliases: Any = hooks.EventAliaser
    make = aliases.__init__

    def make_with_known_names(self: Any, emitter: Any, event_aliases: Any = None) -> None:
        make(self, emitter, event_aliases)
        if self._event_aliases == hooks.EVENT_ALIASES:
            self._alias_name_cache = names

    aliases.__init__ = make_with_known_names


def _keep_service_models() -> None:
    """What botocore reads anew for each session, a third of a short run, forks have already."""
    from botocore import loaders, session

    def loader(made: session.Session) -> Any:
        return made.get_component("data_loader")

    first = session.Session()
    for service in ("dynamodb", "dynamodbstreams"):
        first.create_client(service, "us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
    kept = loader(first)._cache
    create = loaders.create_loader

    def create_with_what_is_kept(search_path_string: str | None = None) -> Any:
        made: Any = create(search_path_string)
        if search_path_string is None:
            made._cache.update(kept)
        return made

    session.create_loader = create_with_what_is_kept


def serve(
    listening: socket.socket, *, tests: socket.socket | None = None, until: int | None = None
) -> dict[str, Any] | None:
    """Fork for each request, and tell of each end; in a fork, return its request.

    A program dies with the process that stands for it. Ends with the `tests`' socket, or once
    there is something to read from the descriptor `until`.
    """
    ending: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        last = [each for each in (tests, until) if each is not None]
        for each in (listening, *last):
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    selector.register(listening.accept()[0], selectors.EVENT_READ)
                elif key.fileobj == until:
                    return None
                elif isinstance(key.fileobj, socket.socket):
                    asked = key.fileobj
                    message, fds = _received(asked)
                    if not message and asked is tests:
                        return None
                    if not message:
                        selector.unregister(asked)
                        asked.close()
                        for pid, by in ending.values():
                            if by is asked:
                                os.kill(pid, signal.SIGKILL)
                        continue
                    request: dict[str, Any] = json.loads(message)
                    pid = os.fork()
                    if not pid:
                        for other in selector.get_map().values():
                            _close(other.fileobj)
                        _take_place(fds, in_session=request.get("in_session", False))
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


def _close(one: Any) -> None:
    os.close(one) if isinstance(one, int) else one.close()


def _received(asked: socket.socket) -> tuple[bytes, list[int]]:
    try:
        message, fds, *_ = socket.recv_fds(asked, _MESSAGE_BYTES, 3)
    except ConnectionError:
        return b"", []
    return message, fds


def _send(asked: socket.socket, pid: int, status: int | None) -> None:
    with contextlib.suppress(OSError):  # it is gone: its program ends, too
        asked.send(json.dumps([pid, status]).encode())


def _take_place(fds: Sequence[int], *, in_session: bool) -> None:
    if not in_session:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if os.isatty(0):
        with contextlib.suppress(PermissionError):  # it is a shell's
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)


if __name__ == "__main__":
    main()
