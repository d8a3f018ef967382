"""What a run needs of kernel, container and Open vSwitch, tried without a trace before it makes anything."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from functools import cache, partial
from pathlib import Path
from typing import Literal

from railyard.errors import MachineError
from railyard.process.start import run_program
from railyard.tools import TOOLS, need_tools

OLDEST_OPEN_VSWITCH = 3, 0
"""The release notes of 2.17 have no flow monitors of OpenFlow 1.4 yet, by which the fast path follows the tables."""
_PATIENCE_S = 20.0
KERNEL = "use a kernel with it, as that of Debian or Ubuntu is"
NEEDS: dict[str, tuple[Literal["missing", "warning"], str, str]] = {
    "SYS_ADMIN": ("missing", "no network namespace can be made", "in a container: --cap-add SYS_ADMIN"),
    "NET_ADMIN": ("missing", "no link can be made", "in a container: --cap-add NET_ADMIN"),
    "NET_RAW": ("warning", "no ping, capture or relay of delayed links", "in a container: --cap-add NET_RAW"),
    "real-time priority": (
        "warning",
        "fewer runs are faithful beside other programs",
        "in a container: --cap-add SYS_NICE, which rootless ones cannot have",
    ),
    "/proc/sys": (
        "missing",
        "no host can be set up",
        "in a container: --security-opt unmask=/proc/sys (Docker: systempaths=unconfined)",
    ),
    "/dev/net/tun": ("missing", "no switch can be made", "in a container: --device /dev/net/tun"),
    "Open vSwitch": ("missing", "its tables cannot be followed", "use that of Debian 12, Ubuntu 24.04 or later"),
    "veth": ("missing", "no link can be made", KERNEL),
    "tbf": ("missing", "no link can be given a rate", KERNEL),
    "htb": ("warning", "no links between switches (racks, torus)", KERNEL),
    "clsact": ("warning", "links lose no packets, and Open vSwitch alone forwards", KERNEL),
    "netem": ("warning", "links with a delay work, less exactly; light in a mesh takes no time", KERNEL),
}
"""What a run needs of kernel, container and Open vSwitch: how bad it is to lack it, what then fails, and the remedy."""


@cache
def check_needs() -> None:
    """Raise ``MachineError`` for the first thing that no run can do without and that is not here; needs root."""
    need_tools(*TOOLS)
    needed = [name for name, (state, _, _) in NEEDS.items() if state == "missing"]
    for refused in (refused_versions, refused_rights, partial(refused_features, needed)):
        for name, why in refused().items():
            if name in needed:
                _, without, remedy = NEEDS[name]
                raise MachineError(f"{name}: {why}, so {without}; {remedy}")


def refused_versions() -> dict[str, str]:
    """``Open vSwitch`` and why, if the one that is installed is too old."""
    if open_vswitch_is(OLDEST_OPEN_VSWITCH):
        return {}
    return {"Open vSwitch": f"{open_vswitch_version()} is older than {'.'.join(map(str, OLDEST_OPEN_VSWITCH))}"}


def open_vswitch_is(least: tuple[int, int]) -> bool:
    """Whether the Open vSwitch that runs start has at least version ``least``, or one that cannot be read."""
    number = re.match(r"(\d+)\.(\d+)", open_vswitch_version())
    return number is None or (int(number[1]), int(number[2])) >= least


@cache
def open_vswitch_version() -> str:
    """The version of the Open vSwitch that runs start (``3.1.0``); empty where there is none."""
    said = run_program(["ovs-vswitchd", "--version"], _PATIENCE_S).out
    return said.partition("\n")[0].rpartition(" ")[2]


_CAPABILITIES = {"SYS_ADMIN": 21, "NET_ADMIN": 12, "NET_RAW": 13}
"""Capability -> its number in capabilities(7)."""


def refused_rights() -> dict[str, str]:
    """Each right of ``NEEDS`` that root does not have here, as in a container -> why."""
    held = re.search(r"^CapEff:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    bits = int(held[1], 16) if held else 0
    refused = {name: "this process lacks the capability" for name, bit in _CAPABILITIES.items() if not bits >> bit & 1}
    priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, *priority)
    except OSError as error:
        refused["real-time priority"] = error.strerror or str(error)
    files = {"/proc/sys": ("/proc/sys/net/ipv4/conf/all/rp_filter", os.O_WRONLY)}
    if not os.path.isdir("/sys/module/openvswitch"):  # then Open vSwitch makes its ports by it
        files["/dev/net/tun"] = ("/dev/net/tun", os.O_RDWR)
    for name, (path, flags) in files.items():
        try:
            os.close(os.open(path, flags | os.O_CLOEXEC))  # neither read nor written
        except OSError as error:
            refused[name] = error.strerror or str(error)
    return refused


def refused_features(names: Collection[str] = tuple(NEEDS)) -> dict[str, str]:
    """Each feature among ``names`` that the kernel refuses -> why; tried in a namespace of its own, root only.

    ``MachineError`` if there is no namespace.
    """
    from topos.kernel import namespaces, queues
    from topos.kernel.netlink import Netlink, VethEnd, veth

    shape = 100.0, 100_000, 1_000_000  # Mb/s, bytes at once, bytes queued
    attempts = {
        "veth": [veth(VethEnd(f"probe{n}", n), VethEnd(f"probe{n + 1}", n + 1), 1500) for n in (10, 12)],
        "tbf": [queues.token_bucket(10, "probe10", *shape)],
        "htb": queues.link_queue(11, "probe11", *shape),
        "clsact": [queues.filters(12, "probe12"), queues.redirect(12, "probe12", 10), queues.lose(12, "probe12", 1.0)],
        "netem": [queues.delay_packets(13, "probe13", 1000.0)],
    }
    refused: dict[str, str] = {}
    (fd,) = namespaces.make(1)
    try:
        with Netlink(fd) as kernel:
            for name in (name for name in attempts if name in names):
                try:
                    kernel.run(attempts[name])
                except MachineError as error:
                    absent = any(os.strerror(code) in str(error) for code in (errno.ENOENT, errno.EOPNOTSUPP))
                    refused[name] = "this kernel has none" if absent else str(error)
                if "veth" in refused:  # nothing to try the others on
                    break
    finally:
        os.close(fd)
    return refused
