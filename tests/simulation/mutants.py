"""Tries the mutants: runs a copy of the package with each, until a seed catches it."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.simulation.mutations import MUTANTS, PACKAGE, Mutant

_ROOT = Path(__file__).parents[2]
_SEEDS = 2000


class Catch(NamedTuple):
    """How a mutant was caught."""

    seed: str = ""
    check: str = ""
    text: str = ""


def show_all(jobs: int, like: str = "") -> int:
    """Try all whose description holds `like`, and print which check has caught each.

    Returns 1 where one was not.
    """
    missed = []
    wanted = [mutant for mutant in MUTANTS if like in mutant.what]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        catches = pool.map(tried, wanted)
        for mutant, catch in zip(wanted, catches, strict=True):
            verdict = f"{catch.check:12} seed {catch.seed}" if catch.check else "NOT CAUGHT"
            print(f"{mutant.what:76} {verdict}", flush=True)
            if not catch.check:
                missed.append(mutant)
                print(f"  {catch.text}")
    print(f"{len(wanted) - len(missed)} of {len(wanted)} mutants caught")
    return bool(missed)


def tried(mutant: Mutant) -> Catch:
    """Run a copy of the package with this edit, until a seed sees it."""
    try:
        text = mutant.edited()
    except ValueError as error:
        return Catch(text=str(error))
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "watcher")
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        Path(package, mutant.file).write_text(text)
        for each in ("simulator", "simulation", "support"):
            shutil.copytree(_ROOT / "tests" / each, Path(folder, "tests", each))
        # Else the tests of an installed tree would be found before these.
        shutil.copy(_ROOT / "tests" / "__init__.py", Path(folder, "tests"))
        command = [sys.executable, "-m", "tests.simulation", "--until-caught"]
        command += ["--seeds", str(_SEEDS)] + (["--engine", mutant.engine] if mutant.engine else [])
        command += ["--given", json.dumps(dict(mutant.given))]
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3600
        )
    if done.stdout.count("\t") < 2:
        return Catch(text=done.stderr.strip().splitlines()[-1] if done.returncode else "")
    return Catch(*done.stdout.strip().split("\t", 2))
