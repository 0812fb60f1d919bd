"""Keep each change in an SQLite file, and the items as they are."""

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from typing import Any

from watcher import Record
from watcher.aws.arns import table_of
from watcher.formatting.plain_records import plain_key
from watcher.formatting.style import time_text
from watcher.records.plain_json import plain_json
from watcher.records.wire import SNAPSHOT

OPTIONS = {
    "sqlite": (
        "FILE",
        "keep each change in this database, in `changes`, and each item as it is now, in `items`",
    ),
}
TABLES = """
CREATE TABLE IF NOT EXISTS changes (
    table_name TEXT NOT NULL, sequence_number TEXT NOT NULL, shard_id TEXT NOT NULL,
    event_name TEXT NOT NULL, created_at TEXT, key TEXT NOT NULL, old TEXT, new TEXT,
    by_ttl INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (table_name, shard_id, sequence_number));
CREATE TABLE IF NOT EXISTS items (
    table_name TEXT NOT NULL, key TEXT NOT NULL, item TEXT NOT NULL,
    PRIMARY KEY (table_name, key));
"""
ADD = "INSERT OR IGNORE INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Each snapshot counts its items from 1: what a former one said under a number is of another item.
ADD_ITEM = ADD.replace("IGNORE", "REPLACE")
PUT = "INSERT OR REPLACE INTO items VALUES (?, ?, ?)"
REMOVE = "DELETE FROM items WHERE table_name = ? AND key = ?"
# Another program may read, or write for a moment.
BUSY_SECONDS = 30.0

logger = logging.getLogger("watcher")
lock = threading.Lock()
database: Any = None
incomplete: set[str] = set()
arns: dict[str, str] = {}


def configure(sqlite: str) -> None:
    global database
    if sqlite in ("", ":memory:"):  # SQLite would keep it until the end, and then no more
        raise ValueError("--sqlite: give a file")
    with contextlib.suppress(OSError):  # it is there; or SQLite says why it can't be
        # Nobody else's to read; SQLite makes its files beside it alike.
        os.close(os.open(sqlite, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        database = sqlite3.connect(sqlite, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(TABLES)
        except sqlite3.Error:
            database.close()
            raise
    except sqlite3.Error as error:
        raise ValueError(f"--sqlite {sqlite}: {error}") from None


def handle(record: Record) -> None:
    change = record.wire.dynamodb
    old, new = plain_json([change.OldImage, change.NewImage])
    key = plain_key(record)
    row = record.table, record.sequence_number, record.shard_id, record.event_name
    arn = table_of(record.stream)
    with lock:
        if arns.setdefault(record.table, arn) != arn:  # of another region, or account
            raise ValueError(f"{arn}: the file has another {record.table}; give it one of its own")
        try:
            add = ADD_ITEM if record.event_name == SNAPSHOT else ADD
            made = time_text(record.created_at), key, old, new, record.expired_by_ttl
            added = database.execute(add, (*row, *made))
            if not added.rowcount:  # it came before: a restart repeats a little
                return
            if record.event_name == "REMOVE":
                database.execute(REMOVE, (record.table, key))
            elif new is not None:
                database.execute(PUT, (record.table, key, new))
            else:
                say_once(record)
        except sqlite3.OperationalError as error:
            raise lasting(error) from error


def flush() -> None:
    """Commits many changes in one transaction; a checkpoint waits for it."""
    with lock:
        try:
            database.commit()
        except sqlite3.OperationalError as error:
            raise lasting(error) from error


def lasting(error: sqlite3.OperationalError) -> Exception:
    """Ends the watch on a full disk, whatever the policy: the next change would fail as well."""
    if error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return OSError(errno.ENOSPC, str(error))
    return error


def say_once(record: Record) -> None:
    if record.stream not in incomplete:
        incomplete.add(record.stream)
        logger.warning(
            f"{record.table}'s stream has no new images: `items` holds none of its items"
        )


def close() -> None:
    database.commit()
    database.close()
