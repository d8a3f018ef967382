"""Lets the names and the routes of hosts follow the circuits, so that ``ping g2`` leaves by the lane that is joined."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from railyard.errors import ConfigError, MachineError
from topos.kernel import wiring
from topos.kernel.emulation import HOSTS_FOLDER, Emulation
from topos.kernel.iperf import IperfLane, answers
from topos.kernel.namespaces import HostEnd
from topos.kernel.netlink import Netlink
from topos.plan import FabricPlan, HostPort
from topos.reach import Circuits, Joint, first_addresses, hosts_file, ping_line, routes, ways


class Reach:
    """The names and routes of the hosts of a started ``net``; ``follow`` says which circuits exist.

    Each host has a file ``hosts/HOST`` in the folder of the run, which is ``/etc/hosts`` for what runs on the host.
    Several processes may follow: which routes there are is recorded in that folder, too.

    ``plan`` is that of the fabric (None for a topology without: names then stand for the first address of a host).
    ``names`` has the first address of each host, ``ways`` the best way from a host to each peer that it reaches.
    """

    def __init__(self, net: Emulation) -> None:
        self._net = net
        self.plan: FabricPlan | None = None
        with suppress(ConfigError):
            self.plan = net.plan
        self.ways: dict[str, dict[str, Joint]] = {}
        self.names = first_addresses(self.plan) if self.plan else {host.name: str(host.IP()) for host in net.hosts}
        self._ports = {intf.name: str(intf.ip) for host in net.hosts for intf in host.intfList() if intf.ip}
        self.folder = net.run.path / HOSTS_FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def address(self, host: str, peer: str) -> str:
        """The address of the lane of ``peer`` that is joined to a lane of ``host``; its lane 0 if there is none."""
        joint = self.ways.get(host, {}).get(peer)
        return self.names[peer] if joint is None else joint.far.ip

    def follow(self, circuits: Circuits, *, force: bool = False) -> None:
        """Give all hosts names and routes for ``circuits``; ``force`` also sets routes again that a link took along."""
        wanted: dict[str, dict[str, str]] = {}
        if self.plan is not None:
            self.ways, wanted = ways(self.plan, circuits), routes(self.plan, circuits)
        with (self.folder / ".routes.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            had: dict[str, dict[str, str]] = json.loads(file.read() or "{}")
            own = [host for host in self._net.hosts if self._net.part.has(host.name)]
            have = {
                host.name: self._route(host, had.get(host.name, {}), wanted.get(host.name, {}), force) for host in own
            }
            file.truncate(0)
            file.write(json.dumps(have))
            for host in own:
                names = {host.name: self.names[host.name]}
                names |= {peer: self.address(host.name, peer) for peer in self.names}
                _write(self.folder / host.name, hosts_file(names, socket.gethostname(), self._ports))

    def ping_all(self, wait_s: float = 1.0) -> Iterator[str]:
        """Ping from every host to those that it reaches, and wait ``wait_s`` seconds: a line for each, and the sum."""
        assert self.plan is not None
        sent = lost = 0
        for host, found in self.ways.items():
            lanes = [IperfLane(self._end(joint.own), self._end(joint.far)) for joint in found.values()]
            answered = dict(zip(found, answers(lanes, wait_s), strict=True))
            yield ping_line(host, found, answered, self.plan.hosts)
            sent, lost = sent + len(found), lost + list(answered.values()).count(False)
        yield f"*** Results: {lost} of {sent} pings were lost"

    def _end(self, port: HostPort) -> HostEnd:
        return HostEnd(self._net.netns_fd(port.host), port.interface, port.ip)

    def _route(self, host: Any, had: Mapping[str, str], wanted: Mapping[str, str], force: bool) -> dict[str, str]:
        """Change the routes of a host from ``had`` to ``wanted``, and return them.

        Those that may be missing, since an interface that is down takes none, have no interface: the next call sets
        them again.
        """
        new = {ip: name for ip, name in wanted.items() if force or had.get(ip) != name}
        old = [ip for ip in had if ip not in wanted]
        if not new and not old:
            return dict(had)
        with Netlink(self._net.netns_fd(host.name)) as kernel:
            with suppress(MachineError):  # one that a link took along
                kernel.run(wiring.unroute_requests(old))
            try:
                kernel.run(wiring.peer_route(host.nameToIntf[name], ip) for ip, name in new.items())
            except MachineError:
                return {**wanted, **dict.fromkeys(new, "")}
        return dict(wanted)


def _write(path: Path, text: str) -> None:
    """Write a file in place, so that mounts of it show the new text; one that has the text is left alone."""
    path.touch(0o644)
    with path.open("r+") as file:
        if file.read() != text:
            file.seek(0)
            file.write(text)
            file.truncate()
