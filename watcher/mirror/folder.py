"""The folder of a mirror's files: on a disk, or in a bucket of S3."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.fs

from watcher.errors import UsageError

S3: Final = "s3://"

_UNFINISHED: Final = "_parting"


class Folder:
    """Reads, writes, lists and deletes files by their names; `path` is as `filesystem` has it."""

    def __init__(
        self,
        filesystem: pa.fs.FileSystem,
        path: str,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.filesystem = filesystem
        self.path = path
        self.options = options
        """The options with which delta-rs reaches the same folder."""

    @classmethod
    def at(cls, to: str) -> Folder:
        """Returns the folder at a path, or at `s3://BUCKET/FOLDER`. Raises UsageError."""
        if not to.startswith(S3):
            if "://" in to:
                raise UsageError(f"give a folder, or {S3}BUCKET/FOLDER", "to", to)
            return cls(pa.fs.LocalFileSystem(), to)
        bucket, _, path = to.removeprefix(S3).strip("/").partition("/")
        if not (bucket and path):
            raise UsageError(f"give {S3}BUCKET/FOLDER", "to", to)
        variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        endpoint = next((os.environ[each] for each in variables if os.environ.get(each)), None)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options = {"aws_endpoint": endpoint, "aws_region": region}
        if endpoint and endpoint.startswith("http://"):
            options["aws_allow_http"] = "true"
        filesystem = pa.fs.S3FileSystem(endpoint_override=endpoint, region=region)
        known = {name: value for name, value in options.items() if value}
        return cls(filesystem, f"{bucket}/{path}", known)

    @property
    def is_local(self) -> bool:
        """Returns True for a folder on a disk."""
        return isinstance(self.filesystem, pa.fs.LocalFileSystem)

    def make(self) -> None:
        """Makes the folder; S3 needs none."""
        if self.is_local:
            self.filesystem.create_dir(self.path)

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

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file that a reader sees as a whole, or as it was."""
        first = f"{name}.new" if self.is_local else name
        with self.create(first) as file:
            file.write(content)
        if self.is_local:
            self.filesystem.move(self.path_of(first), self.path_of(name))

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
        return Folder(self.filesystem, self.path_of(name), self.options)

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Makes an empty folder for the time of the block, on the same disk where there is one."""
        if not self.is_local:
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
