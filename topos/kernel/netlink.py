"""Sets up interfaces, addresses, routes and neighbours, with many requests per call to the kernel.

The messages are pyroute2's; this module sends up to 64 of them at a time. A neighbour is encoded once, and only the
index is written for each interface that needs it: a rail of 64 GPUs with two ports has 16,000 neighbour entries, and
encoding one takes 69 us where writing an index takes 0.5 us.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Interface
from itertools import islice
from typing import Any, TypeVar

from pyroute2 import netlink
from pyroute2.netlink import rtnl
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.marshal import Marshal
from pyroute2.netlink.rtnl.fibmsg import FR_ACT_TO_TBL, fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import IFA_F_NOPREFIXROUTE, ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT, ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from railyard.errors import MachineError
from topos.kernel.namespaces import inside

LO_INDEX = 1
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_NEW = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
_REPLACE = netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE
MAIN_TABLE = 254
_RTAX_RTO_MIN = 13
_INITIAL_WINDOW = 200
"""Segments that a connection sends, and accepts, at once when it starts."""
_FLAGS_AT, _SEQUENCE_AT, _NEIGHBOUR_INDEX_AT = 6, 8, 20
_LENGTH, _ATTRIBUTE = struct.Struct("=I"), struct.Struct("=HH")
_HEADER_BYTES = 16
_KIND_AND_SEQUENCE = struct.Struct("=4xHxxI")
_TOGETHER = 64
"""Messages per call."""
_ROOM_BYTES = 8 << 20
"""Room for the answers to one call, where others would be lost: 64 changes of 32 actions were answered by 337 kB. And
for the call, where 64 queues have tables of 16 kB."""


@dataclass(frozen=True, slots=True)
class NetlinkRequest:
    """One encoded netlink message, and a description of it for errors (``what``)."""

    packed: bytes | bytearray
    what: str


def messages(received: bytes) -> Iterator[bytes]:
    """The netlink messages, with headers, that one call received; ``MachineError`` for one that is cut short."""
    at = 0
    while at < len(received):
        length = _LENGTH.unpack_from(received, at)[0] if at + _HEADER_BYTES <= len(received) else 0
        if not _HEADER_BYTES <= length <= len(received) - at:
            raise MachineError("a netlink message of the kernel is cut short; run it again")
        yield received[at : at + length]
        at += length + 3 & ~3


def attributes(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(kind, start, end) of the attributes in ``message[start:end]``, where their payloads are.

    ``MachineError`` for an attribute that is cut short.
    """
    while start < end:
        length, kind = _ATTRIBUTE.unpack_from(message, start) if start + 4 <= len(message) else (0, 0)
        if not 4 <= length <= end - start:
            raise MachineError("an attribute of a netlink message of the kernel is cut short; run it again")
        yield kind, start + 4, start + length
        start += length + 3 & ~3


def _nest(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in the form of pyroute2, without those that are None."""
    return {"attrs": [(name, value) for name, value in attributes.items() if value is not None]}


def _request(
    what: str, kind: int, flags: int, message: netlink.nlmsg, fields: Mapping[str, int], attributes: Mapping[str, Any]
) -> NetlinkRequest:
    message.update(fields, **_nest(attributes), header={"type": kind, "flags": netlink.NLM_F_REQUEST | flags})
    message.encode()
    return NetlinkRequest(bytes(message.data), what)


@dataclass(frozen=True, slots=True)
class VethEnd:
    """One end of a veth pair: its name and index in namespace ``netns_fd`` (None: that of the socket)."""

    name: str
    index: int
    mac: str | None = None
    netns_fd: int | None = None

    def attributes(self, mtu: int) -> dict[str, Any]:
        """Attributes of this end for a netlink message; the index is a field and not included."""
        at = {"IFLA_ADDRESS": self.mac, "IFLA_NET_NS_FD": self.netns_fd}
        return {"IFLA_IFNAME": self.name, "IFLA_MTU": mtu} | at


def veth(end: VethEnd, peer: VethEnd, mtu: int, group: int = 0) -> NetlinkRequest:
    """Request a veth pair of MTU ``mtu`` bytes in interface group ``group`` (see ``delete_group``).

    ``end`` is up at once; ``peer`` must be set up later, since the kernel opens it before the two are joined.
    """
    data = _nest({"VETH_INFO_PEER": {"index": peer.index, **_nest(peer.attributes(mtu))}})
    info = _nest({"IFLA_INFO_KIND": "veth", "IFLA_INFO_DATA": data})
    fields = {"index": end.index, "flags": IFF_UP, "change": IFF_UP}
    attributes = end.attributes(mtu) | {"IFLA_GROUP": group, "IFLA_LINKINFO": info}
    what = f"making the link {end.name} - {peer.name}"
    return _request(what, rtnl.RTM_NEWLINK, _NEW, ifinfmsg(), fields, attributes)


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN tunnel to another machine, of one link: its identifier and the addresses of both machines.

    ``number`` is the VXLAN network identifier (VNI, RFC 7348), ``udp_port`` that of the outer packets.
    """

    number: int
    local: str
    remote: str
    udp_port: int


def tunnel(end: VethEnd, to: Tunnel, mtu: int, group: int = 0, *, up: bool = False) -> NetlinkRequest:
    """Request the end of a link whose other end is on another machine, as a VXLAN device of MTU ``mtu`` bytes.

    The outer packets leave from the namespace of the netlink socket, whichever namespace ``end`` is in. The device has
    one peer and learns no addresses. It is refused (file exists) where that namespace has the identifier already.
    """
    family = "" if ":" not in to.local else "6"
    data = _nest(
        {
            "IFLA_VXLAN_ID": to.number,
            f"IFLA_VXLAN_LOCAL{family}": to.local,
            f"IFLA_VXLAN_GROUP{family}": to.remote,
            "IFLA_VXLAN_PORT": to.udp_port,
            "IFLA_VXLAN_LEARNING": 0,
            "IFLA_VXLAN_DF": 1,  # a packet that is too long for the network is lost, not split without a word
            "IFLA_VXLAN_UDP_ZERO_CSUM6_TX": 1 if family else None,
            "IFLA_VXLAN_UDP_ZERO_CSUM6_RX": 1 if family else None,
        }
    )
    info = _nest({"IFLA_INFO_KIND": "vxlan", "IFLA_INFO_DATA": data})
    fields = {"index": end.index, "flags": IFF_UP if up else 0, "change": IFF_UP}
    attributes = end.attributes(mtu) | {"IFLA_GROUP": group, "IFLA_LINKINFO": info}
    what = f"making the tunnel {to.number} of {end.name} to {to.remote}"
    return _request(what, rtnl.RTM_NEWLINK, _NEW, ifinfmsg(), fields, attributes)


def link_up(index: int, name: str, largest_bytes: int | None = None, *, single: bool = False) -> NetlinkRequest:
    """Set an interface up; ``largest_bytes`` limits the size of the segments that the stack passes to it (TSO).

    With ``single`` they are single frames, also those that come from elsewhere: larger ones are split before.
    """
    fields = {"index": index, "flags": IFF_UP, "change": IFF_UP}
    attributes = {"IFLA_GSO_MAX_SIZE": largest_bytes, "IFLA_GSO_MAX_SEGS": 1 if single else None}
    return _request(f"setting {name} up", rtnl.RTM_NEWLINK, 0, ifinfmsg(), fields, attributes)


def link_down(index: int, name: str) -> NetlinkRequest:
    """Set an interface down; its peer loses the carrier, and its routes and neighbours are dropped."""
    fields = {"index": index, "flags": 0, "change": IFF_UP}
    return _request(f"setting {name} down", rtnl.RTM_NEWLINK, 0, ifinfmsg(), fields, {})


def set_carrier(index: int, name: str, on: bool) -> NetlinkRequest:
    """Give an interface that has no wire, as a tap, a carrier or take it away.

    Whoever watches the interface is told at once: of the carrier of a tap alone the kernel tells once a second, but of
    the operational state (dormant without carrier) immediately.
    """
    attributes = {"IFLA_CARRIER": int(on), "IFLA_OPERSTATE": "UP" if on else "DORMANT"}
    what = f"setting the carrier of {name} {'on' if on else 'off'}"
    return _request(what, rtnl.RTM_NEWLINK, 0, ifinfmsg(), {"index": index}, attributes)


def set_group(index: int, name: str, group: int) -> NetlinkRequest:
    """Put an interface into an interface group, for ``delete_group``."""
    attributes = {"IFLA_GROUP": group}
    return _request(f"grouping {name}", rtnl.RTM_NEWLINK, 0, ifinfmsg(), {"index": index}, attributes)


def delete_group(group: int) -> NetlinkRequest:
    """Delete all interfaces of a group at once, and the peers of those that are veths."""
    return _request("deleting the links", rtnl.RTM_DELLINK, 0, ifinfmsg(), {}, {"IFLA_GROUP": group})


def address(index: int, name: str, ip: str, prefix: int) -> NetlinkRequest:
    """Give an interface an IPv4 address, without the route that the kernel would add."""
    fields = {"family": socket.AF_INET, "prefixlen": prefix, "index": index}
    attributes = {"IFA_LOCAL": ip, "IFA_ADDRESS": ip, "IFA_FLAGS": IFA_F_NOPREFIXROUTE}
    what = f"giving {name} the address {ip}/{prefix}"
    return _request(what, rtnl.RTM_NEWADDR, _NEW, ifaddrmsg(), fields, attributes)


def _tcp_settings(rto_min_ms: int, transport: str | None) -> dict[str, Any]:
    """TCP settings of a route: large initial windows, quick acknowledgements, minimum retransmission time-out in ms,
    congestion control.

    The time-out must exceed the time that packets wait in the queue of a port (``topos.kernel.tuning.rto_min_ms``).
    """
    windows = {"RTAX_INITCWND": _INITIAL_WINDOW, "RTAX_INITRWND": _INITIAL_WINDOW}
    rto = {"RTAX_LOCK": 1 << _RTAX_RTO_MIN, "RTAX_RTO_MIN": rto_min_ms}  # without the lock TCP ignores it
    return _nest(windows | rto | {"RTAX_QUICKACK": 1, "RTAX_CC_ALGO": transport})


def route(
    index: int,
    ip: str,
    prefix: int,
    metric: int,
    rto_min_ms: int | None,
    table: int = MAIN_TABLE,
    to: str | None = None,
    *,
    transport: str | None = None,
    before_others: bool = False,
) -> NetlinkRequest:
    """Route the network of ``ip``/``prefix`` through interface ``index``, with source address ``ip``.

    With ``to`` it is the route to that address alone, whatever ``prefix`` is. It takes the place of a route to the same
    with the same ``metric``, or is put ``before_others``, which stay: the kernel discards packets that have a route
    which is gone, as those of a UDP sender that waits for room have. ``rto_min_ms`` is the minimum retransmission
    time-out in ms, which comes with other TCP settings for fast starts, among them the congestion control
    ``transport``; None leaves the kernel's defaults.
    """
    fields = {
        "family": socket.AF_INET,
        "dst_len": 32 if to else prefix,
        "proto": rtnl.rt_proto["static"],
        "scope": rtnl.rt_scope["link"],
        "type": rtnl.rt_type["unicast"],
    }
    attributes = {
        "RTA_DST": to or str(IPv4Interface(f"{ip}/{prefix}").network.network_address),
        "RTA_OIF": index,
        "RTA_PRIORITY": metric,
        "RTA_PREFSRC": ip,
        "RTA_TABLE": table,
        "RTA_METRICS": None if rto_min_ms is None else _tcp_settings(rto_min_ms, transport),
    }
    what = f"routing {to or f'the network of {ip}/{prefix}'} over interface {index}"
    flags = netlink.NLM_F_CREATE if before_others else _REPLACE
    return _request(what, rtnl.RTM_NEWROUTE, flags, rtmsg(), fields, attributes)


def remove_route(to: str, metric: int) -> NetlinkRequest:
    """Remove the route to the address ``to`` alone, with this ``metric``; refused where there is none."""
    fields = {"family": socket.AF_INET, "dst_len": 32, "scope": rtnl.rt_scope["nowhere"]}
    attributes = {"RTA_DST": to, "RTA_PRIORITY": metric, "RTA_TABLE": MAIN_TABLE}
    return _request(f"removing the route to {to}", rtnl.RTM_DELROUTE, 0, rtmsg(), fields, attributes)


def source_rule(ip: str, table: int) -> NetlinkRequest:
    """Route packets with source ``ip`` by ``table`` (for answers of a listener that is not bound to a device)."""
    fields = {"family": socket.AF_INET, "src_len": 32, "action": FR_ACT_TO_TBL}
    attributes = {"FRA_SRC": ip, "FRA_PRIORITY": 1000 + table, "FRA_TABLE": table}
    return _request(f"adding the rule for source {ip}", rtnl.RTM_NEWRULE, _NEW, fibmsg(), fields, attributes)


@lru_cache(maxsize=1 << 14)
def _neighbour(ip: str, mac: str) -> NetlinkRequest:
    fields = {"family": socket.AF_INET, "state": NUD_PERMANENT}
    attributes = {"NDA_DST": ip, "NDA_LLADDR": mac}
    return _request(f"adding the neighbour {ip}", rtnl.RTM_NEWNEIGH, _REPLACE, ndmsg(), fields, attributes)


def neighbour(index: int, ip: str, mac: str) -> NetlinkRequest:
    template = _neighbour(ip, mac)
    packed = bytearray(template.packed)
    struct.pack_into("=i", packed, _NEIGHBOUR_INDEX_AT, index)
    return NetlinkRequest(packed, template.what)


_N = TypeVar("_N", bound="Netlink")


class Netlink:
    """A netlink routing socket in one namespace (None: that of the calling thread).

    >>> with Netlink(netns_fd) as kernel:          # doctest: +SKIP
    ...     kernel.run([link_up(LO_INDEX, "lo")])
    """

    def __init__(self, netns_fd: int | None = None) -> None:
        with nullcontext() if netns_fd is None else inside(netns_fd):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(netlink.SOL_NETLINK, netlink.NETLINK_EXT_ACK, 1)  # error messages in words
        with suppress(PermissionError):  # the first request says what is not permitted
            for room in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
                self._socket.setsockopt(socket.SOL_SOCKET, room, _ROOM_BYTES)
        self._socket.settimeout(30)

    def run(self, requests: Iterable[NetlinkRequest]) -> None:
        """Send all ``requests`` to the kernel, in order.

        Raises ``MachineError`` for the first one that failed, after the others of its batch were executed.
        """
        self.ask(requests)

    def run_or_undo(self, requests: Iterable[NetlinkRequest], undo: Iterable[NetlinkRequest]) -> None:
        """``run`` all ``requests``; if one fails, also all of ``undo``, whose failures do not matter."""
        try:
            self.run(requests)
        except MachineError:
            for request in undo:
                with suppress(MachineError):
                    self.run([request])
            raise

    def ask(self, requests: Iterable[NetlinkRequest]) -> list[bytes]:
        """Send all ``requests`` to the kernel, in order, and return the messages that it answers, with headers.

        The kernel answers requests for information, and those with the flag NLM_F_ECHO; not dumps. Raises
        ``MachineError`` as ``run`` does.
        """
        rest = iter(requests)
        answers: list[bytes] = []
        while batch := list(islice(rest, _TOGETHER)):
            packed = bytearray()
            for number, request in enumerate(batch):
                start = len(packed)
                packed += request.packed
                struct.pack_into("=I", packed, start + _SEQUENCE_AT, number)
            packed[start + _FLAGS_AT] |= netlink.NLM_F_ACK
            self._socket.send(packed)
            self._take_answers(batch, answers)
        return answers

    def _take_answers(self, batch: list[NetlinkRequest], answers: list[bytes]) -> None:
        """Read answers up to the acknowledgement of the last request; for the others there is one only on failure."""
        failed: list[str] = []
        while True:
            for message in messages(self._socket.recv(1 << 18)):
                kind, number = _KIND_AND_SEQUENCE.unpack_from(message)
                if kind != netlink.NLMSG_ERROR:
                    answers.append(message)
                    continue
                error = next(iter(Marshal().parse(message)))["header"]["error"]
                if error is not None:
                    failed.append(f"{batch[number].what} failed ({_said(error)})")
                if number == len(batch) - 1:
                    if failed:
                        raise MachineError(failed[0])
                    return

    def close(self) -> None:
        self._socket.close()

    def __enter__(self: _N) -> _N:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _said(error: NetlinkError) -> str:
    """The message of the errno, followed by the kernel's own message if there is one."""
    code, detail = error.args
    return os.strerror(code) + (f": {detail}" if detail else "")
