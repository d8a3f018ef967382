"""Bytes on the link between the root server and the trunk."""

from __future__ import annotations

from typing import NamedTuple

from measure.live.counters import Counters
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES

INTERFACE = "root-trunk"
_HEADERS = ETHERNET_HEADER_BYTES + TCP_IP_HEADER_BYTES


class RootBytes(NamedTuple):
    """Bytes that the root's port sent and received, without the headers of Ethernet, IP and TCP.

    A TSO segment counts as one packet, so bytes with headers would depend on how the kernel cut the stream. Bytes that
    were sent twice count twice.
    """

    sent: int
    received: int

    def since(self, before: RootBytes) -> RootBytes:
        """The bytes since an earlier reading."""
        return RootBytes(self.sent - before.sent, self.received - before.received)


def read_root(root_fd: int) -> RootBytes:
    """The bytes so far; ``root_fd`` is the descriptor of the namespace of the root's host."""
    with Counters(root_fd) as counters:
        port = counters.links()[INTERFACE]
    return RootBytes(port.tx_bytes - port.tx_packets * _HEADERS, port.rx_bytes - port.rx_packets * _HEADERS)
