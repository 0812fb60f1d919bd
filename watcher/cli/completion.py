"""`completion`: what makes a shell ask us at a TAB."""

from __future__ import annotations

from argcomplete.shell_integration import shellcode

from watcher import cli
from watcher.cli import options

# `python -m watcher`: the shell knows completions by the first word, so python's have to be
# ours, and what was there before is asked for all else.
_BASH = """
for __watcher_python_before in _comp_load _completion_loader; do  # bash-completion's, new or old
    declare -F $__watcher_python_before && $__watcher_python_before python && break
done >/dev/null 2>&1
__watcher_python_before=$(complete -p python 2>/dev/null |
    sed -n 's/.* -F \\([^ ]*\\) .*/\\1/p')
[[ $__watcher_python_before == __watcher_python ]] && __watcher_python_before=
__watcher_python() {
    if [[ ${COMP_WORDS[1]-} == -m && ${COMP_WORDS[2]-} == watcher && $COMP_CWORD -gt 2 ]]; then
        local IFS=$'\\013'
        COMPREPLY=($(IFS="$IFS" COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
            COMP_TYPE="$COMP_TYPE" _ARGCOMPLETE_COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
            _ARGCOMPLETE=3 _ARGCOMPLETE_SHELL=bash _ARGCOMPLETE_SUPPRESS_SPACE=1 \\
            __python_argcomplete_run "$1" -m watcher))
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]] && compopt -o nospace
    elif [[ -n $__watcher_python_before ]]; then
        "$__watcher_python_before" "$@"
    else
        compopt -o bashdefault -o default
    fi
}
complete -F __watcher_python python python3
"""

# The line without what stands before our command, which argcomplete's own function sends along.
_ZSH = """
(( ${+_comps} )) && [[ ${_comps[python]-} != __watcher ]] &&
    __watcher_python_before=${_comps[python]-}
__watcher() {
    local IFS=$'\\013' run=("${words[1]}") line="${(j: :)words[1,CURRENT]}" nospace=()
    if [[ ${words[1]:t} == python* ]]; then
        if [[ $words[2] != -m || $words[3] != watcher || $CURRENT -le 3 ]]; then
            IFS=$' \\t\\n\\0'
            ${__watcher_python_before:-_default} "$@"
            return
        fi
        run+=(-m watcher)
    fi
    local completions=($(IFS="$IFS" COMP_LINE="$line" COMP_POINT="${#line}" \\
        _ARGCOMPLETE=1 _ARGCOMPLETE_SHELL=zsh _ARGCOMPLETE_SUPPRESS_SPACE=1 \\
        __python_argcomplete_run "${run[@]}"))
    if [[ "${completions-}" =~ '([^\\\\]):' && "${match[1]}" == [=/:] ]]; then
        nospace=(-S '')
    fi
    _describe watcher completions -o nosort "${nospace[@]}"
}
compdef __watcher watcher python python3
"""

_FISH = """
function __watcher_python
    set -l words (commandline -opc)
    test (count $words) -ge 3; and test "$words[2] $words[3]" = "-m watcher"
end
function __watcher_python_complete
    set -l words (commandline -opc)
    set -lx _ARGCOMPLETE 3
    set -lx _ARGCOMPLETE_DFS \\t
    set -lx _ARGCOMPLETE_IFS \\n
    set -lx _ARGCOMPLETE_SUPPRESS_SPACE 1
    set -lx _ARGCOMPLETE_SHELL fish
    set -lx COMP_LINE (commandline -p)
    set -lx COMP_POINT (string length (commandline -cp))
    $words[1] -m watcher 8>&1 9>&2 1>/dev/null 2>&1
end
for each in python python3
    complete --command $each -n __watcher_python -f -a '(__watcher_python_complete)'
end
"""

_OWN = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def parser(arguments: list[str]) -> options.Parser:
    """The shell."""
    made = options.parser("completion", cli.sentence("completion"), "SHELL")
    made.add_argument("shell", metavar="SHELL", choices=tuple(_OWN), help=", ".join(_OWN))
    return made


def main(arguments: list[str]) -> int:
    """Print the script."""
    shell = parser(arguments).parse_args(arguments).shell
    print(shellcode(["watcher"], use_defaults=False, shell=shell) + _OWN[shell])
    return 0
