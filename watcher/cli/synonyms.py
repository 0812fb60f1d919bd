"""Other tools' words (kubectl, stern, kcat, journalctl, git, the aws CLI), and ours for them."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from watcher.errors import UsageError


def _by_word(table: Mapping[str, str]) -> dict[str, str]:
    """Returns a table of words for one thing turned round: from each word to the thing."""
    return {word: thing for thing, words in table.items() for word in words.split()}


COMMANDS = _by_word({"streams": "ls list list-streams tables list-tables"})
"""Words in place of a command that do what it does."""

VERBS = _by_word(
    {
        "undo": "rollback revert restore recover reset unwind rollout",
        "history": "diff blame audit show trace inspect log timeline",
        "as-of": "get dump scan backup snapshot at checkout",
        "shards": "describe info lag status health tree explain list-shards",
        "count": "stats top summary histogram group wc",
        "mirror": "sync copy cp clone",
        "archive": "export sink lake stash save download",
        "verify": "compare check",
        "query": "sql select",
        "replay": "retry reprocess cherry-pick",
        "report": "page html chart",
        "positions": "checkpoint checkpoints offsets",
        "policy": "permissions iam",
        "demo": "example try quickstart",
        "new-handler": "init new scaffold",
        "watch": "stream follow listen consume subscribe run start read poll "
        "cat less pull fetch open monitor observe wait attach",
    }
)
"""Words that name the work of a command, and are no command."""

NOUNS = {
    **dict.fromkeys(("stream", "table"), ""),
    **dict.fromkeys(("streams", "tables"), "streams"),
    **dict.fromkeys(("shard", "shards"), "shards"),
    **dict.fromkeys(("event", "events", "record", "records", "change", "changes"), "watch"),
    **dict.fromkeys(("log", "logs", "tail"), "watch"),
    "item": "history",
    "items": "as-of",
}
"""Words between a verb and a table, as in `describe table orders`, and the command for them."""
_LOOKS = (None, "as-of", "history", "shards", "watch")
PROGRAMS = ("aws", "dynamodb", "dynamodbstreams", "watcher")

TASKS = {
    "configure": "credentials are the aws CLI's: aws configure",
    "config": "options come from watcher.toml: python -m watcher --help defaults",
    "login": "credentials are the aws CLI's: aws sso login",
    **dict.fromkeys(
        ("enable", "create", "update"),
        "a stream is enabled by: aws dynamodb update-table --table-name TABLE "
        "--stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES",
    ),
    **dict.fromkeys(
        ("delete", "drop", "put", "insert", "truncate"),
        "a watch changes nothing; tables and items are the aws CLI's: aws dynamodb help",
    ),
    "exec": "say python -m watcher TABLE --call MODULE:FUNCTION, or --print-json | PROGRAM",
    **dict.fromkeys(
        ("search", "find", "grep"), "say python -m watcher TABLE --grep TEXT, or --filter EXPR"
    ),
}
"""Words that name work which an option or another program does."""

_SQL = "SQL is for: python -m watcher query STREAM 'SELECT ...'"
NO_NAMES = {
    r"(?:db\.)?([\w-]+)\.watch\(.*": r"say python -m watcher \1",
    r"([\w.-]+)@([\w:.-]+)": r"say python -m watcher as-of \1 \2",
    r"\\d\+? *([\w.-]*)": r"say python -m watcher shards \1",
    r".*%[a-zA-Z].*": "say --template '{kind} {key} {new.NAME}' for lines of your own form",
    r"(?i)(select|with)\s.*": _SQL,
    r".*\.sql": _SQL,
    r".*\.py": "a function of yours is --call MODULE:FUNCTION",
    r".*(\.\*|\.\+|[$^|]).*": "names are globs, such as 'orders-*', not regular expressions",
    r"\..*": "--jmespath picks attributes; --only, --key and --filter choose changes",
    r".*\(.*": "--jmespath picks attributes; --only, --key and --filter choose changes",
}
"""Patterns of words that are no table's name, and what to say instead of them."""

OPTIONS = _by_word(
    {
        "--from": "--since --start --starting-position --after --offset",
        "--from trim-horizon": "--from-beginning",
        "--until": "--end --to-time --before",
        "--tail": "--lines --last",
        "--max-records": "--limit --max-items --max-messages --max --count --first",
        "--max-seconds": "--timeout --duration --run-for",
        "--no-follow": "--once",
        "--follow": "-f -w --watch",
        "--only": "--event --event-type --event-name --type --kind",
        "--grep": "--filter-pattern --match",
        "--jmespath": "--query --jq",
        "--output": "--format",
        "--print-json": "-J",
        "--print-jsonl": "--ndjson --json-lines",
        "--verbose": "--debug",
        "--quiet": "--silent",
        "--color never": "--no-color",
        "--endpoint-url": "--endpoint",
        "--checkpoint": "--state",
        "--no-fail-on-data-loss": "--lossy",
        "--fail-on-data-loss": "--no-lossy",
    }
) | _by_word({"": "--table-name --stream-arn --stream --stream-name --arn --topic --unit -u -t"})
"""Options of other tools, and ours for them; those that a command has itself stay as they are.

An empty one stands for the STREAM. `_spellings` derives more: `--start-time`, `--events`,
`--no-colour`, `--aws-region`, `--csv`.
"""

OF_COMMAND = {"undo": {"--at": "--to"}}
"""Options that stand for another with one command."""

_PARTS = "say --template '{key.PK} {new.NAME}' or --jmespath PATH for a part of each change"
ADVICE = _by_word(
    {
        "say count STREAM --by kind, minute, key, …": "--group-by --per",
        "say --key NAME=VALUE, for each part of the item's key": "--id --pk --item",
        "say --print-record or --print-diff": "--pretty",
        "say --print-summary, --print-json or another of the handlers in --help": "--print",
        "a handler is an option by its name: handlers/NAME.py is --NAME": "--handler",
        "nothing is written without --apply": "--dry-run --yes",
        "write to a file with --print-jsonl > FILE": "--save --out",
        "say --until TIME to end at a time; write to a file with --print-jsonl > FILE": "--to",
        "say --until TIME to end at a time": "-U",
        "say --until TIME or --max-records N to end": "--stop",
        "say --max-seconds N to end after N seconds": "--timeout-ms",
        "say --utc, or TZ=Europe/Berlin before the command": "--tz --timezone",
        "a watch reads every shard; `python -m watcher shards STREAM` lists them; a port is part "
        "of --endpoint-url": "--shard --shard-id --partition -p",
        "say --from trim-horizon (the oldest), latest, an age such as 2h, or a time": (
            "--shard-iterator-type --no-tail"
        ),
        "say --from AGE, such as 2h, to begin in the past": (
            "-s -S --previous --last --at --back --hours --rewind"
        ),
        "say --from AGE to begin in the past; --endpoint-url http://HOST:PORT for a server": "-b",
        "a watch begins in the past: python -m watcher STREAM --from 2h": "--from",
        "say --endpoint-url http://HOST:PORT for another service": (
            "--broker --bootstrap-server --host --port --localstack"
        ),
        "say --grep TEXT or --filter EXPR to choose changes": "-g -i --text --expr --exclude-key",
        f"say --grep TEXT or --filter EXPR to choose changes, {_PARTS[4:]}": "--include",
        "--no-follow ends at the newest change; say --filter EXPR to choose changes": "-e",
        f"{_PARTS}; changes come oldest first (`| tac`)": "-r",
        "changes come oldest first; with --no-follow, `| tac` turns them round": (
            "--reverse --desc --sort --order"
        ),
        "say --checkpoint FILE to continue where the last run ended": (
            "-G --group --cursor --start-after"
        ),
        "nothing is paged: leave it out": ("--no-pager --no-cli-pager --no-paginate --page-size"),
        "set AWS_CA_BUNDLE=FILE, with the certificates to trust, before the command": (
            "--no-verify-ssl --ca-bundle --insecure"
        ),
        "every line of --print-summary begins with the change's time": "--timestamps",
        "`python -m watcher streams` lists the tables that have streams; --tag NAME=VALUE watches "
        "those with a tag": "-l -L --list --selector",
        "say --all for every table of the region; SQL is for python -m watcher query": "-A",
        "say --print-diff for differences; docs/service.md runs a watch in the background": "-d",
        "the table stands alone: python -m watcher TABLE; --color always for colours in a pipe": (
            "-C"
        ),
        "say --max-records N to stop after N; --print-json for a line each; "
        "SQL is for python -m watcher query": "-c",
        "say --print-record to see each change over several lines": (
            "-x --expanded --indent --yaml"
        ),
        "say --template '{new.NAME}' for bare texts": "--raw-output",
        "say --print-json | jq -S .": "--sort-keys",
        "say python -m watcher report STREAM for a page to look at": "--html",
        _PARTS: "--columns --fields --select --attributes --projection --projection-expression",
        "say -v for more status, -q for less": "--log-level",
        "say --region NAME; tables of other regions are named by their ARNs": "--all-regions",
        "a table of another account is named by its ARN": "--account",
        "say --profile NAME, with its role_arn in ~/.aws/config": "--role --assume-role",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or say --profile NAME": (
            "--access-key --secret-key --session-token"
        ),
        "say --profile NAME for other credentials, --region NAME for another region": (
            "--env --context --kube-context"
        ),
        "say --live for a view of the whole screen": "--tui --ui --interactive",
        "the table's stream decides which images there are; --print-record shows them": (
            "--view-type --stream-view-type --old --new --images --full-document"
        ),
        "say --on-error POLICY: see --help failures": "--max-retries",
        "say --call MODULE:FUNCTION, or --print-json | PROGRAM": (
            "--exec --command --run --script"
        ),
        "say --webhook URL or --sqs URL": "--notify --slack --email",
        "say --filter 'old.NAME <> new.NAME'": "--changed",
        "say --output json": "--json",
        "the table stands alone: python -m watcher shards TABLE": "--table",
    }
)
"""Advice for other tools' options that have no single counterpart here."""

_OUTPUTS = _by_word(
    {
        "--print-summary": "text short short-iso cat plain line",
        "--print-record": "yaml json-pretty pretty verbose",
        "--output table": "wide columns",
        "--print-json": "raw wire compact compact-output",
        "--from trim-horizon": "beginning earliest oldest",
        "--from latest": "end latest newest",
    }
)
_COLORS = _by_word({"never": "off no none false 0", "always": "on yes true 1"})
_COUNT = re.compile(r"^-n=?(\d*)$")
_STARTS = ("--tail", "--from", "--since", "--checkpoint")


def tail(words: Sequence[str]) -> list[str]:
    """Returns `tail orders -n 5` as a watch that begins with the last changes."""
    words = [_COUNT.sub(r"--tail=\1", word).removesuffix("=") for word in words]
    begins = any(word.partition("=")[0] in _STARTS for word in words)
    return words if begins else ["--tail=10", *words]


def translated(words: Sequence[str], known: Container[str], command: str) -> list[str]:
    """Returns the words with other tools' options as ours; those that the command has stay."""
    found: list[str] = []
    options = {**OPTIONS, **OF_COMMAND.get(command, {})}
    if "--table" in known:
        options = {name: ours or "--table" for name, ours in options.items()}
    left = list(words)
    while left and left[0] != "--":
        name, equals, value = left.pop(0).partition("=")
        is_ours = name in known or name[:1] != "-"
        ours = None if is_ours else _ours(name, known, options)
        if ours is None:
            found.append(name + equals + value)
        elif ours or value:
            ours, *more = ours.split() or [""]
            found += [ours + equals * bool(ours) + value, *more]
    return found + left


def _ours(name: str, known: Container[str], options: Mapping[str, str]) -> str | None:
    """Returns our option for another tool's; "" where its value is the STREAM; None for neither."""
    for each in _spellings(name):
        ours = options.get(each, each)
        if not ours or ours.split()[0] in known:
            return ours
    return None


def _spellings(name: str) -> Iterator[str]:
    """Yields an option's name, and other names that it may have here."""
    yield name
    if re.match("--[a-z]", name):
        yield name.replace("--aws-", "--")
        yield name.replace("colour", "color")
        yield name.removesuffix("-time")
        yield name.removesuffix("s")
        yield f"--print-{name[2:]}"


def of(known: Collection[str]) -> dict[str, str]:
    """Returns other tools' options for which there is one of these, or an operand, with ours."""
    printed = {each.replace("print-", "", 1): each for each in known if each[:8] == "--print-"}
    given = {name: ours for name, ours in OPTIONS.items() if not ours or ours.split()[0] in known}
    return {**printed, **given}


def refuse_count(words: Sequence[str]) -> None:
    """Raises UsageError for `-n`: tail's is the last N, aws logs' and kcat's the next N."""
    for index, word in enumerate(words):
        if word == "--":
            return
        if count := _COUNT.fullmatch(word):
            n = count[1] or "".join(words[index + 1 : index + 2]) or "N"
            raise UsageError(
                f"{word}: say --tail {n} (the last {n}, then go on; --no-follow: only those) "
                f"or --max-records {n} (the next {n})"
            )


def advice(option: str, known: Container[str]) -> str:
    """Returns what to say instead of an option, where the command has what that names; or ""."""
    told = ADVICE.get(option, "")
    named = re.match(r"say (--[a-z-]+)", told)
    return told if named is None or named[1] in known else ""


def of_form(option: str, known: Container[str]) -> str:
    """Returns what to say for an option named as a value, such as `--raw` or `--oldest`; or ""."""
    ours = _OUTPUTS.get(option.removeprefix("--"), "")
    return f"say {ours}" if ours and ours.split()[0] in known else ""


def of_value(value: str, choices: Container[str]) -> str:
    """Returns what to say for another tool's value of an option with these choices; or ""."""
    if "never" in choices:
        return f"--color {_COLORS[value]}" if value in _COLORS else ""
    if "jsonl" not in choices:
        return ""
    if re.fullmatch(r"-\d+", value):
        return f"--tail {value[1:]}"
    if value.startswith("s@"):  # kcat's
        return f"--from {value[2:]}"
    if "=" in value:  # kubectl's jsonpath=, custom-columns=, go-template=
        return _PARTS.removeprefix("say ")
    if "." in value or "/" in value:
        return f"--print-jsonl > {value}"
    near = next((each for each in ("jsonl", "json", "csv") if each in value), "")
    return _OUTPUTS.get(value, near and f"--output {near}")


def of_syntax(text: str) -> str:
    """Returns what to say instead of a word of another language, such as SQL's; or ""."""
    for pattern, told in NO_NAMES.items():
        if found := re.fullmatch(pattern, text):
            return found.expand(told) if found.re.groups else told
    return ""


def of_name(text: str) -> str:
    """Returns what to say instead of a word that is no table's name; or ""."""
    if told := of_syntax(text):
        return told
    names = re.findall(r"[\w.-]+", text)
    return f"did you mean: {' '.join(names)}" if names and re.search(r"[ ,]", text) else ""


def task(words: Sequence[str]) -> str:
    """Returns what to say where a line asks for work that an option or another program does."""
    verb, *others = [*itertools.dropwhile(PROGRAMS.__contains__, words)] or [""]
    return TASKS.get(verb.partition("-")[0], "") if others else ""


def command_line_for(words: Sequence[str], commands: Iterable[str]) -> tuple[str, list[str]] | None:
    """Returns the command and the words after it that a line of another tool's verbs asks for."""
    commands = list(commands)
    verb, *rest = [*itertools.dropwhile(PROGRAMS.__contains__, words)] or [""]
    is_other = [verb, *rest] != [*words]
    before, dash, noun = verb.partition("-")
    if dash and before in VERBS and noun in NOUNS:
        verb, rest = before, [noun, *rest]
    near = command_for(verb, commands)
    if near is None and not is_other:
        return None
    if verb not in commands and rest[1:] and rest[0] in commands:  # rollout undo orders
        near, *rest = rest
    elif verb not in commands and rest and rest[0] in NOUNS:
        noun, *others = rest
        if others and others[0][:1] != "-":
            near, rest = (near in _LOOKS and NOUNS[noun]) or near, others
        elif NOUNS[noun] == "streams":
            near, rest = "streams", others
        elif verb == "get":
            near, rest = NOUNS[noun] or near, ["TABLE", *others]
    has_place = len(rest) > 1 and not any(each[:1] == "-" for each in rest[:2])
    if near in ("archive", "mirror") and has_place:
        table, place, *rest = rest  # into another table, or into a folder
        near = "replicate" if near == "mirror" and "/" not in place else near
        return near, [table, "--to", place, *rest]
    return near or "watch", [*rest, "now"] if near == "as-of" and len(rest) == 1 else rest


def command_for(word: str, commands: Iterable[str]) -> str | None:
    """Returns the command that a word is near to: by its meaning or by its letters."""
    nouns = {noun: near for noun, near in NOUNS.items() if near}
    near = {**{name: name for name in commands}, **COMMANDS, **nouns, **VERBS}
    close = difflib.get_close_matches(word, near, 1, 0.8)
    return near[close[0]] if close else None
