"""The folder of a mirror's files: on a disk, or in a bucket of S3."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs

_UNFINISHED: Final = "_parting"


class Folder:
    """Reads, writes, lists and deletes files by their names; `path` is as `filesystem` has it."""

    def __init__(self, filesystem: pa.fs.FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.path = path

    def path_of(self, name: str) -> str:
        """Returns the path of a file in it."""
        return f"{self.path}/{name}"

    def open(self, name: str) -> pa.NativeFile:
        """Opens a file to be read from any place."""
        return self.filesystem.open_input_file(self.path_of(name))

    def create(self, name: str) -> pa.NativeFile:
        """Opens a new file to be written."""
        return self.filesystem.open_output_stream(self.path_of(name))

    def read(self, name: str) -> bytes:
        """Returns a file's bytes."""
        with self.filesystem.open_input_stream(self.path_of(name)) as file:
            return bytes(file.read())

    def files(self) -> Iterator[pa.fs.FileInfo]:
        """Yields the name, size and time of each file directly in it; none where it is missing."""
        here = pa.fs.FileSelector(self.path, allow_not_found=True)
        for info in self.filesystem.get_file_info(here):
            if info.type == pa.fs.FileType.File:
                yield info

    def size(self, name: str) -> int:
        """Returns how many bytes a file has."""
        return int(self.filesystem.get_file_info(self.path_of(name)).size)

    def delete(self, name: str) -> None:
        """Deletes a file, if it exists."""
        with suppress(FileNotFoundError):  # a run that was killed has deleted it
            self.filesystem.delete_file(self.path_of(name))

    def inner(self, name: str) -> Folder:
        """Returns a folder in it."""
        return Folder(self.filesystem, self.path_of(name))

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Makes an empty folder for the time of the block, on the same disk where there is one."""
        if not isinstance(self.filesystem, pa.fs.LocalFileSystem):
            with tempfile.TemporaryDirectory(prefix="watcher-mirror-") as name:
                yield Path(name)
            return
        work = Path(self.path, _UNFINISHED)
        shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work)
