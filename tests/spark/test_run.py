"""How a job stays with its query, counts its micro-batches, and ends it; a query that is played."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from watcher.aws.config import AwsConfig
from watcher.errors import UsageError
from watcher.shutdown import Shutdown
from watcher.spark.jobs import replicate, watch
from watcher.spark.jobs.run import run


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watcher.spark.jobs.run.LAST_BATCH_POLL_SECONDS", 0.0)


def progress(number: int) -> dict[str, Any]:
    """Of a micro-batch with ten changes."""
    return {"batchId": number, "numInputRows": 10, "sources": [{"latestOffset": None}]}


class PlayedQuery:
    """A query that does some micro-batches from one look at it to the next; public means only."""

    def __init__(self, *steps: int) -> None:
        self._steps = list(steps)
        self._done = 0
        self.asked_for_all = 0
        self.was_stopped = False

    @property
    def isActive(self) -> bool:
        return bool(self._steps) and not self.was_stopped

    def awaitTermination(self, seconds: float) -> None:
        self._done += self._steps.pop(0)

    def exception(self) -> None:
        return None

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return progress(self._done - 1) if self._done else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        self.asked_for_all += 1
        return [progress(number) for number in range(self._done)]


def test_each_batch_is_counted_and_all_progress_is_fetched_only_after_a_gap(tmp_path: Path) -> None:
    query: Any = PlayedQuery(0, 1, 0, 0, 1, 0, 3, 1)

    totals = run(lambda: query, "counted", stop=Shutdown(1), stop_file=tmp_path / "x", once=False)

    assert (totals.batches, totals.records) == (6, 60)
    assert query.asked_for_all == 1


def test_a_stop_lets_the_batch_at_work_end_and_no_other_begin(tmp_path: Path) -> None:
    stop, file = Shutdown(60), tmp_path / "stop"

    class AtWork(PlayedQuery):
        def awaitTermination(self, seconds: float) -> None:
            stop.request()

        @property
        def status(self) -> dict[str, Any]:
            """The batch ends after a look; the source begins no other once its file is there."""
            assert file.exists()
            at_work = not self._done
            self._done = 1
            return {"isTriggerActive": at_work, "message": "Processing new data"}

        def stop(self) -> None:
            self.was_stopped = True

    query: Any = AtWork(0)

    totals = run(lambda: query, "counted", stop=stop, stop_file=file, once=True)

    assert query.was_stopped and not totals.is_cut
    assert (totals.batches, totals.records) == (1, 10)
    assert not file.exists()


@pytest.mark.parametrize("job", [replicate, watch])
def test_a_job_whose_tasks_write_as_they_go_refuses_speculation(job: Any) -> None:
    """The slower of two attempts would write an older item over a newer one."""
    spark: Any = SimpleNamespace(conf={"spark.speculation": "true"})
    more: dict[str, Any] = {"to": "copy", "checkpoint": "x"} if job is replicate else {"load": list}

    with pytest.raises(UsageError, match=r"conf: this job takes spark\.speculation=false"):
        job("orders", **more, connection=AwsConfig(), spark=spark)
