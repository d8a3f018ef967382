"""Reads the counters of all interfaces and queues of a namespace in one netlink dump.

The counters of interfaces are unpacked here: pyroute2's parser takes 20 us for an interface, and a fabric of 256 links
has a thousand, which are read ten times a second.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, nlmsg
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_GETSTATS, TC_H_ROOT
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from railyard.errors import MachineError
from topos.kernel.namespaces import inside
from topos.kernel.netlink import Netlink, attributes, messages

_RECEIVE_BYTES = 1 << 18
_AT_FILTERS = 0xFFFFFFF1
"""Parent of the queue that carries filters (clsact)."""
_HEADER, _STATS = struct.Struct("=IHHII"), struct.Struct("=BxxxiI")
"""``struct nlmsghdr``, ``struct if_stats_msg`` (family, index, mask) and ``struct nlattr`` (linux/netlink.h,
linux/if_link.h)."""
_COUNTERS, _OTHERHOST = struct.Struct("=8Q"), struct.Struct("=Q")
_OTHERHOST_AT = 24 * 8
"""Offset of ``rx_otherhost_dropped``, the last field, in the kernel's ``struct rtnl_link_stats64``, which begins with
packets, bytes, errors and drops, each received and sent."""
_ERROR = struct.Struct("=i")
_LINK_64 = 1
"""IFLA_STATS_LINK_64, as an attribute; the bit of that attribute is set in the mask of the request."""


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
        size = _HEADER.size + _STATS.size
        header = _HEADER.pack(size, RTM_GETSTATS, NLM_F_REQUEST | NLM_F_DUMP, 0, 0)
        self._socket.send(header + _STATS.pack(0, 0, 1 << (_LINK_64 - 1)))
        found: dict[str, LinkCounters] = {}
        while True:
            for message in messages(self._socket.recv(_RECEIVE_BYTES)):
                kind = _HEADER.unpack_from(message)[1]
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    raise _refused(-_ERROR.unpack_from(message, _HEADER.size)[0])
                name = self.names.get(_STATS.unpack_from(message, _HEADER.size)[1])
                counters = link_counters(message, size) if name is not None else None
                if name is not None and counters is not None:
                    found[name] = counters

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
        request = message_class()
        request.update(fields, header={"type": kind, "flags": NLM_F_REQUEST | NLM_F_DUMP})
        request.encode()
        self._socket.send(request.data)
        while True:
            for answer in self._parser.parse(self._socket.recv(_RECEIVE_BYTES)):
                if answer["header"]["type"] == NLMSG_DONE:
                    return
                if answer["header"]["error"] is not None:
                    raise _refused(answer["header"]["error"].code)
                yield answer


def _refused(number: int) -> MachineError:
    return MachineError(f"reading the interface counters failed ({os.strerror(number)})")


def link_counters(message: bytes, at: int) -> LinkCounters | None:
    """The counters in a message of ``RTM_GETSTATS`` whose attributes begin at ``at``; None if it has none."""
    for kind, start, end in attributes(message, at, len(message)):
        if kind == _LINK_64:
            rx_packets, tx_packets, rx, tx, _, _, *dropped = _COUNTERS.unpack_from(message, start)
            has_otherhost = end - start >= _OTHERHOST_AT + _OTHERHOST.size
            otherhost = _OTHERHOST.unpack_from(message, start + _OTHERHOST_AT)[0] if has_otherhost else None
            return LinkCounters(rx, tx, sum(dropped), rx_packets, tx_packets, otherhost)
    return None
