"""How processes are started is chosen here, not left to Python's version."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

from watcher import process_start

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("platform", "threads", "method"),
    [("linux", 1, "fork"), ("linux", 2, "forkserver"), ("darwin", 1, "forkserver")],
)
def test_a_fork_on_linux_as_long_as_no_other_thread_runs(
    platform: str, threads: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    assert process_start.processes().get_start_method() == method


def done(program: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A program that is run by another Python, to its end."""
    line = [sys.executable, "-W", "error", "-c", program]
    settings = {"cwd": ROOT, "capture_output": True, "text": True, "check": False, **settings}
    return subprocess.run(line, **settings)


def test_a_process_starts_though_nobody_reads_what_this_one_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as unread:
        with contextlib.suppress(BrokenPipeError):
            unread.write("what stays in the buffer\n")
        monkeypatch.setattr(sys, "stderr", unread)
        process = process_start.processes().Process(target=os._exit, args=(7,))  # type: ignore[attr-defined]
        process_start.start(process)
        process.join(60)
        assert process.exitcode == 7
        monkeypatch.undo()


@pytest.mark.parametrize("is_here", [False, True])
def test_what_is_started_looks_into_the_working_folder_only_if_the_program_does(
    tmp_path: Path, is_here: bool
) -> None:
    """A fork server is a `python -c`, which has that folder before all others."""
    (tmp_path / "multiprocessing.py").write_text("open('ran', 'w').close()\n")
    program = (
        "import multiprocessing, os, sys; from watcher import process_start, safe_path\n"
        f"sys.path[:0] = {[''] if is_here else []}\n"
        "process = process_start.processes(with_threads=True).Process(target=os._exit, args=(7,))\n"
        "try: process_start.start(process); process.join()\n"
        "except ConnectionError: pass\n"
        "print(os.path.exists('ran'), safe_path.interpreter()[1:], 'PYTHONSAFEPATH' in os.environ)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONSAFEPATH", None)
    # As `__main__` leaves the path; -P itself would be handed on.
    ran = done(f"import sys; del sys.path[0]; exec({program!r})", cwd=tmp_path, env=environment)
    assert ran.stdout.strip() == ("True [] False" if is_here else "False ['-P'] False")


def test_a_fork_server_whose_folder_was_cleaned_is_replaced_and_its_processes_live_on() -> None:
    """Tools empty the folder for temporary files of what is some days old."""
    context = process_start.processes(with_threads=True)
    reading, writing = context.Pipe(duplex=False)
    lives = context.Process(target=reading.recv_bytes, daemon=True)  # type: ignore[attr-defined]
    process_start.start(lives)
    for _ in range(2):
        shutil.rmtree(util.get_temp_dir())
        new = context.Process(target=os._exit, args=(7,))  # type: ignore[attr-defined]
        process_start.start(new)
        new.join(60)
        assert new.exitcode == 7
    writing.send_bytes(b"end")
    lives.join(60)
    assert lives.exitcode == 0


SECOND_SIGNAL = (
    "process = context.Process(target=signal.pause, daemon=True); process_start.start(process)\n"
    "with shutdown.ending_process(), shutdown.Shutdown().handle_signals(int):\n"
    "    os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans on Linux only")
@pytest.mark.parametrize("with_threads", [False, True])
@pytest.mark.parametrize(("end", "status"), [("", 0), (SECOND_SIGNAL, 128 + signal.SIGTERM)])
def test_nothing_is_left_behind_for_a_supervisor_that_does_not_reap(
    with_threads: bool, end: str, status: int
) -> None:
    """As process 1 of a container, which adopts what outlives the watch."""
    program = (
        "import os, signal; from watcher import process_start, shutdown\n"
        f"context = process_start.processes(with_threads={with_threads})\n"
        "process = context.Process(target=os._exit, args=(7,))\n"
        f"process_start.start(process); process.join(); assert process.exitcode == 7\n{end}"
    )
    supervisor = (
        "import ctypes, os, subprocess, sys, time\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER\n"
        f"print(subprocess.run([sys.executable, '-c', {program!r}]).returncode)\n"
        "try: print(os.waitpid(-1, 0))\n"
        "except ChildProcessError: print('nothing')"
    )
    ran = done(supervisor)
    assert (ran.stdout.split(), ran.stderr) == ([str(status), "nothing"], "")
