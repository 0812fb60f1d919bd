"""Files that take all that they are given, and whom they are for."""

from __future__ import annotations

import io
import os
import resource
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from watcher import files
from watcher.errors import ResourceError, UsageError
from watcher.files import BrokenOff, NobodyReads, WholeFile, append_lines
from watcher.stores.file import CheckpointFile

LINES = b"".join(b"%06d %s\n" % (number, b"x" * (number % 90)) for number in range(3000))

TOO_LARGE = "File too large"


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file of this process gets larger: a write is cut short there, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python does not see that it has written half of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[0][1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        sys.dont_write_bytecode = before[1]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("has_buffer", [False, True])
def test_a_slow_pipe_gets_everything_also_where_the_descriptor_does_not_wait(
    has_buffer: bool,
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    got = bytearray()

    def read() -> None:
        while data := os.read(reading, 700):
            got.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    raw = WholeFile(writing, "w")
    file = io.BufferedWriter(raw, 5000) if has_buffer else raw
    for line in LINES.splitlines(keepends=True):
        file.write(line)
    file.close()
    reader.join(60)
    os.close(reading)
    assert bytes(got) == LINES


@given(st.lists(st.integers(1, 400), min_size=1), st.integers(0, len(LINES)), st.integers(1, 500))
def test_a_full_disk_leaves_whole_lines_and_nothing_more_is_taken(
    sizes: list[int], room: int, buffer: int
) -> None:
    """Lines are not written one by one: a buffer is full where it is full."""
    path = Path(os.environ.get("TMPDIR", "/tmp"), f"full-{os.getpid()}")
    path.unlink(missing_ok=True)
    raw = WholeFile(os.fspath(path), "w")
    file = io.BufferedWriter(raw, buffer)
    begin = 0
    try:
        with disk_of(room):
            for size in sizes:
                file.write(LINES[begin : begin + size])
                begin += size
            file.flush()
    except OSError:
        whole = LINES[:room]
        assert path.read_bytes() == whole[: whole.rfind(b"\n") + 1]
        with pytest.raises(OSError, match=TOO_LARGE):  # though there is room again
            raw.write(b"more\n")
    else:
        assert path.read_bytes() == LINES[:begin]
    finally:
        raw.is_given_up = True
        file.close()
        path.unlink()


def test_a_pipe_that_nobody_reads_says_so_each_time() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with WholeFile(writing, "w") as file:
        for _ in range(2):
            with pytest.raises(NobodyReads):
                file.write(b"line\n")


def test_what_is_broken_off_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def poll() -> None:
        raise KeyboardInterrupt

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    monkeypatch.setattr(select, "poll", poll)
    with WholeFile(writing, "w") as file:
        with pytest.raises(KeyboardInterrupt):
            file.write(b"x" * 1_000_000)
        with pytest.raises(BrokenOff):
            file.write(b"line\n")
        file.is_given_up = True
        assert file.write(b"line\n") == 5
    os.close(reading)


def test_a_torn_last_line_is_ended_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"whole": 1}\n{"cut": ')
    for _ in range(2):
        with append_lines(str(path)) as file:
            file.write(b"{}\n")
    assert path.read_bytes() == b'{"whole": 1}\n{"cut": \n{}\n{}\n'
    assert caplog.messages == [
        f"The last line of {path} is cut off, as after a crash; the next one begins on a new line"
    ]


def replace(place: Path, content: bytes, aside: Path) -> None:
    with files.replacing(place, aside) as file:
        file.write(content)


def test_a_new_file_is_its_owners_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for name, known in (("new", None), ("there", 0o644), ("closed", 0o640)):
            replaced, appended = tmp_path / f"{name}.json", tmp_path / f"{name}.lines"
            for path in (replaced, appended) if known else ():
                path.write_bytes(b"")
                path.chmod(known or 0)
            replace(replaced, b"{}", tmp_path / "aside")
            append_lines(str(appended)).close()
            CheckpointFile(tmp_path / name).close()
            assert mode(replaced) == mode(appended) == (known or 0o600)
            assert mode(tmp_path / f"{name}.lock") == 0o600
    finally:
        os.umask(before)


def test_what_stands_aside_is_never_written_to(tmp_path: Path) -> None:
    """A crash has left it, or somebody who would like us to write elsewhere."""
    victim, place, aside = (tmp_path / name for name in ("victim", "place", "aside"))
    victim.write_bytes(b"mine")
    aside.symlink_to(victim)
    replace(place, b"new", aside)
    assert victim.read_bytes() == b"mine" and place.read_bytes() == b"new"
    assert not place.is_symlink() and not aside.exists()
    (tmp_path / "state.lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="symbolic links"):
        CheckpointFile(tmp_path / "state")


def test_a_failed_replacement_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_bytes(b"old")
    with disk_of(2), pytest.raises(OSError, match=TOO_LARGE):
        replace(place, b"x" * 100, tmp_path / "aside")
    assert place.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["place"]


def test_where_no_temporary_file_can_be_written_it_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**options: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ResourceError, match=r"can't write temporary files to /.*set TMPDIR"):
        files.temporary_folder()
