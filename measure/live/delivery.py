"""The ledger of the rails: what every port sent and received, and what came out at a host that it was not meant for.

Read at the hosts' ends of the links, before and after whatever is to be accounted for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from measure.live.counters import Counters, LinkCounters
from railyard.timeline import Event
from topos.plan import FabricPlan

_PAUSE_S = 0.01
Port = tuple[int, int]
"""(rank, lane) of a port on the rails."""
Ledger = Mapping[Port, LinkCounters]
"""Counters of every rail port at one moment."""


@dataclass(frozen=True)
class Delivery:
    """What the rails did between two ledgers: Ethernet frames and their bytes, over all ports.

    A piece of TSO counts as one packet. ``misdelivered``: IP packets that came in at a host whose MAC they do not bear,
    so that it dropped them; None where the kernel does not count these (before 5.19). ``wrong_at``: the ports at which
    they came in.
    """

    sent_packets: int
    received_packets: int
    sent_bytes: int
    received_bytes: int
    misdelivered: int | None
    wrong_at: tuple[Port, ...] = ()

    @property
    def lost_packets(self) -> int:
        """Packets that no port received: they met a dark port, a full queue, or were still under way."""
        return self.sent_packets - self.received_packets

    @property
    def lost_bytes(self) -> int:
        """The same in bytes."""
        return self.sent_bytes - self.received_bytes


@dataclass(frozen=True)
class Payload:
    """Payload of a job on one network (emulated bytes): what its ranks sent and received of each other."""

    sent_bytes: int
    received_bytes: int

    @property
    def conserved(self) -> bool:
        """Whether every byte that left has arrived, once."""
        return self.sent_bytes == self.received_bytes


def read(plan: FabricPlan, netns_fds: Sequence[int]) -> Ledger:
    """The ledger now; ``netns_fds``: descriptor of each rank's namespace, by rank. Needs root; about 0.3 ms a host."""
    found: dict[Port, LinkCounters] = {}
    for rank, fd in enumerate(netns_fds):
        with Counters(fd) as counters:
            links = counters.links()
        for switch, port in plan.host_ports(rank):
            if switch.network == "rail":
                found[rank, port.lane] = links[port.interface]
    return found


def read_at_rest(plan: FabricPlan, netns_fds: Sequence[int], longest_s: float = 0.5) -> Ledger:
    """The ledger when no port sends or receives any more: two readings 10 ms apart are the same; after ``longest_s``
    the last one, as it is.
    """
    end = time.monotonic() + longest_s
    last, now = None, read(plan, netns_fds)
    while now != last and time.monotonic() < end:
        time.sleep(_PAUSE_S)
        last, now = now, read(plan, netns_fds)
    return now


def delivery(before: Ledger, after: Ledger) -> Delivery:
    """What happened between two ledgers of the same fabric."""
    wrong = {port: _between(before[port].otherhost, after[port].otherhost) for port in after}
    counted = [count for count in wrong.values() if count is not None]
    return Delivery(
        sent_packets=sum(after[p].tx_packets - before[p].tx_packets for p in after),
        received_packets=sum(after[p].rx_packets - before[p].rx_packets for p in after),
        sent_bytes=sum(after[p].tx_bytes - before[p].tx_bytes for p in after),
        received_bytes=sum(after[p].rx_bytes - before[p].rx_bytes for p in after),
        misdelivered=sum(counted) if len(counted) == len(wrong) else None,
        wrong_at=tuple(port for port, count in wrong.items() if count),
    )


def payload(events: Iterable[Event], groups: Iterable[str] = ()) -> Payload:
    """Payload by the agents' own account, of these groups (none: of all): ``communicate`` against ``transfer`` events.

    Senders count what they put on their connections, receivers what has come in of each transfer.
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
