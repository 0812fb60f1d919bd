"""The commands, and the groups of options, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from watcher.cli import synonyms

PROGRAM = "python -m watcher"


class Command(NamedTuple):
    """A command's summary and the module of this package that defines `NAME_command`."""

    summary: str
    module: str


COMMANDS = {
    "watch": Command("watch a table's changes (the default)", "watch"),
    "streams": Command("list the streams of a region or a table", "streams"),
    "shards": Command("show a stream's shards as a tree", "shards"),
    "report": Command(
        "put a stream's or an archive's changes on a page to look at, with pictures", "report"
    ),
    "history": Command("show what happened to an item, and how it is now", "history_commands"),
    "as-of": Command("give a table's items as they were at a moment", "history_commands"),
    "undo": Command("put items back to how they were before some changes; first as a plan", "undo"),
    "verify": Command("prove that a copy is equal to its table, or name what it lacks", "verify"),
    "count": Command("count changes by kind, time, key, attribute or table", "history_commands"),
    "replay": Command("hand the records of a dead-letter file to handlers again", "replay"),
    "redrive": Command("hand what a Lambda function failed on to handlers", "redrive"),
    "positions": Command("show a checkpoint, move it back, copy it, compare two", "positions"),
    "policy": Command(
        "print the least that a command has to be allowed, as an IAM policy", "admin_commands"
    ),
    "new-handler": Command("write a handler module to begin with, and its test", "admin_commands"),
    "trust": Command(
        "let this folder's watcher.toml run code, write files and choose endpoints",
        "admin_commands",
    ),
    "demo": Command("watch a small shop on an embedded DynamoDB; no AWS account needed", "demo"),
    "query": Command("ask the changes of the last 24 hours by SQL, on Spark", "spark_commands"),
    "archive": Command(
        "append every change to files, each exactly once, on Spark", "spark_commands"
    ),
    "mirror": Command(
        "keep a Delta or Iceberg table equal to this one, or with every version", "spark_commands"
    ),
    "replicate": Command("keep another table equal to this one, on Spark", "spark_commands"),
    "metrics": Command("count changes by kind and window of time, on Spark", "spark_commands"),
    "completion": Command(
        "print what makes bash, zsh or fish complete commands and options", "completion"
    ),
    "help": Command("help on a command or a group of options", "help"),
}
WITHOUT_DEFAULTS = ("completion", "help", "trust")
"""Commands without options: they work where a file of defaults is broken."""
GROUPS = {
    "handlers": "what is done with each change; modules in handlers/ are options",
    "tables": "several tables in one watch",
    "start": "where to begin, and when to end",
    "filters": "which changes, and what of them nobody is to see",
    "failures": "checkpoints, and what happens when something fails",
    "output": "how it is printed, and where else it goes",
    "lambda": "AWS Lambda functions run as they are, with an event source mapping's settings",
    "spark": "on Spark",
    "aws": "where the stream is; as in the aws CLI",
}
"""Every group of options that several commands have, and its page: `--help NAME`."""
TOPICS = (*GROUPS, "defaults", "all")
"""The topics that `--help` takes."""


def named(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Returns a line's command and the words after it."""
    name = words[0] if words else ""
    if name in COMMANDS:
        return name, words[1:]
    if name in synonyms.COMMANDS:
        return synonyms.COMMANDS[name], words[1:]
    if words == ["version"]:
        return "watch", ["--version"]
    # A table may be called so; but hardly beside another.
    return "watch", synonyms.tail(words[1:]) if name == "tail" and words[1:] else words


def sentence(name: str) -> str:
    """Returns the first sentence of a command's help."""
    if name == "watch":
        return "See every change of a DynamoDB table, live and in order."
    text = COMMANDS[name].summary
    return f"{text[0].upper()}{text[1:]}."
