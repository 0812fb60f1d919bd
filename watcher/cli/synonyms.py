"""Words of other tools (kubectl, stern, kcat, journalctl, git, the aws CLI), and ours for them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Sequence

from watcher.errors import UsageError

COMMANDS = {
    "ls": "streams",
    "list": "streams",
    "list-streams": "streams",
    "tables": "streams",
    "list-tables": "streams",
}
"""Words in place of a command that do what it does."""

VERBS = {
    **dict.fromkeys(("rollback", "revert", "restore", "recover", "reset", "unwind"), "undo"),
    **dict.fromkeys(("diff", "blame", "audit", "show", "trace", "inspect", "item"), "history"),
    **dict.fromkeys(("get", "dump", "scan", "backup", "snapshot", "items", "at"), "as-of"),
    **dict.fromkeys(
        ("describe", "info", "lag", "status", "health", "tree", "describe-stream"), "shards"
    ),
    **dict.fromkeys(("stats", "top", "summary", "histogram", "group", "wc"), "count"),
    **dict.fromkeys(("sync", "copy", "clone"), "mirror"),
    **dict.fromkeys(("export", "sink", "lake"), "archive"),
    **dict.fromkeys(("sql", "select"), "query"),
    **dict.fromkeys(("retry", "reprocess"), "replay"),
    **dict.fromkeys(("page", "html", "chart"), "report"),
    **dict.fromkeys(("permissions", "iam"), "policy"),
    **dict.fromkeys(("example", "try", "quickstart"), "demo"),
    **dict.fromkeys(("init", "new", "scaffold"), "new-handler"),
    **dict.fromkeys(("logs", "log", "stream", "follow", "listen", "consume", "subscribe"), "watch"),
    **dict.fromkeys(("run", "start", "read", "records", "changes", "events", "poll"), "watch"),
    **dict.fromkeys(("cat", "open", "monitor", "observe"), "watch"),
}
"""Words that name the work of a command, and are no command."""

OPTIONS = {
    "--since": "--from",
    "--start": "--from",
    "--start-time": "--from",
    "--from-time": "--from",
    "--from-beginning": "--from trim-horizon",
    "--end": "--until",
    "--end-time": "--until",
    "--to-time": "--until",
    "--before": "--until",
    "--lines": "--tail",
    "--last": "--tail",
    "--limit": "--max-records",
    "--max-items": "--max-records",
    "--max": "--max-records",
    "--head": "--max-records",
    "--timeout": "--max-seconds",
    "--duration": "--max-seconds",
    "--max-time": "--max-seconds",
    "--interval": "--poll-max",
    "--poll-interval": "--poll-max",
    "--once": "--no-follow",
    "-f": "--follow",
    "--watch": "--follow",
    "--event-type": "--only",
    "--event-name": "--only",
    "--events": "--only",
    "--event": "--only",
    "--op": "--only",
    "--type": "--only",
    "--kind": "--only",
    "--kinds": "--only",
    "--query": "--jmespath",
    "--jq": "--jmespath",
    "--format": "--output",
    "--json": "--print-json",
    "--jsonl": "--print-jsonl",
    "--csv": "--print-csv",
    "--table": "--print-table",
    "--debezium": "--print-debezium",
    "--summary": "--print-summary",
    "--diff": "--print-diff",
    "--handler-dir": "--handlers",
    "--function": "--call",
    "--debug": "--verbose",
    "--silent": "--quiet",
    "--colour": "--color",
    "--no-color": "--color never",
    "--no-colour": "--color never",
    "--endpoint": "--endpoint-url",
    "--aws-profile": "--profile",
    "--aws-region": "--region",
    "--state": "--checkpoint",
    "--resume": "--checkpoint",
    "--all-tables": "--all",
    # What stands behind these is the STREAM.
    "--table-name": "",
    "--stream-arn": "",
    "--stream": "",
    "--arn": "",
}
"""Options of other tools, and ours for them; those that a command has itself stay as they are."""

_KEY = "say --key NAME=VALUE, for each part of the item's key"
_FILE = "write to a file with --print-jsonl > FILE"
_BY = "say count STREAM --by kind, minute, key, …"
ADVICE = {
    "--group-by": _BY,
    "--per": _BY,
    "--id": _KEY,
    "--pk": _KEY,
    "--item": _KEY,
    "--pretty": "say --print-record or --print-diff",
    "--print": "say --print-summary, --print-json or another of the handlers in --help",
    "--handler": "a handler is an option by its name: handlers/NAME.py is --NAME",
    "--dry-run": "nothing is written without --apply",
    "--save": _FILE,
    "--out": _FILE,
    "--to": _FILE,
    "--tz": "say --utc, or TZ=Europe/Berlin before the command",
    "--timezone": "say --utc, or TZ=Europe/Berlin before the command",
    "--shard": "a watch reads every shard; `python -m watcher shards STREAM` lists them",
    "--shard-id": "a watch reads every shard; `python -m watcher shards STREAM` lists them",
}
"""What to say instead of other tools' options that no single one of ours stands for."""

_COUNT = re.compile(r"-n=?(\d*)")
_STARTS = ("--tail", "--from", "--since", "--checkpoint")


def tail(words: Sequence[str]) -> list[str]:
    """Returns `tail orders -n 5` as a watch that begins with the last changes."""
    words = [_COUNT.sub(r"--tail=\1", word).removesuffix("=") for word in words]
    begins = any(word.partition("=")[0] in _STARTS for word in words)
    return words if begins else ["--tail=10", *words]


def translated(words: Sequence[str], known: Container[str]) -> list[str]:
    """Returns the words with other tools' options as ours; those that the command has stay."""
    found: list[str] = []
    left = list(words)
    while left and left[0] != "--":
        name, equals, value = left.pop(0).partition("=")
        if name in known or name not in OPTIONS:
            found.append(name + equals + value)
            continue
        ours, *more = OPTIONS[name].split() or [""]
        if ours and ours not in known:
            found.append(name + equals + value)
        elif ours or value:
            found += [ours + equals * bool(ours) + value, *more]
    return found + left


def of(known: Container[str]) -> list[str]:
    """Returns other tools' options for which there is one of these."""
    return [name for name, ours in OPTIONS.items() if ours and ours.split()[0] in known]


def refuse_count(words: Sequence[str]) -> None:
    """Raises UsageError for `-n`: tail's is the last N, aws logs' and kcat's the next N."""
    for place, word in enumerate(words):
        if word == "--":
            return
        if count := _COUNT.fullmatch(word):
            n = count[1] or "".join(words[place + 1 : place + 2]) or "N"
            raise UsageError(
                f"{word}: say --tail {n} (the last {n}, then go on; --no-follow: only those) "
                f"or --max-records {n} (the next {n})"
            )


def command_for(word: str, commands: Iterable[str]) -> str | None:
    """Returns the command that a word is near to: by its meaning or by its letters."""
    near = {**{name: name for name in commands}, **COMMANDS, **VERBS}
    close = difflib.get_close_matches(word, near, 1, 0.8)
    return near[close[0]] if close else None
