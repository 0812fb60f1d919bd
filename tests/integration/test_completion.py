"""A TAB in a real shell: keys are typed on a pseudo-terminal, and the line is read back."""

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from watcher.cli import main

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]

# What shows the line as the shell has it, on Ctrl-X Ctrl-D.
_SHOW = r"""show() { printf '%s\n' "$READLINE_LINE" > shown; }; bind -x '"\C-x\C-d": show'"""

COMPLETED = {
    "watcher arch": "watcher archive ",
    "watcher orders --max-re": "watcher orders --max-records ",
    "watcher orders --big-o": "watcher orders --big-orders ",
    "watcher orders --at-le": "watcher orders --at-least ",
    "watcher orders --handlers more --in-": "watcher orders --handlers more --in-more ",
    "watcher orders --color al": "watcher orders --color always ",
    "watcher orders --color=al": "watcher orders --color=always ",
    "watcher orders --engine sp": "watcher orders --engine spark ",
    "watcher orders --on-error st": "watcher orders --on-error stop ",
    "watcher orders --on-error dea": "watcher orders --on-error dead-letter:",
    "watcher orders --on-error dead-letter:sta": (
        "watcher orders --on-error dead-letter:state.json "
    ),
    "watcher orders --only insert,mo": "watcher orders --only insert,modify ",
    "watcher orders --checkpoint sta": "watcher orders --checkpoint state.json ",
    "watcher orders --handlers mo": "watcher orders --handlers more/",
    "watcher orders --filter @sta": "watcher orders --filter @state.json ",
    "watcher orders --profile team": "watcher orders --profile team-a ",
    "watcher orders --region eu-sou": "watcher orders --region eu-south-",
    "watcher query orders --output js": "watcher query orders --output json ",
    "watcher replay sta": "watcher replay state.json ",
    "watcher help fil": "watcher help filters ",
    "watcher orders --help lam": "watcher orders --help lambda ",
    "watcher completion f": "watcher completion fish ",
    "AWS_PROFILE=x watcher orders --max-re": "AWS_PROFILE=x watcher orders --max-records ",
    "echo | watcher replay --print-r": "echo | watcher replay --print-record ",
    "echo; watcher shar": "echo; watcher shards ",
    # Never files where none are meant.
    "watcher orders --max-records sta": "watcher orders --max-records sta",
    "watcher orders sta": "watcher orders sta",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a handler, functions and a file; `watcher` and `python` are ours."""
    folder = tmp_path_factory.mktemp("place")
    for name, text in {
        "handlers/big_orders.py": '"""Big ones."""\nOPTIONS = {"at_least": ("N", "how big")}',
        "more/in_more.py": '"""Another."""',
        "app/changes.py": "def note(record): ...\ndef _hidden(): ...",
        "app/__init__.py": "",
        "state.json": "{}",
        "aws": "[profile team-a]\n[default]\n",
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin" / "watcher").write_text('#!/bin/sh\nexec python -m watcher "$@"\n')
    (folder / "bin" / "watcher").chmod(0o755)
    return folder


def environment(place: Path) -> dict[str, str]:
    """With ours first, and nothing of this shell's AWS."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **mine,
        "PATH": os.pathsep.join(
            [str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": str(place / "aws"),
        "HOME": str(place),
        "TERM": "xterm",
    }


class Keyboard:
    """An interactive bash with the completion of `watcher`."""

    def __init__(self, place: Path) -> None:
        self.leader, follower = pty.openpty()
        shown = place / "shown"
        shown.unlink(missing_ok=True)
        os.mkfifo(shown)
        self._shown = os.open(shown, os.O_RDWR)  # both, so that it never looks closed
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=place,
            env=environment(place),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        script = f'eval "$(watcher completion)"; {_SHOW}'
        # Keys that come before the prompt would be the terminal's, not the line editor's.
        self.type(f"{script}; PS1='<re''ady>'\r")
        assert self._ready.wait(60), "the shell did not start"

    def _read(self) -> None:
        written = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while data := os.read(self.leader, 4096):
                written = (written + data)[-8192:]
                if b"<ready>" in written:
                    self._ready.set()

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def line(self) -> str:
        """What is written to `shown` next."""
        text = ""
        while not text.endswith("\n"):
            assert select.select([self._shown], [], [], 20)[0], "the shell did not answer"
            text += os.read(self._shown, 4096).decode()
        return text.removesuffix("\n")

    def completed(self, text: str) -> str:
        self.type("\x15" + text + "\t" + "\x18\x04")
        return self.line()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(60)
        os.close(self.leader)
        os.close(self._shown)


@pytest.fixture(scope="module")
def keyboard(place: Path) -> Iterator[Keyboard]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    made = Keyboard(place)
    yield made
    made.close()


@pytest.mark.parametrize("typed", COMPLETED)
def test_a_tab_completes(keyboard: Keyboard, typed: str) -> None:
    assert keyboard.completed(typed) == COMPLETED[typed]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_ARGCOMPLETE" in capsys.readouterr().out
