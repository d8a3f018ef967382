"""The ping matrix: which ports and ranks can reach each other on the rails of a live fabric.

Every port sends one raw Ethernet frame to each other port of its switch, with an EtherType of its own. The result is
the port that receives the frame: on an optical switch the other end of the circuit, whatever the destination address;
on an electrical switch the port with that MAC. ICMP echoes test the hosts' network stacks in addition.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from railyard.errors import ConfigError
from topos.kernel.namespaces import inside
from topos.plan import FabricPlan, HostPort, SwitchPlan

Port = tuple[int, int]
"""(rank, lane) of a port on the rails."""
Decoded = TypeVar("Decoded")
ETHERTYPE = 0x88B6
"""EtherType of the frames, IEEE 802 local experimental 2: no host answers it."""
QUIET_S = 0.05
LONGEST_S = 0.5
_TOKEN_BYTES = 8
_FRAME = struct.Struct("!6s6s2s8sHH")
_SHORTEST_FRAME = 60
_ECHO_REPLY, _ECHO_REQUEST = 0, 8
_ECHO = struct.Struct("!BBHHH8sHH")
_SO_RCVBUFFORCE = 33
_ROOM_BYTES = 4 << 20


class PingMatrix:
    """Tests reachability repeatedly through sockets on every rail port of a fabric. Needs root.

    ``netns_fds`` are descriptors of the ranks' namespaces, by rank. A test ends when no frame has arrived for
    ``quiet_s`` seconds, after ``longest_s`` at the latest; a machine too busy to deliver a frame within ``quiet_s``
    reports fewer pairs than there are.

    >>> with PingMatrix(session.plan, session.netns_fds()) as matrix:   # doctest: +SKIP
    ...     matrix.reach()
    frozenset({(0, 1), (1, 0)})
    """

    def __init__(
        self, plan: FabricPlan, netns_fds: Sequence[int], *, quiet_s: float = QUIET_S, longest_s: float = LONGEST_S
    ) -> None:
        if not 0 < quiet_s <= longest_s:
            raise ConfigError(f"must be above 0 and at most {longest_s:g}, not {quiet_s:g}", key="quiet_s")
        self._quiet_s, self._longest_s = quiet_s, longest_s
        self._switches = plan.network("rail")
        self._fds = tuple(netns_fds)
        self._stack = ExitStack()
        self._raw: dict[Port, socket.socket] = {}
        self._echo: dict[Port, socket.socket] = {}

    def reach_ports(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[Port, Port]]:
        """(sending port, receiving port) of frames sent from ``lanes``; frames are received on every lane."""
        self._open(self._raw, _open_raw)
        token = os.urandom(_TOKEN_BYTES)
        for switch, port in self._senders(lanes):
            for to in switch.ports:
                if to.rank != port.rank:
                    self._raw[port.rank, port.lane].send(_frame(port, to, token))

        def pair(at: Port, data: bytes) -> tuple[Port, Port] | None:
            src = _sender_of(data, token)
            return None if src is None else (src, at)

        return self._gather(self._raw, pair)

    def reach(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[int, int]]:
        """(sending rank, receiving rank) of frames sent from ``lanes``."""
        return frozenset((src, dst) for (src, _), (dst, _) in self.reach_ports(lanes))

    def answers(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[int, int]]:
        """(rank, rank that answered its ICMP echo), for echoes from ``lanes`` to the same lane of all other ranks.

        Answers take the routes of the answering host. An optical switch delivers echoes for other ranks to the other
        end of the circuit, which drops them; they count as misdelivered (``measure.live.delivery``).
        """
        self._open(self._echo, _open_echo)
        token = os.urandom(_TOKEN_BYTES)
        rank_of = {_address(port): port.rank for switch in self._switches for port in switch.ports}
        for switch, port in self._senders(lanes):
            for to in switch.ports:
                if to.rank != port.rank and to.lane == port.lane:
                    self._echo[port.rank, port.lane].sendto(_echo(port, token), (_address(to), 0))

        def pair(at: Port, data: bytes) -> tuple[int, int] | None:
            source = _answerer_of(data, at, token)
            return None if source is None else (at[0], rank_of[source])

        return self._gather(self._echo, pair)

    def close(self) -> None:
        """Close the sockets on all ports."""
        self._raw.clear()
        self._echo.clear()
        self._stack.close()

    def __enter__(self) -> PingMatrix:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _senders(self, lanes: Sequence[int]) -> list[tuple[SwitchPlan, HostPort]]:
        found = [(switch, port) for switch in self._switches for port in switch.ports if port.lane in lanes]
        if not found:
            known = sorted({port.lane for switch in self._switches for port in switch.ports})
            raise ConfigError(f"no rail port has lane {', '.join(map(str, lanes))}; there are {known}", key="lanes")
        return found

    def _open(self, sockets: dict[Port, socket.socket], opener: Callable[[HostPort], socket.socket]) -> None:
        if sockets:
            return
        for switch in self._switches:
            for port in switch.ports:
                with inside(self._fds[port.rank]):
                    sockets[port.rank, port.lane] = self._stack.enter_context(opener(port))

    def _gather(
        self, sockets: dict[Port, socket.socket], decode: Callable[[Port, bytes], Decoded | None]
    ) -> frozenset[Decoded]:
        """Receive and ``decode`` packets on all sockets until none has come for ``quiet_s``."""
        found: set[Decoded] = set()
        with selectors.DefaultSelector() as selector:
            for at, receiver in sockets.items():
                selector.register(receiver, selectors.EVENT_READ, at)
            end = time.monotonic() + self._longest_s
            while (left := end - time.monotonic()) > 0 and (ready := selector.select(min(self._quiet_s, left))):
                for key, _ in ready:
                    one = decode(key.data, sockets[key.data].recv(2048))
                    if one is not None:
                        found.add(one)
        return frozenset(found)


def reach(plan: FabricPlan, netns_fds: Sequence[int], lanes: Sequence[int] = (0,)) -> frozenset[tuple[int, int]]:
    """``PingMatrix.reach`` for a single test; for 16 hosts, most of its time is opening the sockets."""
    with PingMatrix(plan, netns_fds) as matrix:
        return matrix.reach(lanes)


# ---- raw frames ----------------------------------------------------------------------------------------------------


def _open_raw(port: HostPort) -> socket.socket:
    """A packet socket for frames of ``ETHERTYPE``, to be opened in the namespace of ``port``."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
    opened.bind((port.interface, ETHERTYPE))
    return opened


def _frame(port: HostPort, to: HostPort, token: bytes) -> bytes:
    """The frame that ``port`` sends to ``to``; it contains the token of the test and the sender's rank and lane."""
    ethertype = ETHERTYPE.to_bytes(2, "big")
    return _FRAME.pack(_mac(to), _mac(port), ethertype, token, port.rank, port.lane).ljust(_SHORTEST_FRAME, b"\0")


def _sender_of(frame: bytes, token: bytes) -> Port | None:
    """The sending port of a frame with ``token``; None for any other frame."""
    if len(frame) < _FRAME.size:
        return None
    _, _, _, of, rank, lane = _FRAME.unpack_from(frame)
    return (rank, lane) if of == token else None


def _mac(port: HostPort) -> bytes:
    return bytes.fromhex(port.mac.replace(":", ""))


# ---- echoes --------------------------------------------------------------------------------------------------------


def _open_echo(port: HostPort) -> socket.socket:
    """A raw ICMP socket bound to ``port``, to be opened in its namespace."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port.interface.encode() + b"\0")
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
    return opened


def _echo(port: HostPort, token: bytes) -> bytes:
    """An ICMP echo request (RFC 792) with ``token`` and the rank and lane of ``port`` as data."""
    bare = _ECHO.pack(_ECHO_REQUEST, 0, 0, 0, 0, token, port.rank, port.lane)
    total: int = sum(struct.unpack(f"!{len(bare) // 2}H", bare))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return bare[:2] + (~total & 0xFFFF).to_bytes(2, "big") + bare[4:]


def _answerer_of(packet: bytes, sender: Port, token: bytes) -> str | None:
    """The address that answered the echo of ``sender``; None for any other IP packet."""
    start = (packet[0] & 15) * 4
    if len(packet) < start + _ECHO.size:
        return None
    kind, _, _, _, _, of, rank, lane = _ECHO.unpack_from(packet, start)
    if (kind, of, rank, lane) != (_ECHO_REPLY, token, *sender):
        return None
    return socket.inet_ntoa(packet[12:16])


def _address(port: HostPort) -> str:
    return port.ip.split("/")[0]
