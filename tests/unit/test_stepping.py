import asyncio
import threading

import pytest

from watcher.stream import StepThread


def test_a_cancelled_wait_leaves_its_step_and_its_error_to_the_next() -> None:
    go_on, steps = threading.Event(), list[int]()

    def step() -> None:
        steps.append(1)
        go_on.wait(60)
        if len(steps) == 1:
            raise ValueError("of the first")

    async def run() -> None:
        made = StepThread(step)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(made.wait(), 0.001)
            assert made.is_under_way
        go_on.set()
        made.join()
        assert not made.is_under_way and len(steps) == 1
        with pytest.raises(ValueError, match="of the first"):
            await made.wait()
        await made.wait()
        assert len(steps) == 2

    asyncio.run(run())


def test_a_loop_that_is_gone_does_not_mind_the_end_of_its_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on = threading.Event()
    made = StepThread(lambda: go_on.wait(60))

    async def run() -> None:
        await asyncio.wait_for(made.wait(), 0.001)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    go_on.set()
    made.join()
    asyncio.run(made.wait())
    assert not caplog.records
