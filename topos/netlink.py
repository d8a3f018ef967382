"""Interfaces, addresses, routes, neighbours and queues, many in one call to the kernel.

Messages are packed here by ``struct``: a rail of 64 GPUs has 16,000 permanent neighbours, and packing
one with pyroute2 takes 32 us, here 2. Numbers are those of the kernel's uapi headers (``rtnetlink.h``,
``if_link.h``, ``pkt_sched.h``).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from railyard.errors import MachineError
from topos.namespaces import inside

_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _NEWROUTE, _NEWNEIGH, _NEWRULE, _NEWQDISC = 16, 17, 18, 20, 24, 28, 32, 36
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_UP = 0x1
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_IFINFO = struct.Struct("=BxHiII")
_NEIGHBOUR = struct.Struct("=BxHiHBB")
_PERMANENT = 0x80
_NO_PREFIX_ROUTE = 0x200
_SCOPE_LINK, _UNICAST, _STATIC, _TABLE_MAIN = 253, 1, 4, 254
_CHUNK_BYTES = 60_000
LO_INDEX = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One netlink message without its header, and in words what it does."""

    type: int
    flags: int
    body: bytes
    what: str


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def _u32(kind: int, value: int) -> bytes:
    return struct.pack("=HHI", 8, kind, value)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def mac_bytes(mac: str) -> bytes:
    """``02:01:00:00:00:01`` as six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair: its name and index in its namespace (``netns_fd`` None: the socket's own)."""

    name: str
    index: int
    mac: str | None = None
    netns_fd: int | None = None


def _end(end: End, mtu: int, group: int, flags: int) -> bytes:
    body = _IFINFO.pack(0, 0, end.index, flags, flags) + _text(3, end.name) + _u32(4, mtu) + _u32(27, group)
    if end.mac:
        body += _attribute(1, mac_bytes(end.mac))
    if end.netns_fd is not None:
        body += _u32(28, end.netns_fd)
    return body


def veth(end: End, peer: End, mtu: int, group: int = 0) -> Request:
    """Make a veth pair of MTU ``mtu`` bytes; ``group`` is what ``delete_group`` takes.

    ``end`` is up at once; ``peer`` is not, since the kernel opens it before the two are joined.
    """
    data = _attribute(2, _attribute(1, _end(peer, mtu, 0, 0)))
    info = _attribute(18, _text(1, "veth") + data)
    return Request(
        _NEWLINK, _CREATE | _EXCL, _end(end, mtu, group, _UP) + info, f"making the link {end.name} - {peer.name}"
    )


def link_up(index: int, name: str) -> Request:
    """Set an interface up."""
    return Request(_NEWLINK, 0, _IFINFO.pack(0, 0, index, _UP, _UP), f"setting {name} up")


def set_group(index: int, name: str, group: int) -> Request:
    """Put an interface into a group."""
    return Request(_NEWLINK, 0, _IFINFO.pack(0, 0, index, 0, 0) + _u32(27, group), f"grouping {name}")


def delete_group(group: int) -> Request:
    """Delete every interface of a group at once (and with a veth its peer)."""
    return Request(_DELLINK, 0, _IFINFO.pack(0, 0, 0, 0, 0) + _u32(27, group), "deleting the links")


def address(index: int, name: str, ip: str, prefix: int) -> Request:
    """Give an interface an IPv4 address, without the route that the kernel would add."""
    packed = socket.inet_aton(ip)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
    body += _attribute(1, packed) + _attribute(2, packed) + _u32(8, _NO_PREFIX_ROUTE)
    return Request(_NEWADDR, _CREATE | _EXCL, body, f"giving {name} the address {ip}/{prefix}")


@dataclass(frozen=True)
class RouteTuning:
    """TCP over a route: windows in segments, minimum retransmission time-out in milliseconds."""

    initial_window: int = 200
    rto_min_ms: int = 5
    quick_ack: bool = True

    def pack(self) -> bytes:
        """As the nested RTA_METRICS attribute."""
        window = _u32(11, self.initial_window) + _u32(14, self.initial_window)
        return _attribute(8, window + _u32(13, self.rto_min_ms) + _u32(15, int(self.quick_ack)))


def _network(ip: str, prefix: int) -> bytes:
    mask = (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF
    return struct.pack("!I", struct.unpack("!I", socket.inet_aton(ip))[0] & mask)


def route(
    index: int, ip: str, prefix: int, metric: int, tuning: RouteTuning | None, table: int = _TABLE_MAIN
) -> Request:
    """The network of ``ip``/``prefix`` is reached through interface ``index``, from ``ip``."""
    body = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, min(table, 252 if table > 255 else 255), _STATIC, _SCOPE_LINK,
        _UNICAST, 0,
    )  # fmt: skip
    body += _attribute(1, _network(ip, prefix)) + _u32(4, index) + _u32(6, metric)
    body += _attribute(7, socket.inet_aton(ip)) + _u32(15, table) + (tuning.pack() if tuning else b"")
    return Request(_NEWROUTE, _CREATE | _EXCL, body, f"routing the network of {ip}/{prefix} over interface {index}")


def source_rule(ip: str, table: int) -> Request:
    """What leaves from address ``ip`` is routed by ``table`` (answers of a listener not bound to a device)."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 32, 0, min(table, 252), 0, 0, 1, 0)
    body += _attribute(2, socket.inet_aton(ip)) + _u32(6, 1000 + table) + _u32(15, table)
    return Request(_NEWRULE, _CREATE | _EXCL, body, f"adding the rule for source {ip}")


def neighbour_tail(ip: str, mac: str) -> bytes:
    """The part of a neighbour message that is the same on every interface."""
    return _attribute(1, socket.inet_aton(ip)) + _attribute(2, mac_bytes(mac))


def neighbour(index: int, tail: bytes) -> Request:
    """A permanent neighbour on interface ``index``; ``tail`` from ``neighbour_tail``."""
    body = _NEIGHBOUR.pack(socket.AF_INET, 0, index, _PERMANENT, 0, 0) + tail
    return Request(_NEWNEIGH, _CREATE | _REPLACE, body, "adding a neighbour")


def token_bucket(index: int, name: str, rate_mbps: float, burst_bytes: int, limit_bytes: int) -> Request:
    """Shape what leaves interface ``index`` by a token bucket (tc-tbf)."""
    rate = round(rate_mbps * 1e6 / 8)
    spec = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, min(rate, 0xFFFFFFFF))
    parameters = spec + bytes(12) + struct.pack("=III", limit_bytes, 0, 0)
    options = _attribute(1, parameters) + _u32(6, burst_bytes)
    if rate > 0xFFFFFFFF:
        options += _attribute(4, struct.pack("=Q", rate))
    body = struct.pack("=BxHiIII", 0, 0, index, 0x10000, 0xFFFFFFFF, 0)
    body += _text(1, "tbf") + _attribute(2, options)
    return Request(_NEWQDISC, _CREATE | _REPLACE, body, f"shaping {name} to {rate_mbps:g} Mb/s")


class Netlink:
    """A routing socket inside one namespace.

    >>> with Netlink(netns_fd) as kernel:          # doctest: +SKIP
    ...     kernel.run([link_up(LO_INDEX, "lo")])
    """

    def __init__(self, netns_fd: int | None = None) -> None:
        if netns_fd is None:
            self._socket = self._open()
        else:
            with inside(netns_fd):
                self._socket = self._open()

    @staticmethod
    def _open() -> socket.socket:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        sock.setsockopt(270, 10, 1)  # SOL_NETLINK, NETLINK_CAP_ACK: an answer does not repeat the request
        sock.setsockopt(270, 11, 1)  # NETLINK_EXT_ACK: the kernel says in words what is wrong
        sock.settimeout(30)
        return sock

    def run(self, requests: Iterable[Request]) -> None:
        """Have the kernel do all of ``requests``, in order.

        Raises ``MachineError`` for the first that failed, after the chunk it is in was tried to its end.
        """
        for chunk in _chunks(requests):
            last = len(chunk) - 1
            packed = bytearray()
            for number, request in enumerate(chunk):
                flags = request.flags | _REQUEST | (_ACK if number == last else 0)
                packed += _HEADER.pack(16 + len(request.body), request.type, flags, number + 1, 0) + request.body
            self._socket.send(packed)
            self._answers(chunk)

    def _answers(self, chunk: list[Request]) -> None:
        """Read until the last request of the chunk is answered; requests without trouble are not answered."""
        failed: tuple[Request, int, str] | None = None
        while True:
            for kind, sequence, body in _messages(self._socket.recv(1 << 18)):
                if kind != _ERROR:
                    continue
                number = -struct.unpack_from("=i", body)[0]
                if number and failed is None:
                    failed = chunk[sequence - 1], number, _said(body)
                if sequence == len(chunk):
                    if failed:
                        request, number, said = failed
                        detail = f": {said}" if said else ""
                        raise MachineError(f"{request.what} failed ({os.strerror(number)}{detail})")
                    return

    def links(self) -> dict[str, int]:
        """Name and index of every interface in this namespace."""
        body = _IFINFO.pack(0, 0, 0, 0, 0)
        self._socket.send(_HEADER.pack(16 + len(body), _GETLINK, _REQUEST | _DUMP, 1, 0) + body)
        found: dict[str, int] = {}
        while True:
            for kind, _, message in _messages(self._socket.recv(1 << 18)):
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", message)[0]
                    raise MachineError(f"listing the interfaces failed ({os.strerror(number)})")
                index = _IFINFO.unpack_from(message)[2]
                found |= {value[:-1].decode(): index for key, value in _attributes(message[16:]) if key == 3}

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chunks(requests: Iterable[Request]) -> Iterator[list[Request]]:
    chunk: list[Request] = []
    size = 0
    for request in requests:
        chunk.append(request)
        size += 16 + len(request.body)
        if size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, sequence number and body of each message in ``data``."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, offset)
        yield kind, sequence, data[offset + 16 : offset + length]
        offset += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < 4:
            return
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def _said(body: bytes) -> str:
    """The kernel's own words in an error message (NLMSGERR_ATTR_MSG), or nothing."""
    for kind, value in _attributes(body[20:]):
        if kind == 1:
            return value.rstrip(b"\0").decode(errors="replace")
    return ""
