"""Completes options' values at a TAB, without a call to AWS and without boto3."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Completer = Callable[[str], Iterable[str]]
"""Returns the values for what is typed of one; those that begin otherwise are left out."""


def of(name: str, metavar: str | None) -> Completer | None:
    """Returns the completer for a parameter's name, or for its metavar."""
    return _BY_NAME.get(name) or _BY_METAVAR.get(metavar or "")


def words(*candidates: str) -> Completer:
    """Returns a completer that offers these words; the user may type others."""
    return lambda begun: candidates


def files(begun: str, folders_only: bool = False) -> Iterator[str]:
    """Yields files that begin like this; folders end in a slash, ready for the next TAB."""
    head, tail = os.path.split(begun)
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(head) or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            hidden = entry.name.startswith(".") and not tail.startswith(".")
            if hidden or not entry.name.startswith(tail):
                continue
            if entry.is_dir():
                yield os.path.join(head, entry.name) + "/"
            elif not folders_only:
                yield os.path.join(head, entry.name)


def _folders(begun: str) -> Iterator[str]:
    return files(begun, folders_only=True)


def _start(begun: str) -> Iterable[str]:
    return "latest", "trim-horizon", "15m", "1h", "2h", "24h"


def _kinds(begun: str) -> Iterable[str]:
    before, comma, _ = begun.rpartition(",")
    return [before + comma + kind for kind in ("insert", "modify", "remove", "ttl")]


def _policies(begun: str) -> Iterable[str]:
    before, comma, last = begun.rpartition(",") if begun.startswith("retry:") else ("", "", begun)
    policy, colon, file = last.partition(":")
    if policy == "dead-letter" and colon:
        return [f"{before}{comma}{policy}:{path}" for path in files(file)]
    words = ["log", "stop", "dead-letter:", *([] if comma else ["retry", "retry:"])]
    return [before + comma + word for word in words]


def _pattern(begun: str) -> Iterable[str]:
    """Completes `--filter @FILE`."""
    return [f"@{path}" for path in files(begun[1:])] if begun[:1] == "@" else ["@"]


def _profiles(begun: str) -> Iterable[str]:
    """Returns the profiles in the aws CLI's files."""
    import configparser  # not at every TAB

    names: list[str] = []
    for variable, default in (
        ("AWS_CONFIG_FILE", "~/.aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ):
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
            parser.read(os.path.expanduser(os.environ.get(variable) or default))
        plain = [name for name in parser.sections() if " " not in name]
        names += [*plain, *(n.removeprefix("profile ") for n in parser.sections() if " " in n)]
    return [name for name in dict.fromkeys(names) if " " not in name]


def _regions(begun: str) -> Iterable[str]:
    """Returns the regions in botocore's list, read without importing botocore."""
    spec = importlib.util.find_spec("botocore")
    if spec is None or spec.origin is None:
        return ()
    try:
        text = Path(spec.origin).with_name("data").joinpath("partitions.json").read_text("utf-8")
    except OSError:
        return ()
    parts = json.loads(text)["partitions"]
    return [name for part in parts for name in part["regions"] if "global" not in name]


_BY_NAME: dict[str, Completer] = {
    "start": _start,
    "only": _kinds,
    "on_error": _policies,
    "filters": _pattern,
    "profile": _profiles,
    "region": _regions,
    "to_region": _regions,
}
_BY_METAVAR: dict[str, Completer] = {
    "FILE": files,
    "PATH": files,
    "DIR": _folders,
}
