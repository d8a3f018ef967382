"""The links of a fabric as the model sees them: each port sends one thing after another, at its rate."""

from __future__ import annotations

from math import ceil

from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from topos.plan import FabricPlan
from workloads.paths import NETWORK_OF_DOMAIN
from workloads.program import Domain

End = tuple[str, int, int]
"""(network, rank, lane): one port of a host."""


def wire_bytes(payload: int, mtu: int) -> int:
    """What a link's token bucket counts for a TCP payload: full packets, each with its headers, and no acks."""
    if payload <= 0:
        return 0
    packets = ceil(payload / (mtu - TCP_IP_HEADER_BYTES))
    return payload + packets * (TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES)


class Wires:
    """Every port of a plan, full duplex. Times are wall-clock seconds, sizes emulated bytes."""

    def __init__(self, plan: FabricPlan) -> None:
        self._mtu = plan.mtu
        self._rate: dict[End, float] = {
            (switch.network, port.rank, port.lane): port.rate_mbps * 1e6 / 8
            for switch in plan.switches
            for port in switch.ports
        }
        self._sends_until: dict[End, float] = {}
        self._receives_until: dict[End, float] = {}

    def send(self, now: float, domain: Domain, src: tuple[int, int], dst: tuple[int, int], payload: int) -> float:
        """When the last byte of ``payload`` from port ``src`` to port ``dst`` (rank, lane) arrives (``book``)."""
        return self.book(now, domain, src, dst, payload)[1]

    def book(
        self, now: float, domain: Domain, src: tuple[int, int], dst: tuple[int, int], payload: int
    ) -> tuple[float, float]:
        """When the first and the last byte of ``payload`` from port ``src`` to port ``dst`` (rank, lane) arrive.

        It starts when both ports are free. On a network that the plan does not have (a front-end for scalars, say)
        bytes take no time.
        """
        network = NETWORK_OF_DOMAIN[domain]
        out, into = (network, *src), (network, *dst)
        if out not in self._rate or into not in self._rate:
            return now, now
        start = max(now, self._sends_until.get(out, 0.0), self._receives_until.get(into, 0.0))
        end = start + wire_bytes(payload, self._mtu) / min(self._rate[out], self._rate[into])
        self._sends_until[out] = self._receives_until[into] = end
        return start, end
