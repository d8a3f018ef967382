"""Settings of the hosts' network stacks with which TCP emulates RoCE, and of the shaping of links.

RDMA NICs start at line rate, keep their rate after a pause and retransmit within milliseconds. TCP does not, so its
windows start large, are kept after a pause, take nothing over from earlier connections, and the retransmission
time-out is small.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from railyard.scale import ETHERNET_HEADER_BYTES, bucket_burst_bytes, goodput_share

_LARGEST_SEGMENT_BYTES = 65536
_RTO_MIN_MS = 25
_LARGE_SYSCTLS = {
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
    # A tail loss probe mistakes the wait for a token bucket for a loss; RoCE learns of losses at once.
    "net.ipv4.tcp_early_retrans": "0",
    # Answer every window probe of a peer (workloads.agent.transport.sockets), however soon it follows the last.
    "net.ipv4.tcp_invalid_ratelimit": "0",
    "net.ipv4.tcp_rmem": "4096 8388608 67108864",
    "net.ipv4.tcp_wmem": "4096 4194304 67108864",
}
_PLAIN_SYSCTLS = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    # The ports of a host share a subnet: each must send and answer ARP for its own address only.
    "net.ipv4.conf.all.arp_announce": "2",
    "net.ipv4.conf.default.arp_announce": "2",
    "net.ipv4.conf.all.arp_ignore": "1",
    "net.ipv4.conf.default.arp_ignore": "1",
}
YARD_SYSCTLS = {key: value for key, value in _PLAIN_SYSCTLS.items() if "ipv6" in key}


def host_sysctls(ports: Iterable[tuple[float, int, int]]) -> dict[str, str]:
    """Sysctls of the namespace of a host with these ``ports``, each (rate in Mb/s, MTU, least depth of its bucket)."""
    return _PLAIN_SYSCTLS | _LARGE_SYSCTLS | output_limit(ports)


def output_limit(ports: Iterable[tuple[float, int, int]]) -> dict[str, str]:
    """The sysctl that limits the bytes that one socket may have in the queue of its own port, for a host's ``ports``.

    It is the ``unsent_limit`` of the fastest one; the shorter that queue, the sooner TCP detects a loss, as RoCE does.
    """
    limits = [unsent_limit(*port) for port in ports]
    return {"net.ipv4.tcp_limit_output_bytes": str(max(limits))} if limits else {}


def rto_min_ms(rate_mbps: float | None, mtu: int, burst: int = 0) -> int:
    """Minimum retransmission time-out of a port in ms: 25, or what is long enough for a port of this rate.

    The time-out is at least twice the time that bytes may wait for the port plus their acknowledgement for the peer's
    port. With 25 ms, on 8 hosts with two ports of 25 Mb/s that sent in both directions, each of the 16 connections
    sent a segment again when the queues were full for the first time; with 50 ms 12 of them did, with 67 ms none.
    """
    if rate_mbps is None:
        return _RTO_MIN_MS
    waits_ms = unsent_limit(rate_mbps, mtu, burst) / (rate_mbps * 1e6 / 8) * 1e3
    return max(_RTO_MIN_MS, ceil(2 * 2 * waits_ms))


def largest_segment_bytes(rate_mbps: float, mtu: int, burst: int = 0, overhead: int = 0) -> int:
    """Largest segment, in bytes, that a host's stack may pass to its port (TSO): no more than its bucket holds.

    A bucket splits a larger segment into single frames, and each frame costs the switch as much as a large segment: a
    ring all-reduce of 64 hosts x 50 Mb/s on two cores took 1.06 of the ideal time with segments of 64 kB and 1.03 with
    this limit.
    """
    share = min(24 / 25, goodput_share(mtu, overhead))
    return min(_LARGEST_SEGMENT_BYTES, int(bucket_burst_bytes(rate_mbps, mtu, burst) * share))


def unsent_limit(rate_mbps: float, mtu: int, burst: int = 0) -> int:
    """Bytes that one socket may have queued at a port: three of its largest segments, so that it stays busy."""
    return 3 * largest_segment_bytes(rate_mbps, mtu, burst)


def queue_bytes(rate_mbps: float, mtu: int) -> int:
    """Length in bytes of the queue of a token bucket: one second at its rate, so that no packet is lost in it.

    At a host, TCP stops at its own limit first. At a switch's port the queue emulates the lossless Ethernet (priority
    flow control) of RDMA fabrics, where competing senders wait instead of losing packets.
    """
    return max(1000 * (mtu + ETHERNET_HEADER_BYTES), round(rate_mbps * 1e6 / 8))


def switch_burst_bytes(rate_mbps: float, mtu: int, burst: int = 0) -> int:
    """Depth in bytes of the bucket at a switch's port: four times the host's, so that a single sender never queues.

    The rate is that of the host, so competing senders share it. Measured with 16 hosts of 100 Mb/s in a ring on a busy
    machine, the slowest host reached 97.9 % of the line rate with twice the depth, 98.9 % with four times and 99.3 %
    without a bucket.
    """
    return max(4 * bucket_burst_bytes(rate_mbps, mtu), burst)


def largest_forwarded_bytes(rate_mbps: float, mtu: int) -> int:
    """Largest segment, in bytes, that the bucket of a link between two switches passes without splitting it."""
    return min(_LARGEST_SEGMENT_BYTES, switch_burst_bytes(rate_mbps, mtu) * 24 // 25)
