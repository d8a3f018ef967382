"""The limit of open files: a process of a large fabric holds one or more for each host and port."""

from __future__ import annotations

import resource

from railyard.errors import MachineError

_EACH_PROCESS = 128
_EACH_HOST, _EACH_PORT = 3, 2


def files_of(hosts: int, ports: int) -> int:
    """The open files that any one process of a fabric needs at most.

    A launcher has a namespace, a socket and a process descriptor for each agent. Open vSwitch had 196 for 8 switches
    with 128 ports and 44 for one with 4.
    """
    return _EACH_PROCESS + _EACH_HOST * hosts + _EACH_PORT * ports


def allow_open_files(number: int, what: str) -> None:
    """Let this process and its children open ``number`` files; ``MachineError`` naming ``what`` if it may not.

    The limit is raised no further, since Mininet's mnexec closes all that it permits, one by one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < number:
        raise MachineError(f"{what} needs {number} open files in one process, and the limit is {hard}; see ulimit -Hn")
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def allow_all_open_files() -> None:
    """Let this process open as many files as it may; for those that start no mnexec."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
