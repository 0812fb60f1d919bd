"""Starts processes, and defines what forked children have to close."""

from __future__ import annotations

import ctypes
import errno
import functools
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import forkserver, resource_tracker, spawn, util
from multiprocessing.context import BaseContext, ForkProcess
from multiprocessing.process import BaseProcess
from types import MethodType
from typing import Any

from watcher import files, safe_path
from watcher.errors import ResourceError

# A socket's path has up to 104 bytes on macOS (108 on Linux), minus
# "/pymp-12345678/listener-12345678".
_FOLDER_MAX = 70
# The time for the end of multiprocessing's servers, which take some 20 ms.
_SERVERS_END_SECONDS = 2.0

# Bound methods by their objects, which they don't keep alive.
_Methods = weakref.WeakKeyDictionary[object, Callable[[Any], object]]
_in_forked_child: _Methods = weakref.WeakKeyDictionary()
_before_fork: _Methods = weakref.WeakKeyDictionary()
_started: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
_servers: list[tuple[int | None, int | None]] = []
"""The process and the pipe of each fork server that was replaced."""


def in_forked_child(method: Callable[[], object]) -> None:
    """Calls a bound method in every child forked from now on, while its object lives."""
    _add(_in_forked_child, method)


def before_fork(method: Callable[[], object]) -> None:
    """Calls a bound method before each fork from now on, while its object lives."""
    _add(_before_fork, method)


def _add(methods: _Methods, method: Callable[[], object]) -> None:
    assert isinstance(method, MethodType)
    methods[method.__self__] = method.__func__


def _call_all(methods: _Methods) -> None:
    for owner, method in list(methods.items()):
        method(owner)


os.register_at_fork(
    before=functools.partial(_call_all, _before_fork),
    after_in_child=functools.partial(_call_all, _in_forked_child),
)
os.register_at_fork(after_in_child=_started.clear)


def processes(*, with_threads: bool = False) -> BaseContext:
    """Returns the start method for processes: fork on Linux (4 MB, 5 ms), else a fork server.

    A process of the server takes 30 MB and 300 ms. A fork is unsafe beside other threads (running,
    or expected: `with_threads`), whose held locks it would copy, and with macOS's libraries; so
    Python 3.14 made the fork server its default. As this function checks for both, the default of
    Python or of the program does not matter.
    """
    if sys.platform == "linux" and not with_threads:
        _call_all(_before_fork)  # may end our own threads
        if threading.active_count() == 1:
            return multiprocessing.get_context("fork")
    _choose_folder()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["watcher.runtime.worker"])  # saves all but 130 ms
    _end_servers_at_exit()
    return context


def _replace_fork_server() -> None:
    """Has the next start run a new fork server, whose processes stay beside those of the old one.

    The old one can't be reached once its folder is gone: temporary folders get cleaned.
    """
    server: Any = vars(forkserver)["_forkserver"]
    _servers.append((server._forkserver_pid, server._forkserver_alive_fd))
    server._forkserver_pid = None
    if (folder := _config().pop("tempdir", None)) is not None:
        # At its end, a program on Python 3.11 expects to find the folder.
        with suppress(OSError):
            os.mkdir(folder, 0o700)
    _choose_folder()


@functools.cache
def _end_servers_at_exit() -> None:
    util.Finalize(None, _end_servers, exitpriority=-1000)  # behind the end of all processes


def _end_servers() -> None:
    """Ends the fork servers and multiprocessing's tracker, and reaps them.

    They would end soon after this process, and stay zombies where nobody reaps orphans.
    """
    server: Any = vars(forkserver)["_forkserver"]
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    _servers.append((server._forkserver_pid, server._forkserver_alive_fd))
    _servers.append((tracker._pid, tracker._fd))
    server._forkserver_pid = tracker._pid = tracker._fd = None
    until = time.monotonic() + _SERVERS_END_SECONDS
    for pid, pipe in _servers:
        if pid is None or pipe is None:
            continue
        os.close(pipe)
        with suppress(ChildProcessError):
            while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < until:
                time.sleep(0.005)


def kill_all() -> None:
    """Kills the processes that `start` has started, and ends the servers; reaps all of them."""
    for process in list(_started):
        with suppress(ValueError):  # it is closed
            process.kill()
            process.join(_SERVERS_END_SECONDS)
    _end_servers()


def _choose_folder() -> None:
    """Has the process's folder of multiprocessing made where a socket's path fits into it.

    That for temporary files may have a long path (on macOS, in a CI).
    """
    before = tempfile.tempdir
    try:
        tempfile.tempdir = files.temporary_folder(_FOLDER_MAX)
        util.get_temp_dir()
    except (OSError, ResourceError):
        pass  # the start of a process says what is wrong
    finally:
        tempfile.tempdir = before


_preparation_data = spawn.get_preparation_data
_starting = threading.local()


def _without_main(name: str) -> dict[str, object]:
    """Returns a child's preparation data; our own children don't import the main program.

    They need nothing of it, and a program may have no main guard, or no file (a shell's input).
    https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
    """
    data = _preparation_data(name)
    if getattr(_starting, "is_ours", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
        # Celery's pool sets a key of its own type, which can't be pickled.
        data["authkey"] = bytes(data["authkey"])
    return data


spawn.get_preparation_data = _without_main  # there is no other way to set this


def leave_signals_to_main() -> None:
    """Blocks the signals that end a watch in this thread, and in those that it starts.

    The system may give a signal to any thread that does not block it, and a handler that waits in
    the main thread would not be interrupted.
    """
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)


def failed_start(error: OSError) -> str:
    """Returns why no process can be started, with advice."""
    reason = error.strerror or str(error)
    if error.filename:
        reason += f": {error.filename}"
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{reason}: {limit} are allowed (ulimit -n); watcher needs about 64, and 3 a shard"
    if error.errno == errno.EAGAIN:
        return f"{reason}: allow more processes (ulimit -u; a container's limit of pids)"
    if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return f"{reason}: --workers threads starts none"
    return reason


def take_environment(environment: Mapping[str, str] | None) -> None:
    """In a child: sets the program's environment, where it is not inherited.

    A fork server has the environment of the first start, maybe with another endpoint, proxy,
    profile or collector.
    """
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Makes this process die with its parent, even while it is stopped or blocked.

    Where the system has no such call, the end of the parent's pipe has the same effect.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Lets a daemonic process (of a `Pool`, or Celery) start one of ours.

    Python forbids it, as a daemon may be killed at any time; but our children end with their
    parent. https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.daemon
    """
    before = _config().pop("daemon", False)
    try:
        yield
    finally:
        if before:
            _config()["daemon"] = before


def _config() -> dict[str, Any]:
    """Returns what multiprocessing keeps of this process."""
    found: dict[str, Any] = vars(multiprocessing.current_process())["_config"]
    return found


def start(process: BaseProcess) -> None:
    """Starts a process, even if this one's stderr has lost its reader. Raises OSError.

    Python flushes stderr first, and fails if it can't. A lost log reader must not cost a shard its
    reading process, so the rest of stderr is dropped.
    """
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
    except (AttributeError, ValueError):
        pass  # no stderr, or a closed one
    # A fork server is a `python -c`, which would import from the working folder first.
    is_fork = isinstance(process, ForkProcess)
    with (
        nullcontext() if is_fork or not safe_path.is_kept() else safe_path.inherited(),
        _children_allowed(),
    ):
        _starting.is_ours = True
        process.authkey = bytes(process.authkey)  # as above: a copy of the parent's
        try:
            try:
                process.start()
            except FileNotFoundError:
                if is_fork:
                    raise
                _replace_fork_server()
                process.start()
            _started.add(process)
        except EOFError as error:  # Python 3.14 raises an OSError by itself
            raise ConnectionResetError(errno.ECONNRESET, "the fork server has ended") from error
        finally:
            _starting.is_ours = False
