"""Whoever copies an install line gets this program: on PyPI, `watcher` is another one."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from watcher.version import NO_WINDOWS, PACKAGE, install

ROOT = Path(__file__).parents[2]
_TEXTS = ("README.md", "CHANGELOG.md", "pyproject.toml")
_FOLDERS = ("watcher", "handlers", "docs", "scripts", "deploy")


def texts() -> list[Path]:
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [*(ROOT / name for name in _TEXTS), *found]


def test_no_text_tells_to_install_the_other_watcher() -> None:
    wrong = re.compile(
        r"(?<![\w-])watcher\[[a-z]|\b(install|run|uvx|--from) +['\"]?watcher['\"\s`]"
    )
    for path in texts():
        if path.suffix not in (".pyc", ".png", ".svg"):
            for line in path.read_text("utf-8").splitlines():
                assert not wrong.search(line + "\n"), f"{path}: {line}"


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, f"'{PACKAGE}[spark]'"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "-e '/a b[spark]'"),
        ({"url": "file:///a.whl", "archive_info": {}}, f"'{PACKAGE}[spark] @ file:///a.whl'"),
        (
            {"url": "https://host/a", "vcs_info": {"vcs": "git", "commit_id": "0a1"}},
            f"'{PACKAGE}[spark] @ git+https://host/a@0a1'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, what: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert install("spark") == f"pip install {what}"


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("import runpy; runpy.run_module('watcher', run_name='__main__')", 2, "error: "),
        ("from watcher import watch", 1, "ImportError: "),
    ],
)
def test_windows_is_sent_to_wsl_in_one_line(code: str, status: int, error: str) -> None:
    line = [sys.executable, "-c", f"import sys; sys.platform = 'win32'; {code}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.splitlines()[-1] == f"{error}{NO_WINDOWS}"


def test_the_projects_handlers_alone_are_packed_and_checked() -> None:
    """A user's own may stand beside them, in a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "handlers"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours = listed.stdout.split()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packed = tools["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for names in (packed, tools["ruff"]["include"], tools["mypy"]["files"]):
        assert [name for name in names if name.startswith("handlers")] == ours
