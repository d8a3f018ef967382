"""The ping matrix: which ports and ranks can reach each other on the rails of a live fabric.

Every port sends one raw Ethernet frame to each other port of its switch, with an EtherType of its own. The result is
the port that receives the frame: on an optical switch the other end of the circuit, whatever the destination address;
on an electrical switch the port with that MAC.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf

from measure.live.packets import ETHERTYPE, Tap, ethernet_frame, frame_payload, open_packets
from railyard.errors import ConfigError
from railyard.loop import READ, Poller
from topos.plan import FabricPlan, HostPort

Port = tuple[int, int]
"""(rank, lane) of a port on the rails."""
QUIET_S = 0.05
LONGEST_S = 0.5
_TOKEN_BYTES = 8
_PING = struct.Struct("!8sHH")
"""Payload of a frame: the token of the test, rank and lane of the sender."""
_ROOM_BYTES = 4 << 20


class PingMatrix:
    """Tests reachability repeatedly through sockets on every rail port of a fabric, within a ``with``. Needs root.

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
        self._sockets: dict[Port, socket.socket] = {}

    def __enter__(self) -> PingMatrix:
        with ExitStack() as opening:
            for port in (port for switch in self._switches for port in switch.ports):
                opened = open_packets(Tap(self._fds[port.rank], port.interface), ETHERTYPE, _ROOM_BYTES)
                self._sockets[port.rank, port.lane] = opening.enter_context(opened)
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reach_ports(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[Port, Port]]:
        """(sending port, receiving port) of frames sent from ``lanes``; frames are received on every lane."""
        token = os.urandom(_TOKEN_BYTES)
        known = {port.lane for switch in self._switches for port in switch.ports}
        if not known.intersection(lanes):
            raise ConfigError(
                f"no rail port has lane {', '.join(map(str, lanes))}; there are {sorted(known)}", key="lanes"
            )
        for switch in self._switches:
            for port in (port for port in switch.ports if port.lane in lanes):
                for to in (to for to in switch.ports if to.rank != port.rank):
                    self._sockets[port.rank, port.lane].send(_frame(port, to, token))
        return self._gather(token)

    def reach(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[int, int]]:
        """(sending rank, receiving rank) of frames sent from ``lanes``."""
        return frozenset((src, dst) for (src, _), (dst, _) in self.reach_ports(lanes))

    def _gather(self, token: bytes) -> frozenset[tuple[Port, Port]]:
        """(sending port, receiving port) of the frames with ``token`` until none has come for ``quiet_s``."""
        found: set[tuple[Port, Port]] = set()
        ports = {receiver: port for port, receiver in self._sockets.items()}
        with Poller() as poller:
            for receiver in ports:
                poller.watch(receiver, READ)
            end = time.monotonic() + self._longest_s
            while (now := time.monotonic()) < end and (ready := poller.wait(inf, min(now + self._quiet_s, end))):
                for receiver, _ in ready:
                    source = _sender_of(receiver.recv(2048), token)
                    if source is not None:
                        found.add((source, ports[receiver]))
        return frozenset(found)


def _frame(port: HostPort, to: HostPort, token: bytes) -> bytes:
    """The frame that ``port`` sends to ``to``; it contains the token of the test and the sender's rank and lane."""
    return ethernet_frame(to.mac, port.mac, _PING.pack(token, port.rank, port.lane))


def _sender_of(frame: bytes, token: bytes) -> Port | None:
    """The sending port of a frame with ``token``; None for any other frame."""
    payload = frame_payload(frame)
    if len(payload) < _PING.size:
        return None
    of, rank, lane = _PING.unpack_from(payload)
    return (rank, lane) if of == token else None
