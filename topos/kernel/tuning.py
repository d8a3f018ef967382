"""How a host's network stack is set so that TCP stands in for RoCE, and how a link is shaped.

RDMA NICs start at line rate, keep their rate after a pause and retransmit within milliseconds; TCP does
not, so windows start large, nothing is forgotten or remembered, and the retransmission time-out is small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil

from railyard.scale import ETHERNET_HEADER_BYTES, bucket_burst_bytes
from topos.kernel.netlink import RouteTuning

_LARGEST_PIECE_BYTES = 65536
_LARGE_SYSCTLS = {
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
    # A tail loss probe takes the wait for a token bucket for a loss; what RoCE loses it hears of at once.
    "net.ipv4.tcp_early_retrans": "0",
    # A host that asks whether its peer has room again (workloads.agent.transport.tcp_state) is answered however soon
    # it asks again.
    "net.ipv4.tcp_invalid_ratelimit": "0",
    "net.ipv4.tcp_rmem": "4096 8388608 67108864",
    "net.ipv4.tcp_wmem": "4096 4194304 67108864",
}
_PLAIN_SYSCTLS = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    # Two ports of a host share a subnet: each speaks and answers for its own address only.
    "net.ipv4.conf.all.arp_announce": "2",
    "net.ipv4.conf.default.arp_announce": "2",
    "net.ipv4.conf.all.arp_ignore": "1",
    "net.ipv4.conf.default.arp_ignore": "1",
}
YARD_SYSCTLS = {key: value for key, value in _PLAIN_SYSCTLS.items() if "ipv6" in key}


@dataclass(frozen=True)
class HostTuning:
    """Settings of every host of a net.

    ``min_tso_segments`` (``net.ipv4.tcp_min_tso_segs``): larger means fewer and coarser packets; None leaves the
    kernel's default. ``unsent_limit_bytes`` bounds what one socket may have in the queue of its own port (None:
    ``unsent_limit`` of the fastest port): the shorter that queue, the sooner TCP notices a loss, as RoCE does.
    """

    route: RouteTuning = field(default_factory=RouteTuning)
    min_tso_segments: int | None = None
    unsent_limit_bytes: int | None = None

    def sysctls(self, ports: Iterable[tuple[float, int]] = ()) -> dict[str, str]:
        """Sysctls of a host's namespace, for ``ports`` as (rate in Mb/s, MTU)."""
        values = _PLAIN_SYSCTLS | _LARGE_SYSCTLS
        if self.min_tso_segments is not None:
            values = values | {"net.ipv4.tcp_min_tso_segs": str(self.min_tso_segments)}
        limit = self.unsent_limit_bytes or max((unsent_limit(rate, mtu) for rate, mtu in ports), default=None)
        if limit is not None:
            values = values | {"net.ipv4.tcp_limit_output_bytes": str(limit)}
        return values


def route_tuning(route: RouteTuning, rate_mbps: float | None, mtu: int) -> RouteTuning:
    """``route`` with a retransmission time-out that does not end while bytes wait for a port of this rate, or their
    acknowledgement for the peer's: twice that. (With 25 ms, 8 hosts with two ports of 25 Mb/s that sent both ways had
    each of their 16 connections send a segment again when the queues were full for the first time, with 50 ms 12 of
    them, with 67 ms none.)
    """
    if rate_mbps is None:
        return route
    waits_ms = unsent_limit(rate_mbps, mtu) / (rate_mbps * 1e6 / 8) * 1e3
    return replace(route, rto_min_ms=max(route.rto_min_ms, ceil(2 * 2 * waits_ms)))


def largest_piece_bytes(rate_mbps: float, mtu: int) -> int:
    """What a host's stack may hand its port in one piece (TSO): what its bucket holds, so that it is never cut up.

    A bucket cuts what is larger than itself into single frames, and each costs the switch as much as a large piece: a
    ring all-reduce of 64 hosts x 50 Mb/s on two cores took 1.06 of the ideal with pieces of 64 kB and 1.03 so.
    """
    return min(_LARGEST_PIECE_BYTES, bucket_burst_bytes(rate_mbps, mtu) * 24 // 25)


def unsent_limit(rate_mbps: float, mtu: int) -> int:
    """What one socket may have queued at a port: three of its largest pieces, so that the port never runs dry."""
    return 3 * largest_piece_bytes(rate_mbps, mtu)


def queue_bytes(rate_mbps: float, mtu: int) -> int:
    """Queue before a bucket, a second deep: never the place of a loss.

    At a host TCP stops at its own limit first; at a switch's port it stands for the lossless Ethernet (priority
    flow control) that RDMA fabrics run on, where senders that meet wait instead of losing packets.
    """
    return max(1000 * (mtu + ETHERNET_HEADER_BYTES), round(rate_mbps * 1e6 / 8))


def switch_burst_bytes(rate_mbps: float, mtu: int) -> int:
    """Depth of the bucket at a switch's port: four times the host's, so that one sender alone does not queue there.

    The rate is the host's, so senders that meet share it. Measured with 16 hosts of 100 Mb/s in a ring on a busy
    machine, slowest host: 97.9 % of the line rate with twice the depth, 98.9 % with four times, 99.3 % without.
    """
    return 4 * bucket_burst_bytes(rate_mbps, mtu)


def largest_forwarded_bytes(rate_mbps: float, mtu: int) -> int:
    """What the bucket of a link between two switches holds, so that no piece is cut up on its way over it."""
    return min(_LARGEST_PIECE_BYTES, switch_burst_bytes(rate_mbps, mtu) * 24 // 25)
