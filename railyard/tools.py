"""The programs of the distribution that a run starts, and how to install one that is missing."""

from __future__ import annotations

import os
import shutil

from railyard.checkout import SETUP, as_root
from railyard.errors import MachineError

TOOLS = {
    "mnexec": "mininet",
    "ifconfig": "net-tools",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "ovsdb-tool": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "iperf3": "iperf3",
    "ping": "iputils-ping",
}
"""Program -> its package in Debian and Ubuntu."""


_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def safe_path() -> str:
    """The search path for programs: the absolute folders of ``PATH``, then the system's.

    A relative or empty entry would name a folder by the working directory, whose programs would run as root.
    """
    given = filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([*given, *_SYSTEM_FOLDERS]))


def how_to_install(package: str) -> str:
    """The half sentence that says what installs ``package`` of the distribution."""
    if SETUP.exists():
        return "scripts/setup.sh installs it"
    return f"on Debian or Ubuntu: {as_root(f'apt install {package}')}"


def need_tools(*names: str) -> None:
    """Raise ``MachineError`` naming the first of these programs that is missing; ``names`` are keys of ``TOOLS``."""
    for name in names:
        if shutil.which(name, path=safe_path()) is None:
            raise MachineError(f"{name} is missing; {how_to_install(TOOLS[name])}")
