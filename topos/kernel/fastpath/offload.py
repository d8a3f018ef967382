"""The fast path of an emulation: starts the offload process, and tells it the ports."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from railyard.errors import ConfigError, MachineError
from railyard.process.child import Child
from topos.kernel.fastpath.rules import Counts, KernelPort, PortCounts
from topos.kernel.namespaces import inside

Forwarding = Literal["auto", "bpf", "ovs"]
"""Ways to forward: an eBPF program, or Open vSwitch alone; ``auto``: the first that the kernel has."""
_WAYS = ("auto", "bpf", "ovs")
_LONGEST_PATH = 107
"""Bytes of the path of a Unix socket (``sun_path`` of linux/un.h, without its last zero)."""
_ATTACH_S = 20.0
_ANSWER_S = 10.0


def check_forwarding(asked: str) -> str:
    """The way to forward that is asked for; ``ConfigError`` for an unknown one."""
    if asked not in _WAYS:
        raise ConfigError(f"must be {', '.join(_WAYS[:-1])} or {_WAYS[-1]}, not {asked}", key="datapath")
    return asked


def check_path(folder: Path, bridges: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the names of the sockets of ``bridges`` in ``folder`` are too long for the kernel."""
    longest = max((len(f"{folder / bridge}.controller".encode()) for bridge in bridges), default=0)
    if longest > _LONGEST_PATH:
        raise ConfigError(
            f"the run folder must be {longest - _LONGEST_PATH} characters shorter, for the names of sockets in it; "
            "or take datapath ovs",
            key="run_dir",
        )


def tap_name(link_index: int) -> str:
    """Name of the port of Open vSwitch behind the switch's end of a link, by the index of that end."""
    return f"tap-{link_index}"


class Offload(Child):
    """The offload process of the bridges ``bridges`` in the yard ``netns_fd``.

    - ``datapath``: ``auto`` or ``bpf``; ``ports`` and ``flows``: the most that it will have;
    - ``run_dir``: folder of its sockets BRIDGE.mgmt for ``ovs-ofctl``;
    - ``own_dir``: that of Open vSwitch's own sockets, and of BRIDGE.controller, to which the bridge connects;
    - ``openflow``: the controller's address in the yard, or None.
    """

    def __init__(
        self,
        netns_fd: int,
        run_dir: Path,
        own_dir: Path,
        bridges: Sequence[str],
        datapath: str,
        openflow: tuple[str, int] | None,
        *,
        ports: int,
        flows: int,
    ) -> None:
        settings: dict[str, Any] = {
            "netns_fd": netns_fd,
            "run_dir": str(run_dir),
            "own_dir": str(own_dir),
            "bridges": list(bridges),
            "datapath": datapath,
            "openflow": openflow,
            "ports": ports,
            "flows": flows,
        }
        super().__init__("topos.kernel.fastpath.process", settings, [netns_fd], "the fast path", patience_s=1.0)
        self._netns_fd = netns_fd
        self.why = ""
        """Why no faster way to forward was taken."""

    def choose(self) -> str:
        """The way to forward that the process has taken; ``MachineError`` if the kernel refuses what was asked for."""
        if "error" in self.told:
            raise MachineError(self.told["error"])
        self.why = self.told["why"]
        return str(self.told["datapath"])

    def attach(self, ports: Iterable[tuple[str, int, str, int]], speeds: Mapping[str, int], *, exchanged: bool) -> None:
        """Forward between ports (switch, OpenFlow number, name and index of the switch's end); returns when that works.

        ``speeds``: what OpenFlow tells of ports of Open vSwitch (``tap_name``), in kb/s; ``exchanged``: what it counts
        as received there was sent, and the other way.
        Open vSwitch has made its own ports already. ``MachineError`` if the kernel refuses.
        """
        with inside(self._netns_fd):
            index = {name: number for number, name in socket.if_nameindex()}
        kernel_ports = [KernelPort(switch, number, link, index[tap_name(link)]) for switch, number, _, link in ports]
        names = {tap_name(link): name for _, _, name, link in ports}
        self.tell("attach", ports=kernel_ports, names=names, speeds=dict(speeds), exchanged=exchanged)
        self.expect("attached", _ATTACH_S)

    def port_counts(self) -> dict[str, dict[int, PortCounts]]:
        """Counts of packets that were forwarded and dropped, by switch and port (OpenFlow number)."""
        return {
            switch: {
                int(port): PortCounts(Counts(*n[:2]), Counts(*n[2:4]), Counts(*n[4:])) for port, n in ports.items()
            }
            for switch, ports in self.call("counts", timeout_s=_ANSWER_S).items()
        }

    def keep_dark(self, seconds: float, switches: Sequence[str]) -> None:
        """Keep ports of ``switches`` dark for ``seconds`` after each change of their circuits, when this returns."""
        self.call("keep_dark", seconds=seconds, switches=list(switches), timeout_s=_ANSWER_S)

    def check(self) -> None:
        if self.has_ended:
            raise MachineError(f"the fast path ended with status {self.status()}; its message, if any, is above")
