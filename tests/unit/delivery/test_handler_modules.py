from pathlib import Path

import pytest

from watcher.delivery import handler_modules
from watcher.errors import UsageError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def test_modules_of_the_folder_one_works_in_are_found_and_described_without_running_them(
    folder: Path,
) -> None:
    write(folder, "mine", '"""Do my thing.\n\nAt length."""\nraise SystemExit("never run")\n')
    write(folder, "no_words", "raise SystemExit\n")
    found = handler_modules.find()
    assert found["mine"].description == "Do my thing."
    assert "no_words.py" in found["no_words"].description


@pytest.mark.parametrize("name", ["_shared", "__init__", "1st", "not a name"])
def test_what_is_no_handlers_name_is_skipped(folder: Path, name: str) -> None:
    write(folder, name, "def handle(record): ...")
    assert name not in handler_modules.find()


def test_a_file_named_with_dashes_is_the_handler_of_the_flag_it_looks_like(folder: Path) -> None:
    write(folder, "my-dash", "def handle(record): ...")
    assert handler_modules.find()["my_dash"].flag == "--my-dash"
    assert handler_modules.load(handler_modules.find()["my_dash"]).name == "my_dash"


def test_a_later_folder_takes_precedence(folder: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    write(folder, "mine", '"""Mine."""')
    write(more, "mine", '"""More mine."""')
    assert handler_modules.find()["mine"].description == "Mine."
    assert handler_modules.find([more])["mine"].description == "More mine."


def test_only_a_given_folders_module_takes_the_place_of_a_built_in_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "print_json", '"""Mine."""\ndef handle(record): raise SystemExit')
    found = handler_modules.find()["print_json"]
    assert found.is_built_in
    handler_modules.load(found)
    (line,) = caplog.messages
    assert line.startswith("--print-json is built in, and handlers/print_json.py is not used")
    given = handler_modules.find([Path("handlers")])["print_json"]
    assert (given.description, given.is_built_in, given.hidden) == ("Mine.", False, None)


def test_a_folder_that_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        handler_modules.find([tmp_path / "nowhere"])


def test_a_handler_imports_what_stands_beside_it(folder: Path) -> None:
    write(folder, "_shared_words", "WORD = 'shared'\n")
    write(folder, "mine", "from _shared_words import WORD\ndef handle(record): return WORD\n")
    assert handler_modules.load(handler_modules.find()["mine"]).handle(None) == "shared"  # type: ignore[arg-type]


def test_dataclasses_and_pickling_work_in_a_handler_module(folder: Path) -> None:
    write(
        folder,
        "mine",
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Seen:\n    what: str\ndef handle(record): return Seen('x')\n",
    )
    assert handler_modules.load(handler_modules.find()["mine"]).handle(None).what == "x"  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def handle(:\n", "broken.py:1: "),
        ("x = 1\n", "broken.py has no function handle"),
        ("handle = 3\n", "broken.py has no function handle"),
        ("async def handle(record): ...\n", "broken.py: handle is async, and nothing"),
        ("def handle(record): yield record\n", "broken.py: handle is a generator"),
        ("def handle(record): ...\nasync def close(): yield\n", "broken.py: close is an async gen"),
        ("import no_such_module\n", "no_such_module"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("\0", "broken.py"),
    ],
)
def test_a_handler_that_cannot_be_used_is_refused_by_its_files_name(
    folder: Path, text: str, words: str
) -> None:
    write(folder, "broken", text)
    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as caught:
        handler_modules.load(handler_modules.find()["broken"])
    assert "broken.py" in str(caught.value)


def test_a_broken_module_that_nobody_chose_is_no_trouble(folder: Path) -> None:
    write(folder, "broken", "def handle(:\n")
    assert "can't be used" in handler_modules.find()["broken"].description
