"""Follows tagged UDP packets through a running fabric: where each of them passes, how long a hop takes, where it ends.

Packet sockets see a probe leave and enter every interface on its way, with the kernel's stamps; the fast path takes
packets behind them. A hop is from node to node: from the arrival at a node (at the first: from the sending) until the
arrival at the next. So it holds the forwarding, the wait for the rate of the port, and the link.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from railyard.errors import ConfigError, nearest
from topos.kernel.namespaces import inside
from topos.kernel.nodes import RailSwitch
from topos.kernel.packet_sockets import ETH_P_ALL, Tap, open_packets, received

PROBES = 10
LONGEST_S = 0.5
"""How long the last probe may be under way."""
_INTERVAL_S = 0.001
_ROOM_BYTES, _SO_ATTACH_FILTER = 16 << 20, 26
_LOAD, _UNLESS, _RETURN = 0x20, 0x15, 0x06
"""Instructions of a socket filter (linux/bpf_common.h): a word of the packet, a jump, how much of it to take."""
_TAG = struct.Struct("!50xI")
"""Headers of Ethernet, IPv4 and UDP, the token of the trace, and the number of the probe."""

Hop = tuple[str, str, float]
"""(where it leaves a node, where it reaches the next, seconds)."""
Sighting = tuple[int, str, bool]
"""(Unix time in ns, interface, whether the probe left it)."""


class End(NamedTuple):
    """One end of a link: an interface of a node, that at the other end, and its port (0 at a host)."""

    node: str
    interface: str
    far: str
    port: int = 0
    optical: bool = False

    def __str__(self) -> str:
        return f"{self.node} port {self.port}" if self.port else self.interface


@dataclass(frozen=True)
class PortPair:
    """The probes from one interface to another: hops with their median delays, or where they ended."""

    here: str
    there: str
    hops: tuple[Hop, ...] = ()
    arrived: int = 0
    ended: str = ""


@dataclass(frozen=True)
class Trace:
    """The ways from one host to another: ``probes`` probes were sent from each port of the one to each of the other."""

    here: str
    there: str
    probes: int
    pairs: tuple[PortPair, ...]

    def __str__(self) -> str:
        joined = [pair for pair in self.pairs if pair.hops]
        lines = [f"{self.here} to {self.there}: {len(joined)} of {len(self.pairs)} pairs of ports are joined"]
        for pair in joined:
            total = f"{sum(seconds for *_, seconds in pair.hops) * 1e6:.0f} us in {len(pair.hops)} hops"
            lines.append(f"  {pair.here} to {pair.there}: {total} ({pair.arrived} of {self.probes} probes)")
            lines += [f"  {seconds * 1e6:10.0f} us  {leaves} > {reaches}" for leaves, reaches, seconds in pair.hops]
        alone = {pair.here for pair in self.pairs} - {pair.here for pair in joined}
        return "\n".join([*lines, *dict.fromkeys(f"  {n.here}: {n.ended}" for n in self.pairs if n.here in alone)])


def pair_of(
    here: str, there: str, probes: Sequence[tuple[int, Sequence[Sighting]]], ends: Mapping[str, End]
) -> PortPair:
    """The pair of two interfaces by its probes; of each, when it was sent (Unix time in ns) and its sightings.

    ``ends`` are those of all links by interface.
    """
    ways = [way for sent_ns, seen in probes if (way := _way(here, there, sent_ns, seen, ends))]
    if not ways:
        return PortPair(here, there, ended=_ended(here, max(probes[-1][1], default=None), ends))
    alike = zip(*(way for way in ways if [hop[:2] for hop in way] == [hop[:2] for hop in ways[-1]]), strict=True)
    hops = tuple((*same[0][:2], median(seconds for *_, seconds in same)) for same in alike)
    return PortPair(here, there, hops, len(ways))


def _way(here: str, there: str, sent_ns: int, seen: Iterable[Sighting], ends: Mapping[str, End]) -> list[Hop]:
    """The hops of one probe, found from its end; none if it did not arrive at ``there``."""
    first: dict[str, tuple[int, str]] = {}
    for t_ns, name, left in sorted(seen):
        if not left and ends[name].node != ends[here].node:
            first.setdefault(ends[name].node, (t_ns, name))
    node, hops = ends[there].node, list[Hop]()
    while node in first and (hops or first[node][1] == there):
        t_ns, name = first.pop(node)
        far = ends[ends[name].far]
        node = far.node
        hops.insert(0, (str(far), str(ends[name]), (t_ns - first.get(node, (sent_ns, ""))[0]) / 1e9))
    return hops


def _ended(here: str, last: Sighting | None, ends: Mapping[str, End]) -> str:
    """In words, where a probe was seen last that did not arrive."""
    if last is None:
        return f"nothing leaves {here}; its link is down"
    _, name, left = last
    end = ends[name]
    if left:
        return f"{end} sends it to {ends[end.far]}" + (", where it does not arrive" if name == here else "")
    if end.port:
        return (
            f"{end} has no circuit that is up" if end.optical else f"{end.node} drops what comes in at port {end.port}"
        )
    return f"it arrives at {end}"


def trace(net: Any, here: str, there: str, probes: int = PROBES) -> Trace:
    """Send ``probes`` from every port of host ``here`` to every port of ``there`` in the same IP network, within 1 s.

    ``net`` is a running ``topos.kernel.emulation.Emulation``. Raises ``ConfigError`` for hosts that are unknown, the
    same, or have no network in common.
    """
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    pairs = _pairs(net, here, there)
    ends = _ends(net, [a for a, _ in pairs])
    token = os.urandom(8)
    with ExitStack() as stack:
        with inside(net.netns_fd(there)):
            listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        listener.bind(("", 0))  # so that the host does not answer that nobody listens
        udp = UDP(sport=listener.getsockname()[1], dport=listener.getsockname()[1])
        out = stack.enter_context(open_packets(Tap(net.netns_fd(here), ""), 0, _ROOM_BYTES))
        fds = (net.netns_fd(here), net.yard.netns_fd, net.netns_fd(there))
        taps = [stack.enter_context(_tap(fd, token)) for fd in fds]
        frames = [
            (a.name, bytes(Ether(src=a.mac, dst=b.mac) / IP(src=a.ip, dst=b.ip) / udp / (token + struct.pack("!I", n))))
            for n, (a, b) in enumerate(pairs * probes)
        ]
        found = _follow(out, frames, taps, ends)
    each = (pair_of(a.name, b.name, found[place :: len(pairs)], ends) for place, (a, b) in enumerate(pairs))
    return Trace(here, there, probes, tuple(each))


def _follow(
    out: socket.socket, frames: Iterable[tuple[str, bytes]], taps: Iterable[socket.socket], ends: Mapping[str, End]
) -> list[tuple[int, list[Sighting]]]:
    """Send each frame; when that was (Unix time in ns), and where it was seen."""
    found: list[tuple[int, list[Sighting]]] = []
    for name, frame in frames:
        found.append((time.time_ns(), []))
        with suppress(OSError):  # the interface is down, or its queue is full
            out.sendto(frame, (name, 0))
        time.sleep(_INTERVAL_S)
    buffer, arrived, end_t = memoryview(bytearray(_TAG.size)), set[int](), time.monotonic() + LONGEST_S
    while len(arrived) < len(found) and time.monotonic() < end_t:
        time.sleep(_INTERVAL_S)
        for _, t_ns, left, name in (packet for tap in taps for packet in received(tap, buffer)):
            number = _TAG.unpack(buffer)[0]
            if name in ends and number < len(found):
                found[number][1].append((t_ns, name, left))
                arrived |= set() if left or ends[name].port else {number}
    return found


def _tap(netns_fd: int, token: bytes) -> socket.socket:
    """A packet socket at all interfaces of a namespace that takes nothing but the probes with ``token``."""
    tap = open_packets(Tap(netns_fd, ""), ETH_P_ALL, _ROOM_BYTES, outgoing=True)
    high, low = struct.unpack("!II", token)
    first, second = [(_LOAD, 0, 0, 42), (_UNLESS, 0, 3, high)], [(_LOAD, 0, 0, 46), (_UNLESS, 0, 1, low)]
    lines = [*first, *second, (_RETURN, 0, 0, 1 << 16), (_RETURN, 0, 0, 0)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    tap.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(lines), ctypes.addressof(program)))
    deque(received(tap, memoryview(bytearray(_TAG.size))), 0)  # what came before the filter was there
    return tap


def _pairs(net: Any, here: str, there: str) -> list[tuple[Any, Any]]:
    """The interfaces of both hosts that are in one IP network, pair by pair."""
    hosts = [host.name for host in net.hosts]
    for name in (here, there):
        if name not in hosts:
            raise ConfigError(f"there is no host {name}{nearest(name, hosts)}")
    near, far = (net.nameToNode[name].intfList() for name in (here, there))
    pairs = [(a, b) for a in near for b in far if a.network is not None and a.network == b.network]
    if here == there or not pairs:
        raise ConfigError(f"a trace needs two hosts with a network in common; {here} and {there} have none")
    return pairs


def _ends(net: Any, start: Iterable[Any]) -> dict[str, End]:
    """Both ends of all links of the switches that the interfaces ``start`` lead to, by interface."""
    far_of = {end: far for link in net.links for end, far in ((link.intf1, link.intf2), (link.intf2, link.intf1))}
    todo, ends = [far_of[end] for end in start], dict[str, End]()
    while todo:
        end = todo.pop()
        if end.name in ends:
            continue
        node, switch = end.node, isinstance(end.node, RailSwitch)
        place = (node.ports[end], node.kind == "ocs") if switch else ()
        ends[end.name] = End(node.name, end.name, far_of[end].name, *place)
        todo += [far_of[end], *(node.intfList() if switch else ())]
    return ends
