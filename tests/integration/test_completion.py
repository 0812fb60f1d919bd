"""A TAB in the real shells: keys are typed on a pseudo-terminal, and the line is read back."""

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

from tests.support import prefork

ROOT = Path(__file__).parents[2]

# What shows the line as the shell has it, on Ctrl-X Ctrl-D.
_SHOW = {
    "bash": r"""show() { printf '%s\n' "$READLINE_LINE" > shown; }; bind -x '"\C-x\C-d": show'""",
    "zsh": "show() { print -r -- $BUFFER > shown }; zle -N show; bindkey '^X^D' show",
}
_START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
_READY = {"bash": "", "zsh": "autoload -U compinit; compinit -u -D; "}

COMPLETED = {
    "watcher arch": "watcher archive ",
    "watcher new-h": "watcher new-handler ",
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
    "watcher orders --call app.ch": "watcher orders --call app.changes:",
    "watcher orders --call app.changes:no": "watcher orders --call app.changes:note ",
    "watcher orders --lambda app.changes.no": "watcher orders --lambda app.changes.note ",
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


def shell_path(name: str) -> str:
    """Where a shell is; without it, tests skip on a laptop and fail in CI."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is missing: run scripts/shells", pytrace=False)
        pytest.skip(f"{name} is missing: run scripts/shells")
    return found


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
    prefork.write_command(folder / "bin" / "watcher", "watcher")
    prefork.write_command(folder / "bin" / "python")
    return folder


def environment(place: Path) -> dict[str, str]:
    """With ours first, and nothing of this shell's AWS."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **mine,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": str(place / "aws"),
        "HOME": str(place),
        "TERM": "xterm",
    }


class Keyboard:
    """An interactive shell with the completion of `watcher`."""

    def __init__(self, shell: str, place: Path) -> None:
        self.leader, follower = pty.openpty()
        shown = place / "shown"
        shown.unlink(missing_ok=True)
        os.mkfifo(shown)
        self._shown = os.open(shown, os.O_RDWR)  # both, so that it never looks closed
        self.process = subprocess.Popen(
            [shell_path(shell), *_START[shell][1:]],
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
        script = f'{_READY[shell]}eval "$(watcher completion {shell})"; {_SHOW[shell]}'
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


@pytest.fixture(scope="module", params=["bash", "zsh"])
def keyboard(request: pytest.FixtureRequest, place: Path) -> Iterator[Keyboard]:
    made = Keyboard(request.param, place)
    yield made
    made.close()


@pytest.mark.parametrize("typed", COMPLETED)
def test_a_tab_completes(keyboard: Keyboard, typed: str) -> None:
    assert keyboard.completed(typed) == COMPLETED[typed]


def printed(place: Path, shell: str, *arguments: str, seconds: float = 60) -> list[str]:
    """The lines that a script of a shell's prints."""
    done = subprocess.run(
        [shell_path(shell), *arguments],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def fish(place: Path) -> dict[str, list[str]]:
    """What fish offers for each line, in one start of it."""
    script = "watcher completion fish | source\n" + "".join(
        f"echo ':{line}'; complete -C '{line}'\n" for line in COMPLETED
    )
    offers: dict[str, list[str]] = {}
    for line in printed(place, "fish", "--no-config", "-c", script, seconds=300):
        if line.startswith(":"):
            offers[line[1:]] = offer = []
        else:
            offer.append(line.partition("\t")[0])
    return offers


@pytest.mark.timeout(640)  # each line starts the program, one after the other
@pytest.mark.parametrize("typed", COMPLETED)
def test_fish_offers_the_same(fish: dict[str, list[str]], typed: str) -> None:
    word = COMPLETED[typed].removeprefix(typed.rpartition(" ")[0] + " ").strip()
    if COMPLETED[typed] == typed:
        assert fish[typed] == []
    else:
        assert fish[typed]
        assert word in fish[typed] or all(offer.startswith(word) for offer in fish[typed])


def test_a_tab_imports_neither_boto3_nor_the_rest_that_watching_takes(place: Path) -> None:
    program = (
        "import sys\nfrom watcher.cli import main\n"
        "main(['__complete', 'bash', 'orders', sys.argv[1]])\n"
        "print('--')\nprint(*{name.partition('.')[0] for name in sys.modules})"
    )
    for typed, offered in (("--big", "--big-orders\n"), ("--color=al", "--color=always\n")):
        done = subprocess.run(
            [sys.executable, "-c", program, typed],
            cwd=place,
            env=environment(place),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answer, _, modules = done.stdout.rpartition("--\n")
        assert answer == offered
        imported = set(modules.split())
        assert "watcher" in imported
        assert not imported & {"boto3", "botocore", "urllib3", "rich", "dateutil", "pyspark"}
