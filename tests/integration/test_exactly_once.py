"""The recipe of docs/positions.md, killed again and again: each change once in its database."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.pages import PAGES, ROOT, files

pytestmark = pytest.mark.proof

_KILLS = 2


def recipe() -> str:
    text = files(PAGES["positions.md"])["exactly_once.py"]
    return text.replace('Stream("orders"', 'Stream("exactly-once"')


def told(file: Path) -> list[int]:
    if not file.exists():
        return []
    with closing(sqlite3.connect(file, timeout=60)) as db:
        if not db.execute("SELECT name FROM sqlite_master WHERE name = 'changes'").fetchone():
            return []
        return [total for (total,) in db.execute("SELECT total FROM changes ORDER BY rowid")]


def test_each_change_is_in_the_database_once_however_often_the_program_is_killed(
    dynamodb_local: DynamoDBLocal, tmp_path: Path
) -> None:
    dynamodb_local.create_table("exactly-once")
    client, file, rng, count = dynamodb_local.client(), tmp_path / "orders.db", random.Random(1), 0
    (tmp_path / "exactly_once.py").write_text(recipe())
    environment = {**os.environ, **dynamodb_local.environment, "PYTHONPATH": str(ROOT)}
    for _ in range(_KILLS + 1):
        for _ in range(60):
            item = {"PK": {"S": "one"}, "SK": {"S": "x"}, "total": {"N": str(count)}}
            client.put_item(TableName="exactly-once", Item=item)
            count += 1
        before = len(told(file))
        program = [sys.executable, "exactly_once.py"]
        with subprocess.Popen(program, cwd=tmp_path, env=environment) as process:
            wanted = count if count == 60 * (_KILLS + 1) else before + rng.randrange(5, 50)
            deadline = time.monotonic() + 150
            while len(told(file)) < wanted:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.002)
            process.kill()
    assert told(file) == list(range(count))
