"""Whoever copies an install line gets this program: on PyPI, `watcher` is another one."""

import re
from pathlib import Path

from watcher.version import PACKAGE, install

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


def test_an_extra_is_installed_by_the_packages_name() -> None:
    assert install("spark") == f"pip install '{PACKAGE}[spark]'"
    assert f'name = "{PACKAGE}"' in (ROOT / "pyproject.toml").read_text("utf-8")
