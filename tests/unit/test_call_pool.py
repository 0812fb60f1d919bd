"""Calls side by side: a few in the caller's thread, many in others, and their errors."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from watcher import process_start
from watcher.call_pool import CallPool


def test_many_wait_for_their_answers_at_the_same_time() -> None:
    barrier = threading.Barrier(20, timeout=60)
    answers = CallPool().start([barrier.wait] * 20)
    assert sorted(answer.result(30) for answer in answers) == list(range(20))


def test_an_error_is_for_who_asks_for_the_answer() -> None:
    def broken() -> None:
        raise ValueError("no")

    for calls in (CallPool(), CallPool(threads=False)):
        (answer,) = calls.start([broken])
        with pytest.raises(ValueError, match="no"):
            answer.result()


def test_threads_are_used_again_and_their_end_is_waited_for() -> None:
    calls, before = CallPool(), set(threading.enumerate())
    for _ in range(5):
        assert all(answer.result(30) is None for answer in calls.start([lambda: None] * 9))
    begun = set(threading.enumerate()) - before
    calls.close()
    assert not any(thread.is_alive() for thread in begun)


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_threads_that_have_nothing_to_do_keep_no_program_from_forking() -> None:
    """As a script that has read with `Stream`, and then calls `watch()`, without a main guard."""
    program = """
import os, threading
from watcher import process_start
from watcher.call_pool import CallPool
calls = CallPool()
print({answer.result(30) for answer in calls.start([lambda: 1] * 9)})
print(process_start.processes().get_start_method(), threading.active_count())
print({answer.result(30) for answer in calls.start([lambda: 2] * 9)})
if not (child := os.fork()):
    print({answer.result(30) for answer in calls.start([lambda: 3] * 9)}, flush=True)
    os._exit(0)
os.waitpid(child, 0)
let_go = threading.Event()
(late, _) = calls.start([let_go.wait, lambda: None])
print(process_start.processes().get_start_method())
let_go.set()
print(late.result(30), {answer.result(30) for answer in calls.start([lambda: 4] * 9)})
"""
    flags = ("-u", "-W", "error")
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, check=True
    )
    said = ["{1}", "fork 1", "{2}", "{3}", "forkserver", "True {4}"]
    assert done.stdout.splitlines() == said


@pytest.mark.parametrize("end", ["pass", "calls.close(wait=False)"])
def test_a_call_that_takes_long_keeps_no_program_from_its_end(end: str) -> None:
    program = f"""
import time
from watcher.call_pool import CallPool
calls = CallPool()
calls.start([lambda: time.sleep(60)] * 9)
{end}
"""
    subprocess.run([sys.executable, "-c", program], timeout=50, check=True)


def test_a_call_may_start_a_process() -> None:
    (answer,) = CallPool().start([process_start.processes], few=0)
    assert answer.result(30)
