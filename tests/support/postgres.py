"""A real PostgreSQL of a test's own, from the system's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACES = "/usr/lib/postgresql"
"""Where Debian has it; `postgres` itself is not on the PATH there."""


def find_postgres() -> Path | None:
    """Returns the folder of its programs; None where there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path(_PLACES).glob("*/bin"))
    return folders[-1] if folders and (folders[-1] / "postgres").exists() else None


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """Runs one on a socket in a folder of its own; yields its URL, to which a query is added."""
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        os.chmod(folder, 0o755)
        home = Path(folder, "home")
        home.mkdir()
        if user is not None:
            shutil.chown(home, user)

        def run(program: str, *arguments: str) -> None:
            words = [str(programs / program), *arguments]
            subprocess.run(words, user=user, cwd=home, check=True, stdout=subprocess.DEVNULL)

        data = str(home / "data")
        run("initdb", "-D", data, "-U", "watcher", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-c listen_addresses='' -c unix_socket_directories={home} -c fsync=off"
        run("pg_ctl", "-D", data, "-o", settings, "-l", str(home / "log"), "-w", "start")
        try:
            yield f"postgresql+psycopg://watcher@/postgres?host={home}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
