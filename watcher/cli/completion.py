"""`completion`: the script that a shell runs at a TAB, and the answer to it."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated

from watcher.cli.command_line import COMMANDS, CommandLine, command_line, parameters
from watcher.cli.options import declaration, names_of, negatives_of
from watcher.declared import Parameter
from watcher.errors import WatcherError

# A shell runs `watcher __complete SHELL WORDS`, the last of the words being the one to complete.
# Bash has cut it at = and :, and wants only what comes behind them.
_BASH = """\
_watcher() {
    local line=${COMP_LINE:0:COMP_POINT} IFS=$' \\t\\n' words current before
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]}-1]}
    before=${current%"${current##*[=:]}"}
    IFS=$'\\n'
    COMPREPLY=($(watcher __complete bash "${words[@]:1}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]] && compopt -o nospace
}
complete -F _watcher watcher
"""
_ZSH = """\
_watcher() {
    local typed=("${(@Q)words[2,CURRENT-1]}" "$PREFIX")
    local lines=("${(@f)$(watcher __complete zsh "${typed[@]}" 2>/dev/null)}")
    local open=(${(M)lines:#(*[=/]|*\\\\:):*})
    local closed=(${lines:#(*[=/]|*\\\\:):*})
    _describe watcher closed -o nosort
    _describe watcher open -o nosort -S ''
}
compdef _watcher watcher
"""
_FISH = """\
function __watcher_complete
    set -l words (commandline -opc) (commandline -ct)
    while string match -q '*=*' -- $words[1]
        set -e words[1]
    end
    watcher __complete fish $words[2..] 2>/dev/null
end
complete --command watcher -f -a '(__watcher_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_Shell = Annotated[str, Parameter(choices=tuple(_SCRIPTS), help=", ".join(_SCRIPTS))]


def completion_command(line: CommandLine) -> Callable[..., int]:
    """Prints a shell's script."""

    def run(shell: _Shell, /) -> int:
        print(_SCRIPTS[shell], end="")
        return 0

    return run


def answer(shell: str = "bash", *words: str) -> int:
    """Prints the completions of the last word."""
    for value, text in candidates(words or ("",)):
        if shell == "zsh":
            print(f"{value.replace(':', chr(92) + ':')}:{text}")
        else:
            print(f"{value}\t{text}" if shell == "fish" else value)
    return 0


def candidates(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the completions of the last word, each with its help."""
    if len(words) == 1 and not words[0].startswith("-"):
        found = ((name, command.summary) for name, command in COMMANDS.items())
        yield from (each for each in found if each[0].startswith(words[0]))
        return
    line = command_line(words)
    name, words = line.name, line.words
    try:
        known = parameters(line)
    except WatcherError:  # the folder of handlers that is just being typed
        line = CommandLine(name)
        known = parameters(line)
    if words[-1].startswith("-") and "=" not in words[-1]:
        yield from _flags(known, words[-1])
    else:
        yield from _values(line, [name, *words])


def _flags(known: Iterable[inspect.Parameter], begun: str) -> Iterator[tuple[str, str]]:
    """Yields the options that begin like this, each with its help."""
    for each in known:
        if each.kind is each.KEYWORD_ONLY:
            for name in (*names_of(each), *negatives_of(each)):
                if name.startswith(begun):
                    yield name, declaration(each).help or ""


def _values(line: CommandLine, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the values that Cyclopts offers for an option or an operand."""
    from watcher.cli.invocation import app  # not for a flag: Cyclopts takes long to import

    # What Cyclopts' own scripts do: they are made once, and know no handlers of other folders.
    os.environ["CYCLOPTS_COMPLETION_WORDS"] = "".join(f"{each}\x1f" for each in words)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(line)(["__complete"], result_action="return_value")
    prefix = ""
    for row in printed.getvalue().partition("\x1fbegin\n")[2].splitlines():
        value, _, text = row.partition("\t")
        if value == "\x1fprefix":
            prefix = text
        elif not value.startswith("\x1f"):
            yield prefix + value, text
