"""How processes are started, and what every forked child must give up."""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from multiprocessing import spawn, util
from multiprocessing.context import BaseContext, ForkProcess
from multiprocessing.process import BaseProcess
from types import MethodType
from typing import Any

from watcher import files, safe_path
from watcher.errors import ResourceError

# A socket's path has 104 bytes on macOS (108 on Linux): less "/pymp-12345678/listener-12345678".
_FOLDER_MAX = 70

# Not `weakref.WeakMethod`: where an object ends together with it, as a program does, that says on
# stderr that 'NoneType' has no `_alive`.
_Methods = dict[int, tuple[weakref.ref[object], Callable[[Any], object]]]
_in_forked_child: _Methods = {}
_before_fork: _Methods = {}


def in_forked_child(method: Callable[[], object]) -> None:
    """Call a bound method in every child forked from now on, as long as its object lives."""
    _add(_in_forked_child, method)


def before_fork(method: Callable[[], object]) -> None:
    """Call a bound method before each fork from now on, as long as its object lives."""
    _add(_before_fork, method)


def _add(methods: _Methods, method: Callable[[], object]) -> None:
    assert isinstance(method, MethodType)
    reference = weakref.ref(method.__self__, lambda dead: methods.pop(id(dead), None))
    methods[id(reference)] = reference, method.__func__


def _call_all(methods: _Methods) -> None:
    for reference, method in list(methods.values()):
        if (its_object := reference()) is not None:
            method(its_object)


os.register_at_fork(
    before=functools.partial(_call_all, _before_fork),
    after_in_child=functools.partial(_call_all, _in_forked_child),
)


def processes(*, with_threads: bool = False) -> BaseContext:
    """Returns how processes are started: by fork on Linux (4 MB, 5 ms), else a fork server.

    A process of the server takes 30 MB and 300 ms. No fork where other threads run (or are to,
    `with_threads`), whose locks it would copy as they stand; nor elsewhere, as macOS's libraries do
    not survive one. Both are why Python 3.14 has made the fork server its default: here it is
    looked into, so the default, of Python or of the program, does not count. The server listens on
    a socket in a folder; where none takes one, each process starts anew (300 ms more).
    """
    if sys.platform == "linux" and not with_threads:
        _call_all(_before_fork)  # which may end ours
        if threading.active_count() == 1:
            return multiprocessing.get_context("fork")
    if not _has_room_for_sockets():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["watcher.runtime.worker"])  # 130 ms are left
    return context


def _has_room_for_sockets() -> bool:
    """True where a socket's path fits into the folder that multiprocessing keeps for this process.

    That is made in the folder for temporary files, whose path may be long (macOS's, a CI's).
    """
    before = tempfile.tempdir
    try:
        tempfile.tempdir = files.temporary_folder(_FOLDER_MAX)
        return len(os.fsencode(util.get_temp_dir())) <= _FOLDER_MAX + len("/pymp-12345678")
    except (OSError, ResourceError):
        return False
    finally:
        tempfile.tempdir = before


_preparation_data = spawn.get_preparation_data
_starting = threading.local()


def _without_main(name: str) -> dict[str, Any]:
    """Returns a child's preparation data; our own children don't import the main program.

    It needs nothing of it, and a program may have no main guard, or no file (a shell's input).
    https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
    """
    data = _preparation_data(name)
    if getattr(_starting, "is_ours", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
        # Celery's pool puts a key of its own type there, which refuses to be pickled.
        data["authkey"] = bytes(data["authkey"])
    return data


spawn.get_preparation_data = _without_main  # the only place where that can be said


def failed_start(error: OSError) -> str:
    """Returns why no process can be started, and what to do about it."""
    reason = error.strerror or str(error)
    if error.filename:
        reason += f": {error.filename}"
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{reason}: {limit} are allowed (ulimit -n), and it takes some 64, and 3 a shard"
    if error.errno == errno.EAGAIN:
        return f"{reason}: allow more processes (ulimit -u; a container's limit of pids)"
    return reason


def take_environment(environment: Mapping[str, str] | None) -> None:
    """In a child: have the program's environment, where it is not inherited.

    A fork server's is as it was when the program's first process was started, and may name another
    endpoint, proxy, profile or collector.
    """
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Lets a daemonic process (of a `Pool`, or Celery's) start one: it may be ended at any time.

    So may we: a child of ours ends by itself once its parent has.
    https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.daemon
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before = config.pop("daemon", False)
    try:
        yield
    finally:
        if before:
            config["daemon"] = before


def start(process: BaseProcess) -> None:
    """Start a process, also where nobody reads any more what this one says. Raises OSError.

    Python brings out what is left to be said on stderr first, and fails as long as it can't. Whose
    log has lost its reader is to lose no shard's process: what is left goes nowhere.
    """
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
    except (AttributeError, ValueError):
        pass  # there is none, or it is closed
    # A fork server is a `python -c`, which would look into the working folder before all others.
    is_fork = isinstance(process, ForkProcess)
    with (
        nullcontext() if is_fork or not safe_path.is_kept() else safe_path.inherited(),
        _children_allowed(),
    ):
        _starting.is_ours = True
        process.authkey = bytes(process.authkey)  # as above: a copy of the parent's
        try:
            process.start()
        except EOFError as error:  # 3.14 greets the server, and has an OSError
            text = "the fork server has ended"
            raise ConnectionResetError(errno.ECONNRESET, text) from error
        finally:
            _starting.is_ours = False
