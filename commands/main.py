"""The ``railyard`` command: finds what is to be done, and turns errors into one sentence and an exit status.

Only the standard library is imported before it is known what is to be done, so that ``--help`` and ``list`` are quick.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from railyard import __version__
from railyard.errors import ConfigError, RailyardError, from_os_error, nearest
from railyard.signals import ignore_stops, stop_on_signals
from railyard.tools import safe_path

STOPPED_EXIT_STATUS = 130
COMMANDS = {
    "list": ("listing:main", "list the experiments"),
    "run": ("run:main", "run an experiment: NAME or FILE.yaml, with options"),
    "predict": ("run:predict", "the model's numbers of an experiment alone; needs no root"),
    "sweep": ("sweep.command:main", "many points of an experiment in one folder; begins or resumes"),
    "plot": ("plot:main", "draw the figures of a results folder again, and print its tables"),
    "watch": ("page.command:main", "a page of a run, live or finished"),
    "report": ("page.report.command:main", "one HTML file with all of a run, or two runs compared"),
    "explain": ("explain:main", "where measured and predicted step differ, by kind of cost"),
    "claims": ("claims.command:main", "the claims with their last numbers; --run measures them again"),
    "export": ("export:main", "describe a results folder as an RO-Crate, for archives"),
    "show": ("show:main", "show what a workload, a trace or a collective contains"),
    "mesh": ("run:main mesh", "route matchings on a photonic mesh (run mesh)"),
    "bench": ("run:main bench", "run the benchmarks (run bench)"),
    "calibrate": ("run:main calibrate", "measure the scale that this machine carries (run calibrate)"),
    "cli": ("run:main rails --cli", "Mininet's command line on a running fabric (run rails --cli)"),
    "doctor": ("doctor:main", "say what this machine lacks for a run, and change nothing"),
    "completion": ("completion:main", "print a completion script: bash, zsh or fish"),
}
"""Name -> module:function in package ``commands`` with arguments that come before all others, and the help text."""


def usage() -> str:
    lines = [
        "usage: railyard COMMAND [ARGUMENTS]",
        "",
        "A packet-level emulator of the photonic fabrics of ML clusters.",
    ]
    lines += ["", "commands:", *(f"  {name:<11} {text}" for name, (_, text) in COMMANDS.items())]
    lines += ["", "railyard COMMAND --help lists the arguments of a command, and"]
    lines += ["railyard run NAME --help those of an experiment."]
    lines += [
        "Runs need root; list, predict, plot, watch, report, explain, claims, export,",
        "show, mesh, doctor and completion do not.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of ``arguments`` (default: those of the process); returns the exit status."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _open_closed_streams()
    _print_in_any_encoding()
    os.environ["PATH"] = safe_path()
    stop_on_signals()
    try:
        status = _command(name)(rest)
        sys.stdout.flush()
        return status
    except RailyardError as error:
        _say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        ignore_stops()
        _say("stopped")
        return STOPPED_EXIT_STATUS
    except BrokenPipeError:  # the reader (such as head) has closed the pipe: the buffered rest must not raise at exit
        _drop_output()
        return 0
    except OSError as error:
        found = from_os_error(error)
        _say(str(found))
        return found.exit_status


def _open_closed_streams() -> None:
    """Open the null device for standard streams that were closed: no file of a run may get their descriptors."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _print_in_any_encoding() -> None:
    """Let a character that the encoding of a terminal or a file lacks be replaced, where it would end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say(sentence: str) -> None:
    """Write a sentence to standard error. Where the terminal is gone, it and the rest of the output are dropped."""
    with suppress(OSError):
        print(f"railyard: {sentence}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Drop what standard output still holds: Python would end with an error of its own if it could not write that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name in ("--help", "-h", "help"):
        return lambda rest: print(usage()) or 0
    if name == "--version":
        return lambda rest: print(f"railyard {__version__}") or 0
    if name not in COMMANDS:
        known = nearest(name, COMMANDS) or f"; use one of {', '.join(COMMANDS)}"
        raise ConfigError(f"is not a command{known}", key=name)
    place, *first = COMMANDS[name][0].split()
    module, _, function = place.partition(":")
    return lambda rest: getattr(import_module(f"commands.{module}"), function)([*first, *rest])


if __name__ == "__main__":
    sys.exit(main())
