"""Accounts for the packets on the rails: sent, received, lost, and misdelivered to the wrong host.

The counters of all rail ports are read at the hosts' ends of the links, before and after the period of interest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from railyard.timeline import Event
from topos.plan import FabricPlan

if TYPE_CHECKING:
    from measure.live.counters import LinkCounters

Port = tuple[int, int]
"""(rank, lane) of a port on the rails."""
PortCounters: TypeAlias = "Mapping[Port, LinkCounters]"
"""Counters of every rail port at one moment, by port."""


@dataclass(frozen=True)
class Delivery:
    """Ethernet frames and bytes over all rail ports between two readings of the counters.

    A TSO segment counts as one packet. ``misdelivered``: IP packets received by a host whose MAC address they do not
    have and dropped there; None where the kernel does not count them (before 5.19). ``wrong_at``: the ports that
    received them. ``tunnels``: some links are tunnels between machines, whose packets may be split on the way and count
    14 bytes less, so that what was sent and what was received cannot be compared.
    """

    sent_packets: int
    received_packets: int
    sent_bytes: int
    received_bytes: int
    misdelivered: int | None
    wrong_at: tuple[Port, ...] = ()
    tunnels: bool = False

    @property
    def lost_packets(self) -> int | None:
        """Packets sent but not received: dropped at a dark port or a full queue, or in flight; None if unknown."""
        return None if self.tunnels else self.sent_packets - self.received_packets

    @property
    def lost_bytes(self) -> int:
        return self.sent_bytes - self.received_bytes


@dataclass(frozen=True)
class Payload:
    """Payload that the ranks of a job sent to and received from each other, in emulated bytes."""

    sent_bytes: int
    received_bytes: int

    @property
    def conserved(self) -> bool:
        return self.sent_bytes == self.received_bytes


def read_port_counters(plan: FabricPlan, netns_fds: Mapping[int, int]) -> PortCounters:
    """Read the counters of the rail ports of some ranks; ``netns_fds``: rank -> descriptor of its namespace.

    Needs root and takes about 0.3 ms per host.
    """
    from measure.live.counters import Counters

    found: dict[Port, LinkCounters] = {}
    for rank, fd in netns_fds.items():
        with Counters(fd) as counters:
            links = counters.links()
        found |= {(rank, port.lane): links[port.interface] for port in plan.rail_ports(rank)}
    return found


def delivery(before: PortCounters, after: PortCounters, *, tunnels: bool = False) -> Delivery:
    """The traffic between two readings of the counters of the same fabric; ``tunnels`` as of ``Delivery``."""
    wrong = {port: _between(before[port].otherhost, after[port].otherhost) for port in after}
    counted = [count for count in wrong.values() if count is not None]
    return Delivery(
        sent_packets=sum(after[p].tx_packets - before[p].tx_packets for p in after),
        received_packets=sum(after[p].rx_packets - before[p].rx_packets for p in after),
        sent_bytes=sum(after[p].tx_bytes - before[p].tx_bytes for p in after),
        received_bytes=sum(after[p].rx_bytes - before[p].rx_bytes for p in after),
        misdelivered=sum(counted) if len(counted) == len(wrong) else None,
        wrong_at=tuple(port for port, count in wrong.items() if count),
        tunnels=tunnels,
    )


def payload(events: Iterable[Event], groups: Iterable[str] = ()) -> Payload:
    """Payload of ``groups`` (none: of all) as the agents reported it.

    Sent bytes are those of ``communicate`` events, received bytes those of ``transfer`` events.
    """
    wanted = frozenset(groups)
    sent: dict[tuple[int, int, int], int] = {}
    received: dict[tuple[int, int, int], int] = {}
    for e in events:
        if e.source != "agent" or e.kind not in ("communicate", "transfer"):
            continue
        key = e["rank"], e["step"], e["op"]
        if e.kind == "transfer":
            received[key] = received.get(key, 0) + e["bytes"]
        elif not wanted or e["group"] in wanted:
            sent[key] = sent.get(key, 0) + e["payload_bytes"]
    return Payload(sum(sent.values()), sum(count for key, count in received.items() if not wanted or key in sent))


def _between(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
