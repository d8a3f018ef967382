"""The connections of one agent: a listener on every port and one connection per path, opened on first use.

The lower rank of a path connects. Sockets are bound to the device of their port, so a message can only leave and enter
by the ports of its path.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator

from railyard.errors import AgentError
from topos.kernel.tuning import rto_min_ms
from topos.plan import FabricPlan, HostPort, Network
from workloads.agent.transport.connection import Activity, Inbox, PeerConnection
from workloads.agent.transport.pacing import Bucket
from workloads.agent.transport.sockets import drop_packets, left_port, new_socket, retransmits, take_packets
from workloads.program import Domain
from workloads.rank.paths import NETWORK_OF_DOMAIN, PeerKey

TCP_PORT = 7700
TCP_REPEATS_SYN_S = 1.0
"""Seconds after which TCP repeats a SYN that was not answered (RFC 6298), which no option of Linux shortens."""
_DOMAIN_OF_NETWORK: dict[Network, Domain] = {network: domain for domain, network in NETWORK_OF_DOMAIN.items()}


class Transport:
    """All sockets of one rank, made inside the rank's network namespace."""

    def __init__(self, plan: FabricPlan, rank: int, inbox: Inbox) -> None:
        self._rank = rank
        self._inbox = inbox
        self._mtu = plan.mtu
        self._ports: dict[tuple[Domain, int], HostPort] = {}
        self._buckets: dict[tuple[Domain, int], Bucket] = {}
        self._peer_of_ip: dict[str, tuple[Domain, HostPort]] = {}
        self._ip_of_peer: dict[tuple[Domain, int, int], str] = {}
        self._listeners: dict[socket.socket, tuple[Domain, int]] = {}
        self._connections: dict[PeerKey, PeerConnection] = {}
        self._far = plan.delayed or bool(plan.links)
        self._called_again = 0
        self.activity: Activity[PeerConnection] = Activity()
        """The connections that have something to send, or wait for other events than before."""
        self._read_plan(plan)

    def _read_plan(self, plan: FabricPlan) -> None:
        """Look up the ports of the rank and their peers: ports of the same switch, or of a linked one."""
        for switch in plan.switches:
            domain = _DOMAIN_OF_NETWORK[switch.network]
            mine = [port for port in switch.ports if port.rank == self._rank]
            for port in mine:
                self._ports[domain, port.lane] = port
                self._buckets[domain, port.lane] = Bucket(port.rate_mbps, plan.mtu)
            reached = plan.network(switch.network) if plan.links else (switch,)
            for port in (port for other in reached for port in other.ports) if mine else ():
                self._peer_of_ip[_address(port)] = domain, port
                self._ip_of_peer[domain, port.rank, port.lane] = _address(port)

    def listen(self) -> None:
        """Open a listener on every port; ``AgentError`` names the port on which that fails."""
        for place, port in self._ports.items():
            sock = new_socket(port.interface)
            try:
                sock.bind((_address(port), TCP_PORT))
                sock.listen(256)
            except OSError as error:
                sock.close()
                raise AgentError(
                    f"rank {self._rank} cannot listen on {port.interface} ({_address(port)}): {error.strerror}"
                ) from None
            self._listeners[sock] = place

    def connection(self, key: PeerKey, now: float) -> PeerConnection | None:
        """The connection over path ``key``, opened if this rank has to do that; None if the peer has yet to do it."""
        if key not in self._connections and self._rank < key[2]:
            self._connections[key] = self._connect(key, now)
        return self._connections.get(key)

    def find(self, key: PeerKey) -> PeerConnection | None:
        return self._connections.get(key)

    def answer_s(self, key: PeerKey) -> float:
        """Seconds within which the peer's answer to a call over path ``key`` comes, unless a packet was lost.

        That is the retransmission time-out of the port. Packets that cross links between switches, or links with a
        delay, may wait longer, up to the time of TCP's own repetition.
        """
        port = self._ports[key[0], key[1]]
        return TCP_REPEATS_SYN_S if self._far else rto_min_ms(port.rate_mbps, self._mtu) / 1e3

    def call_again(self, connection: PeerConnection) -> bool:
        """Connect anew where the peer has not answered: a packet was lost, for instance at a dark circuit.

        False where the peer has answered, or the connection was closed. An answer that comes while the other call is
        made is dropped: the peer would take a connection for open, and send on it, that is closed here.
        """
        if connection.fileno() < 0 or connection.connected or connection.answered:
            return False
        drop_packets(connection.sock)
        if connection.answered:  # just before its packets were dropped
            take_packets(connection.sock)
            return False
        sock, connected = self._call(connection.key)
        connection.renew(sock, connected=connected)
        self._called_again += 1
        return True

    def _connect(self, key: PeerKey, now: float) -> PeerConnection:
        sock, connected = self._call(key)
        connection = self._adopt(sock, key, connected=connected)
        connection.last_progress = now
        return connection

    def _call(self, key: PeerKey) -> tuple[socket.socket, bool]:
        """Make a connecting socket; returns the socket and whether it is connected already."""
        domain, lane, peer, peer_lane = key
        port = self._ports.get((domain, lane))
        address = self._ip_of_peer.get((domain, peer, peer_lane))
        if port is None or address is None:
            raise AgentError(
                f"rank {self._rank} was given a path from its port {lane} to port {peer_lane} of rank {peer} on the "
                f"{domain} network, which this fabric does not have"
            )
        sock = new_socket(port.interface)
        try:
            sock.bind((_address(port), 0))
            code = sock.connect_ex((address, TCP_PORT))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            sock.close()
            raise AgentError(
                f"rank {self._rank} cannot connect from {port.interface} to rank {peer} ({address}): {error.strerror}"
            ) from None
        return sock, code == 0

    def _adopt(self, sock: socket.socket, key: PeerKey, *, connected: bool) -> PeerConnection:
        bucket, interface = self._buckets[key[0], key[1]], self._ports[key[0], key[1]].interface
        return PeerConnection(
            sock,
            key,
            bucket,
            self._inbox,
            connected=connected,
            mtu=self._mtu,
            left_port=lambda: left_port(interface),
            clock=time.monotonic,
            activity=self.activity,
        )

    def accept(self, listener: socket.socket, now: float) -> list[PeerConnection]:
        """Accept the connections that peers have opened to a listener: the last one of each peer."""
        domain, lane = self._listeners[listener]
        new: dict[PeerKey, PeerConnection] = {}
        while True:
            try:
                sock, (address, _) = listener.accept()
            except BlockingIOError:
                return list(new.values())
            known = self._peer_of_ip.get(address)
            if known is None or known[0] != domain:
                sock.close()
                continue
            sock.setblocking(False)
            key = (domain, lane, known[1].rank, known[1].lane)
            connection = self._adopt(sock, key, connected=True)
            connection.last_progress = now
            if key in self._connections:
                self._connections[key].close()
            self._connections[key] = new[key] = connection

    @property
    def listeners(self) -> tuple[socket.socket, ...]:
        return tuple(self._listeners)

    def __iter__(self) -> Iterator[PeerConnection]:
        return iter(self._connections.values())

    def totals(self) -> dict[str, int]:
        """Retransmitted segments and sent bytes of all connections, as fields of the ``sockets`` event.

        A call that was repeated counts as one segment.
        """
        again = self._called_again + sum(retransmits(c.sock) for c in self)
        return {"retransmits": again, "bytes": sum(c.sent_bytes for c in self)}

    def close(self) -> None:
        for sock in self._listeners:
            sock.close()
        for connection in self:
            connection.close()
        self._listeners.clear()
        self._connections.clear()


def _address(port: HostPort) -> str:
    return port.ip.split("/")[0]
