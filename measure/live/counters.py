"""Reads the counters of all interfaces and queues of a namespace in one netlink dump.

A dump of 64 links takes 1.3 ms with pyroute2's parser: 1.3 % of a core at 10 Hz.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, nla, nlmsg
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_GETSTATS, TC_H_ROOT
from pyroute2.netlink.rtnl.ifstatsmsg import ifstatsmsg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from railyard.errors import MachineError
from topos.kernel.namespaces import inside
from topos.kernel.netlink import Netlink

_RECEIVE_BYTES = 1 << 18
_AT_FILTERS = 0xFFFFFFF1
"""Parent of the queue that carries filters (clsact)."""
_OTHERHOST = struct.Struct("=Q")
_OTHERHOST_AT = 24 * 8
"""Offset of ``rx_otherhost_dropped``, the last field, in the kernel's ``struct rtnl_link_stats64``."""


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Counters of one interface since it was made; a TSO segment counts as one packet.

    ``otherhost``: IP packets received with the MAC address of another host and therefore dropped; None where the kernel
    does not count them (before 5.19).
    """

    rx_bytes: int
    tx_bytes: int
    dropped: int
    rx_packets: int = 0
    tx_packets: int = 0
    otherhost: int | None = None


class Counters(Netlink):
    """Reads counters through a netlink socket in one namespace (None: that of the caller).

    Raises ``MachineError`` if the kernel refuses a request.
    """

    def __init__(self, netns_fd: int | None = None) -> None:
        super().__init__(netns_fd)
        self._parser = MarshalRtnl()
        with nullcontext() if netns_fd is None else inside(netns_fd):
            self.names = dict(socket.if_nameindex())

    def links(self) -> dict[str, LinkCounters]:
        """Counters of every interface, by name; interfaces made after this object are left out."""
        found = {}
        for message in self._dump(RTM_GETSTATS, ifstatsmsg, {"filter_mask": 1}):
            name, stats = self.names.get(message["ifindex"]), message.get_attr("IFLA_STATS_LINK_64")
            if name is not None and stats is not None:
                dropped = stats["rx_dropped"] + stats["tx_dropped"]
                packets = stats["rx_packets"], stats["tx_packets"]
                found[name] = LinkCounters(stats["rx_bytes"], stats["tx_bytes"], dropped, *packets, _otherhost(stats))
        return found

    def queue_drops(self) -> dict[str, int]:
        """Packets that the root queue (qdisc) of every interface has dropped, by name; without queue none."""
        return self._drops(TC_H_ROOT)

    def filter_drops(self) -> dict[str, int]:
        """Packets that the filters of every interface have dropped (``topos.kernel.queues.lose``), by name."""
        return self._drops(_AT_FILTERS)

    def _drops(self, parent: int) -> dict[str, int]:
        found = {}
        for message in self._dump(RTM_GETQDISC, tcmsg, {}):
            name, stats = self.names.get(message["index"]), message.get_attr("TCA_STATS")
            if message["parent"] == parent and name is not None and stats is not None:
                found[name] = stats["drop"]
        return found

    def _dump(self, kind: int, message_class: type[nlmsg], fields: dict[str, int]) -> Iterator[nlmsg]:
        """Send a dump request and yield each message of the answer."""
        request = message_class()
        request.update(fields, header={"type": kind, "flags": NLM_F_REQUEST | NLM_F_DUMP})
        request.encode()
        self._socket.send(request.data)
        while True:
            for answer in self._parser.parse(self._socket.recv(_RECEIVE_BYTES)):
                if answer["header"]["type"] == NLMSG_DONE:
                    return
                if answer["header"]["error"] is not None:
                    number = answer["header"]["error"].code
                    raise MachineError(f"reading the interface counters failed ({os.strerror(number)})")
                yield answer


def _otherhost(stats: nla) -> int | None:
    """``rx_otherhost_dropped``, which pyroute2 does not parse; None on kernels without it."""
    at = 4 + _OTHERHOST_AT
    return _OTHERHOST.unpack_from(stats.data, stats.offset + at)[0] if stats.length >= at + _OTHERHOST.size else None
