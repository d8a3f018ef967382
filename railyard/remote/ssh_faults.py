"""Why a process on another machine did not start, as one sentence, from what ``ssh`` and the machine said. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from railyard.errors import shortened

_SENTENCES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of machine {machine} is not the one that is known; if the machine was installed again, remove "
        "the old key with ssh-keygen -R and log in once by hand",
    ),
    (
        "Host key verification failed",
        "the host key of machine {machine} is not known; log in once by hand with ssh and accept it",
    ),
    (
        r"Permission denied \(",
        "machine {machine} accepts no key of this user ({said}); ssh-copy-id copies one there; sudo passes on an agent "
        "of keys only with --preserve-env=SSH_AUTH_SOCK",
    ),
    (
        "Could not resolve hostname",
        "the name of machine {machine} is not known; give a host that ssh reaches, as [user@]host[:port]",
    ),
    (
        "Connection refused|timed out|No route to host|Network is unreachable|Connection closed by|Connection reset",
        "machine {machine} cannot be reached ({said}); is it running, and sshd on it?",
    ),
    (
        "sudo: .*(a password is required|terminal is required|not in the sudoers|not allowed)",
        "machine {machine} does not let this user become root without a password; allow it in sudoers (NOPASSWD), or "
        "log in as root (root@host)",
    ),
    ("env: .{0,3}sudo.*No such file", "machine {machine} has no sudo; log in as root (root@host), or install it there"),
    (
        "env: .*No such file or directory|sudo: .*command not found",
        "the Python of Railyard is not on machine {machine} ({said}); install Railyard there in the same place",
    ),
    (
        "No module named|ModuleNotFoundError",
        "Railyard is not complete on machine {machine} ({said}); install the same version there in the same place",
    ),
    (
        "mktemp: ",
        "machine {machine} has no room for a private folder in /tmp ({said}); make room there",
    ),
)


def cause(machine: str, said: Sequence[str]) -> str | None:
    """The sentence for the first known cause in the lines that were ``said``; None if none of them is known."""
    for pattern, sentence in _SENTENCES:
        for line in said:
            if re.search(pattern, line):
                return sentence.format(machine=machine, said=shortened(line))
    return None
