"""Open vSwitch with a process for each group of switches that share no link.

One thread of an ``ovs-vswitchd`` serves all its userspace ports, so several processes use several cores.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from railyard.errors import ConfigError
from topos.kernel.namespaces import inside
from topos.kernel.netlink import Netlink, rename
from topos.kernel.ovs import USERSPACE_INTERFACE, Bridge, Datapath, PrivateOvs
from topos.switch_groups import Processes, check_processes, most_processes, switch_groups

_NAMED = 3
"""Switches that a message about a process names."""


class SwitchProcesses(PrivateOvs):
    """A private Open vSwitch that may have more processes, each with a database and bridges of its own.

    ``processes`` is how many at most; ``ConfigError`` for a number out of range. It is one process until ``share_out``.
    """

    def __init__(
        self,
        run_dir: Path,
        netns_fd: int,
        datapath: Datapath = "auto",
        on_child: Callable[[int], None] | None = None,
        processes: Processes = "auto",
    ) -> None:
        self._processes = check_processes(processes)
        super().__init__(run_dir, netns_fd, datapath, on_child)
        self._others: list[PrivateOvs] = []
        self._of: dict[str, PrivateOvs] = {}

    @property
    def instances(self) -> list[PrivateOvs]:
        """All instances of Open vSwitch, this one first."""
        return [self, *self._others]

    @property
    def databases(self) -> list[Path]:
        """The sockets of the databases of all instances."""
        return [ovs.database for ovs in self.instances]

    @property
    def datapath_pids(self) -> list[int]:
        """Process ids of all ``ovs-vswitchd``."""
        return [ovs.pids["ovs-vswitchd"] for ovs in self.instances]

    def environment_of(self, switch: str) -> dict[str, str]:
        """Environment variables with which ``ovs-vsctl`` and ``ovs-ofctl`` reach the instance of ``switch``."""
        return self._of.get(switch, self).environment

    def share_out(self, ports: Mapping[str, int], links: Iterable[tuple[str, str]], forwarding: str) -> None:
        """Start an instance for each further group of switches (``switch_groups``), before any bridge is added.

        ``forwarding`` is the datapath of the run: where it is not ``ovs``, or Open vSwitch's own datapath is that of
        the kernel, there is one process. Raises ``ConfigError`` if more are asked for there, ``MachineError`` if one
        does not start.
        """
        if forwarding != "ovs" or self.datapath == "system":
            if self._processes not in ("auto", 1):
                raise ConfigError(
                    "must be auto or 1 where the kernel forwards the packets; more take datapath ovs on a machine "
                    "without the kernel's datapath of Open vSwitch",
                    key="switch_processes",
                )
            most = 1
        else:
            most = most_processes(self._processes, len(os.sched_getaffinity(0)))
        groups = switch_groups(ports, links, most)
        for number, group in enumerate(groups, 1):
            ovs: PrivateOvs = self
            if number > 1:
                ovs = PrivateOvs(self.run_dir / f"ovs-{number}", self.netns_fd, "netdev", self._on_child)
                ovs.run_dir.mkdir(mode=0o700)
                self._others.append(ovs)
                ovs.start()
            if len(groups) > 1:
                more = f" and {len(group) - _NAMED} more" if len(group) > _NAMED else ""
                ovs.serves = f" of {', '.join(group[:_NAMED])}{more}"
            self._of |= dict.fromkeys(group, ovs)
            for name in group if forwarding == "ovs" and ovs.own_dir != self.run_dir else ():
                self._lead(f"{name}.mgmt", ovs)  # where ovs-ofctl looks for it

    def _lead(self, socket_name: str, ovs: PrivateOvs) -> None:
        """Let a socket of an instance be found in the run folder."""
        (self.run_dir / socket_name).symlink_to(ovs.own_dir / socket_name)

    def add(self, bridges: Sequence[Bridge]) -> None:
        """Make all bridges, each in its instance, and wait until these have them, as ``PrivateOvs.add``."""
        super().add([bridge for bridge in bridges if self._of.get(bridge.name, self) is self])
        for number, ovs in enumerate(self._others, 1):
            # each makes an interface of the same name when it gets its first bridge, and needs it no more after that
            with inside(self.netns_fd), Netlink() as kernel:
                index = socket.if_nametoindex(USERSPACE_INTERFACE)
                kernel.run([rename(index, USERSPACE_INTERFACE, f"{USERSPACE_INTERFACE}-{number}")])
            own = [bridge for bridge in bridges if self._of[bridge.name] is ovs]
            ovs.add(own)
            for bridge in own:
                self._lead(f"{bridge.name}.snoop", ovs)

    def forward(self, tables: Mapping[str, Mapping[str, int]]) -> None:
        """Add forwarding tables to the bridges, as ``PrivateOvs.forward``."""
        super().forward({name: table for name, table in tables.items() if self._of.get(name, self) is self})
        for ovs in self._others:
            ovs.forward({name: table for name, table in tables.items() if self._of[name] is ovs})

    @property
    def connections(self) -> int:
        """Connections of all instances to controllers that are established."""
        return super().connections + sum(ovs.connections for ovs in self._others)

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each daemon that was started: ``ovs-vswitchd``, and ``ovs-vswitchd-2`` of the second one."""
        others = enumerate(self._others, 2)
        return super().pids | {f"{name}-{number}": pid for number, ovs in others for name, pid in ovs.pids.items()}

    def check(self, patience_s: float = 0.0) -> None:
        """Raise ``MachineError`` if a daemon has ended, as ``PrivateOvs.check``."""
        super().check(patience_s)
        for ovs in self._others:
            ovs.check()

    def stop(self) -> None:
        """End all daemons; a second call does nothing. Raises ``MachineError`` as ``PrivateOvs.stop``."""
        for ovs in self._others:
            ovs.stop()
        super().stop()
