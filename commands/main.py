"""The ``railyard`` command: finds what is to be done, and turns errors into one sentence and an exit status.

Only the standard library is imported before it is known what is to be done, so that ``--help`` and ``list`` are quick.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from commands.attempt import attempted
from railyard import __version__
from railyard.errors import ConfigError, nearest
from railyard.signals import stop_on_signals
from railyard.tools import safe_path

COMMANDS = {
    "list": ("listing:main", "list the experiments"),
    "run": ("lab.jobs:main", "run an experiment: NAME or FILE.yaml, with options"),
    "predict": ("run:predict", "the model's numbers of an experiment alone; needs no root"),
    "torchrun": ("torchrun:main", "run a PyTorch script over rails: [options] SCRIPT [arguments]"),
    "sweep": ("sweep.command:main", "many points of an experiment in one folder; begins or resumes"),
    "plot": ("plot:main", "draw the figures of a results folder again, and print its tables"),
    "watch": ("page.command:main", "a page of a run, live or finished"),
    "report": ("page.report.command:main", "one HTML file with all of a run, or two runs compared"),
    "explain": ("explain:main", "where measured and predicted step differ, by kind of cost"),
    "claims": ("claims.command:main", "the claims with their last numbers; --run measures them again"),
    "export": ("export:main", "describe a results folder as an RO-Crate, for archives"),
    "show": ("show:main", "show what a workload, a trace or a collective contains"),
    "record": ("record:main", "what a PyTorch script communicates, as a workload"),
    "check": ("exercises.check:main", "labs for students: list them, or mark one: check labs/NAME"),
    "mesh": ("run:main mesh", "route matchings on a photonic mesh (run mesh)"),
    "bench": ("run:main bench", "run the benchmarks (run bench)"),
    "calibrate": ("run:main calibrate", "measure the scale that this machine carries (run calibrate)"),
    "up": ("lab.up:main", "bring a fabric up that stays: rails, racks, edge, your own"),
    "down": ("lab.client:main down", "take it down"),
    "status": ("lab.client:main status", "hosts, addresses, circuits of a lab"),
    "exec": ("lab.client:main exec", "run a program on a host: exec HOST -- PROGRAM"),
    "shell": ("lab.client:main shell", "a shell on a host"),
    "mpirun": ("lab.client:main mpirun", "an MPI program over the hosts"),
    "cli": ("lab.jobs:prompt", "Mininet's command line on a lab, or on a fabric of its own"),
    "ping": ("lab.client:main ping", "ping from a host to another"),
    "pingall": ("lab.client:main pingall", "ping all that is joined"),
    "trace": ("lab.client:main trace", "the hops from a host to another, with the delay of each"),
    "capture": ("lab.client:main capture", "packets of a host (tcpdump)"),
    "connect": ("lab.client:main connect", "join ports of an optical switch: connect rail0 1 3"),
    "disconnect": ("lab.client:main disconnect", "take the circuits of ports down"),
    "fail": ("lab.client:main fail", "fail a port, a link, a host or a switch: fail rail0:3"),
    "restore": ("lab.client:main restore", "restore what was failed"),
    "set": ("lab.client:main set", "rate, delay and loss of a link: set g0-r0 rate=50Mbps"),
    "at": ("lab.client:main at", "a timetable: at '2s fail rail0:3; 4s restore rail0:3'"),
    "mark": ("lab.client:main mark", "begin a stretch that verdict judges"),
    "verdict": ("lab.client:main verdict", "did the emulation keep its promises since mark?"),
    "manager": ("manager:start", "start OpenFlow apps: os-ken|ryu [OPTIONS] APP..."),
    "doctor": ("doctor:main", "say what this machine lacks for a run, and change nothing"),
    "completion": ("completion:main", "print a completion script: bash, zsh or fish"),
}
"""Name -> module:function in package ``commands`` with arguments that come before all others, and the help text."""

_OF_RESULTS = {"plot", "watch", "report", "explain", "export"}
"""Commands that take the results folder of a run."""


def usage() -> str:
    lines = [
        "usage: railyard COMMAND [ARGUMENTS]",
        "",
        "A packet-level emulator of the photonic fabrics of ML clusters.",
        "",
        "begin with:",
        "  railyard predict rails --workload smoke             the model alone, no root",
        "  sudo railyard run rails --workload smoke --quick    on packets, in a minute",
        "  sudo railyard up rails --servers 4 --gpus 1         a fabric that stays",
    ]
    of_labs = {name for name, (place, _) in COMMANDS.items() if place.startswith("lab.") and name != "run"}
    others = COMMANDS.keys() - of_labs - _OF_RESULTS
    groups = {"commands:": others, "results of a run:": _OF_RESULTS, "a fabric that stays (sudo):": of_labs}
    for title, names in groups.items():
        lines += ["", title, *(f"  {name:<11} {text}" for name, (_, text) in COMMANDS.items() if name in names)]
    lines += ["", "railyard COMMAND --help lists the arguments of a command, and"]
    lines += ["railyard run NAME --help those of an experiment."]
    lines += [
        "Runs need root; list, predict, plot, watch, report, explain, claims, export,",
        "show, mesh, doctor, completion and most of check do not.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of ``arguments`` (default: those of the process); returns the exit status."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _open_closed_streams()
    _print_in_any_encoding()
    os.environ["PATH"] = safe_path()
    stop_on_signals()
    return attempted(lambda: _command(name)(rest))


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
