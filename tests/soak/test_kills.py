"""What `scripts/kills` looks for in the end, it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from tests.simulator import Simulator, Written
from tests.soak.killed import ArchiveFolder, MirrorFolder

pytestmark = pytest.mark.proof

_EVERY = 3


def row(change: Written) -> dict[str, Any]:
    image = {"pk": change.key, "v": change.version}
    event = ["REMOVE", "INSERT", "MODIFY"][change.version % _EVERY]
    old = json.dumps(image | {"v": change.version - 1})
    return {
        "sequence_number": change.sequence_number,
        "shard_id": change.shard_id,
        "keys": json.dumps({"pk": change.key}),
        "event_name": event,
        "new_image": None if event == "REMOVE" else json.dumps(image),
        "old_image": None if event == "INSERT" else old,
    }


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        (range(8), []),
        (range(7), ["1 lost"]),
        ([*range(8), 3], ["1 too many"]),
        ([0, 0, *range(2, 8)], ["1 lost", "1 too many"]),
    ],
)
def test_a_change_that_is_lost_or_there_twice_is_found_by_every_reader(
    tmp_path: Path, rows: list[int], faults: list[str]
) -> None:
    folder = ArchiveFolder(tmp_path)
    day = folder.path / "date=2026-11-22"
    day.mkdir(parents=True)
    with Simulator() as sim:
        sim.bulk(8, keys=2, remove_every=_EVERY)
        made = pa.Table.from_pylist([row(sim.records[number]) for number in rows])
        pyarrow.parquet.write_table(made, day / "a.parquet")
        wrong = folder.compare(sim, _EVERY)
    told = [each.partition(",")[0] for each in wrong]
    assert told == [f"{name}: {each}" for name in folder.readers() for each in faults]


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [
        ([(1, False, 2), (2, True, None)], False),
        ([(2, False, None)], False),  # copied as it was last
        ([(2, True, None)], True),  # neither a copy nor the first one
        ([(1, False, 2)], True),
        ([(1, False, 2), (2, True, None), (2, True, None)], True),
    ],
)
def test_versions_that_are_missing_or_there_twice_are_found(
    tmp_path: Path, versions: list[tuple[int, bool, int | None]], wrong: bool
) -> None:
    folder = MirrorFolder(tmp_path, history=True)
    with Simulator() as sim:
        sim.bulk(2, keys=1, remove_every=_EVERY)
        numbers = [each.sequence_number.zfill(40) for each in sim.records]
        table = {
            "pk": ["k0"] * len(versions),
            "v": [version for version, _, _ in versions],
            "_sequence_number": pa.array(
                [numbers[version - 1] if known else "0" * 40 for version, known, _ in versions],
                pa.string(),
            ),
            "_valid_to": pa.array([ended for _, _, ended in versions], pa.int64()),
        }
        write_deltalake(str(folder.path), pa.table(table))
        assert bool(folder.compare(sim, _EVERY)) == wrong
