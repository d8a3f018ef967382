"""``railyard completion``: scripts that complete commands, experiments and options in a shell."""

from __future__ import annotations

from collections.abc import Sequence

from commands.main import COMMANDS
from experiments.registry import entries
from railyard.errors import ConfigError, nearest

_BASH = """_railyard() {
    local words
    words=$("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _railyard railyard"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c railyard -a '(railyard completion words (commandline -opc)[2..-1] 2>/dev/null)'",
}


def main(arguments: Sequence[str]) -> int:
    """Print the script of a shell, or the words that may follow others; returns the exit status."""
    first = arguments[0] if arguments else "--help"
    if first == "words":
        print("\n".join(words(arguments[1:])))
    elif first in SCRIPTS:
        print(SCRIPTS[first])
    elif first in ("-h", "--help"):
        print("usage: railyard completion bash|zsh|fish\n\nIn bash: source <(railyard completion bash)")
    else:
        raise ConfigError(f"is not a shell{nearest(first, SCRIPTS) or '; use bash, zsh or fish'}", key=first)
    return 0


def words(before: Sequence[str]) -> list[str]:
    """The words that may follow ``before`` on a command line after ``railyard``."""
    if not before:
        return list(COMMANDS)
    command, *rest = before
    if command in ("run", "predict") and not rest:
        return [entry.name for entry in entries()]
    if command == "sweep":
        from commands.sweep.command import words as of_sweep

        return of_sweep()
    rest = ["rails", "--cli", *rest] if command == "cli" else rest
    names = rest[:1] if command in ("run", "predict", "cli") else [command]
    if not names or names[0] not in {entry.name for entry in entries()}:
        return []
    from commands.run import mode_of, parser_of
    from experiments.registry import find

    kind = find(names[0])
    return parser_of(kind, mode_of(kind, rest, predict=command == "predict")).options
