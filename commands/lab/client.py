"""What a person does with a lab that is up: a verb is one request to its daemon, or a program on one of its hosts.

A lab is found by the Unix socket in the folder of its run. Only what starts in tens of milliseconds is imported, as
``railyard exec`` runs this for each command.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from railyard.checkout import REGISTRY
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, ControlError, MachineError, nearest
from railyard.process.connection import Connection
from railyard.process.start import become
from railyard.tools import safe_path
from railyard.verdict import NOT_FAITHFUL

SOCKET, NAME = "lab.sock", "lab"
"""Files of a run that is a lab: the socket of its daemon, and its name."""
_ANSWER_S = 60.0
_DAYS_S = 1e6
_MOST_RANKS = 16384
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Statuses of a shell for a program that is not there, or cannot be run."""

USAGE = {
    "down": "down",
    "status": "status [--json]",
    "exec": "exec HOST -- PROGRAM [ARGUMENTS]",
    "shell": "shell HOST",
    "mpirun": "mpirun [-n RANKS] PROGRAM [ARGUMENTS]",
    "capture": "capture HOST [ARGUMENTS OF TCPDUMP]",
    "connect": "connect SWITCH PORT PORT [PORT PORT ...]",
    "disconnect": "disconnect SWITCH PORT [PORT ...]",
    "fail": "fail PORT|LINK|HOST|SWITCH",
    "restore": "restore PORT|LINK|HOST|SWITCH",
    "set": "set LINK|HOST [rate=50Mbps] [delay=2ms] [loss=1%] [transport=NAME]",
    "at": "at FILE.yaml|'2s fail rail0:3; 4s restore rail0:3'",
    "mark": "mark [NAME]",
    "verdict": "verdict [NAME]",
    "ping": "ping HOST HOST",
    "pingall": "pingall",
    "trace": "trace HOST HOST",
    "cli": "cli",
}
"""Verb -> how it is typed."""


def main(arguments: Sequence[str]) -> int:
    """Carry out the verb that comes first, on the lab that ``--lab`` names or the only one; the exit status."""
    verb, *words = arguments
    if words[:1] in (["--help"], ["-h"]):
        print(f"usage: railyard {USAGE[verb]}\n\n--lab NAME chooses one of several labs (docs/lab.md).")
        return 0
    name, words = lab_option(words)
    special: Callable[[str | None, list[str]], int] | None = _SPECIAL.get(verb)
    if special is not None:
        return special(name, words)
    lab = open_lab(name)
    if verb in _ACTS:
        return act(lab, [verb, *words])
    if verb == "at":
        from experiments.timetable import parse

        words = list(map(str, parse(" ".join(words))))
    answer = lab.call(verb, words=words, timeout_s=_ANSWER_S)
    if answer:
        print(answer)
    return NOT_FAITHFUL_EXIT_STATUS if verb == "verdict" and NOT_FAITHFUL in answer else 0


def labs(registry: Path = REGISTRY) -> dict[str, Path]:
    """The socket of each lab whose daemon is there, by name."""
    found = {}
    for path in sorted(registry.glob(f"*/{SOCKET}")):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            found[(path.parent / NAME).read_text(encoding="utf-8")] = path
    return found


def open_lab(name: str | None, registry: Path = REGISTRY) -> Connection:
    """A connection to the lab ``name``, or to the only one; ``ConfigError`` if there is none of that name."""
    if os.geteuid() != 0:
        raise MachineError("a lab belongs to root; run the command with sudo")
    up = labs(registry)
    if not up:
        raise ConfigError("no lab is up; railyard up rails makes one")
    if name is None and len(up) > 1:
        raise ConfigError(f"several labs are up ({', '.join(up)}); name one with --lab")
    if name is not None and name not in up:
        raise ConfigError(f"there is no lab {name}{nearest(name, up) or '; up is ' + ', '.join(up)}", key="--lab")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(up[name] if name is not None else next(iter(up.values()))))
    except OSError as error:
        sock.close()
        raise ControlError(f"the lab has gone ({error.strerror})") from None
    fd = sock.detach()
    return Connection(fd, fd, f"the lab {name or next(iter(up))}")


def lab_option(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The lab that ``--lab`` names before any ``--`` (None without it), and the other words."""
    rest = list(words)
    end = rest.index("--") if "--" in rest else len(rest)
    if "--lab" not in rest[:end]:
        return None, rest
    at = rest.index("--lab")
    if at + 1 >= end:
        raise ConfigError("needs the name of a lab", key="--lab")
    name = rest.pop(at + 1)
    del rest[at]
    return name, rest


def act(lab: Connection, words: Sequence[str]) -> int:
    """Have the daemon carry out ``words`` in a process of its own, with the streams of this one; its exit status."""
    environment = {key: value for key, value in os.environ.items() if key.startswith(PASSED)}
    for stop in (signal.SIGTERM, signal.SIGHUP):  # the daemon ends what acts for a client that is gone
        signal.signal(stop, signal.SIG_DFL)
    number = lab.begin("act", words=[*words], environment=environment)
    while True:
        try:
            return int(lab.answer(number, _DAYS_S))
        except KeyboardInterrupt:
            lab.tell("interrupt", number=number)


def _down(name: str | None, words: list[str]) -> int:
    lab = open_lab(name)
    lab.call("down", words=words, timeout_s=_ANSWER_S)
    with suppress(MachineError):  # the end of the connection, when all is gone
        lab.next_message(_ANSWER_S)
    return 0


def _exec(name: str | None, words: list[str]) -> int:
    host, *command = words or [""]
    command = command[1:] if command[:1] == ["--"] else command
    if not host or not command:
        raise ConfigError(f"usage: railyard {USAGE['exec']}")
    enter(open_lab(name).call("enter", host=host, timeout_s=_ANSWER_S))
    return run_here(command)


def _shell(name: str | None, words: list[str]) -> int:
    if len(words) != 1:
        raise ConfigError(f"usage: railyard {USAGE['shell']}")
    enter(open_lab(name).call("enter", host=words[0], timeout_s=_ANSWER_S))
    os.environ["PS1"] = f"{words[0]}# "
    return run_here(["bash", "--norc", "-i"])


def _capture(name: str | None, words: list[str]) -> int:
    if not words:
        raise ConfigError(f"usage: railyard {USAGE['capture']}")
    enter(open_lab(name).call("enter", host=words[0], timeout_s=_ANSWER_S))
    return run_here(["tcpdump", "-n", "-i", "any", *words[1:]])


def _ping(name: str | None, words: list[str]) -> int:
    if len(words) != 2:
        raise ConfigError(f"usage: railyard {USAGE['ping']}")
    lab = open_lab(name)
    address = lab.call("address", host=words[0], peer=words[1])
    enter(lab.call("enter", host=words[0], timeout_s=_ANSWER_S))
    return run_here(["ping", "-c", "3", "-i", "0.2", "-W", "1", address])


def _mpirun(name: str | None, words: list[str]) -> int:
    """Start MPI on the first host; it reaches the others by a program of the lab in the place of ssh."""
    from railyard.process.start import run_program

    count = None
    if words[:1] in (["-n"], ["-np"]):
        if not words[1:2] or not words[1].isdigit() or not 0 < int(words[1]) <= _MOST_RANKS:
            raise ConfigError(f"must be a number of ranks from 1 to {_MOST_RANKS}", key="-n")
        count, words = int(words[1]), words[2:]
    if not words:
        raise ConfigError(f"usage: railyard {USAGE['mpirun']}")
    mpirun = shutil.which("mpirun", path=safe_path())
    if mpirun is None:
        raise MachineError("there is no mpirun; install Open MPI or MPICH, or put the folder of yours into PATH")
    version = run_program([mpirun, "--version"], _ANSWER_S).out
    place = open_lab(name).call("mpi", timeout_s=_ANSWER_S)
    hosts = place["hosts"][:count]
    if "Open MPI" in version:
        agent = ["--mca", "plm_rsh_agent", place["agent"], "--allow-run-as-root", "--oversubscribe", "--host"]
    else:
        agent = ["-launcher", "rsh", "-launcher-exec", place["agent"], "-localhost", hosts[0], "-hosts"]
    enter(place["first"])
    for key, value in _NO_SHARED_MEMORY.items():
        os.environ.setdefault(key, value)
    return run_here([mpirun, *agent, ",".join(hosts), "-n", str(count or len(hosts)), *words])


def enter(place: dict[str, Any]) -> None:
    """Move this process to a host: its network, its /sys, and an /etc/hosts with all hosts as they are reached."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            raise MachineError(f"{what} failed ({os.strerror(ctypes.get_errno())}); a lab needs root of its machine")

    fd = os.open(place["netns"], os.O_RDONLY | os.O_CLOEXEC)
    check(libc.setns(fd, _CLONE_NEWNET), "entering the host")
    check(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "making mounts and a name of the host's own")
    socket.sethostname(place["name"])
    check(libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "keeping mounts private")
    libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None)
    if place["hosts"]:
        check(libc.mount(place["hosts"].encode(), b"/etc/hosts", None, _MS_BIND, None), "mounting the hosts' names")
    os.environ.update(place["environment"])


def run_here(command: Sequence[str]) -> int:
    """Become ``command``, found in absolute folders only; the status of a shell where that cannot be."""
    sys.stdout.flush()
    try:
        become(command)
    except FileNotFoundError:
        print(f"railyard: {command[0]}: command not found", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"railyard: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_RUNNABLE


_NO_SHARED_MEMORY = {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}
"""Hosts are namespaces of one machine, where an MPI would find memory in common and send nothing."""
PASSED = "SUDO_", "TERM", "COLUMNS", "LINES", "HOME", "NO_COLOR"
"""Beginnings of the environment variables that an act gets: who called sudo, and what the terminal is."""
_ACTS = "pingall", "trace", "cli"
_SPECIAL = {
    "down": _down,
    "exec": _exec,
    "shell": _shell,
    "capture": _capture,
    "ping": _ping,
    "mpirun": _mpirun,
}
