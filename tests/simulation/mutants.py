"""Tries the mutants: runs a copy of the package with each, until a seed catches it."""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import watcher

_PACKAGE = Path(watcher.__file__).parent
_ROOT = Path(__file__).parents[2]
_SEEDS = 2000


class Mutant(NamedTuple):
    """A text that stands once in a file, and what takes its place."""

    file: str
    engine: str
    what: str
    old: str
    new: str
    given: str

    def edited(self) -> str:
        """The file's text with this edit. Raises ValueError where it does not fit any more."""
        text = Path(_PACKAGE, self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has it {count} times, not once: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> Iterator[Mutant]:
    edit = r"^(\S+\.py) (\w+): (.+)\n((?:- .*\n)+)((?:\+ .*\n)+)({.*})?"
    for found in re.finditer(edit, Path(__file__).with_suffix(".txt").read_text(), re.MULTILINE):
        file, engine, what, *texts, given = found.groups(default="{}")
        old, new = ("\n".join(line[2:] for line in text.splitlines()) for text in texts)
        yield Mutant(file, engine, what, old, new, given)


class Catch(NamedTuple):
    seed: str = ""
    check: str = ""
    text: str = ""


def show_all(jobs: int, like: str = "") -> int:
    """Try all whose description holds `like`, and print which check has caught each.

    Returns 1 where one was not, 2 where there is none.
    """
    missed = []
    wanted = [mutant for mutant in mutants() if like in mutant.what]
    if not wanted:
        print(f'no mutant is described by "{like}"', file=sys.stderr)
        return 2
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        catches = pool.map(tried, wanted)
        for mutant, catch in zip(wanted, catches, strict=True):
            verdict = f"{catch.check:12} seed {catch.seed}" if catch.check else "NOT CAUGHT"
            print(f"{mutant.what:76} {verdict}", flush=True)
            if not catch.check:
                missed.append(mutant)
                print(f"  {catch.text}")
    print(f"{len(wanted) - len(missed)} of {len(wanted)} mutants caught")
    return int(bool(missed))


def tried(mutant: Mutant) -> Catch:
    """Run a copy of the package with this edit, until a seed sees it."""
    try:
        text = mutant.edited()
    except ValueError as error:
        return Catch(text=str(error))
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "watcher")
        shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        Path(package, mutant.file).write_text(text)
        for each in ("simulator", "simulation", "support"):
            shutil.copytree(_ROOT / "tests" / each, Path(folder, "tests", each))
        # Else the tests of an installed tree would be found before these.
        shutil.copy(_ROOT / "tests" / "__init__.py", Path(folder, "tests"))
        command = [sys.executable, "-m", "tests.simulation", "--until-caught"]
        command += ["--seeds", str(_SEEDS), "--given", mutant.given]
        command += ["--engine", mutant.engine] if mutant.engine != "any" else []
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3600
        )
    if done.stdout.count("\t") < 2:
        return Catch(text=done.stderr.strip().splitlines()[-1] if done.returncode else "")
    return Catch(*done.stdout.strip().split("\t", 2))
