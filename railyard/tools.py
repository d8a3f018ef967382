"""The programs of the distribution that a run starts, and how to install one that is missing."""

from __future__ import annotations

import shutil

from railyard.checkout import SETUP
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
}
"""Program -> its package in Debian and Ubuntu."""


def how_to_install(package: str) -> str:
    """The half sentence that says what installs ``package`` of the distribution."""
    return "scripts/setup.sh installs it" if SETUP.exists() else f"on Debian or Ubuntu: sudo apt install {package}"


def need_tools(*names: str) -> None:
    """Raise ``MachineError`` naming the first of these programs that is missing; ``names`` are keys of ``TOOLS``."""
    for name in names:
        if shutil.which(name) is None:
            raise MachineError(f"{name} is missing; {how_to_install(TOOLS[name])}")
