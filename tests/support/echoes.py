"""ICMP echoes between the ports of a fabric, which the hosts' own network stacks answer."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

from scapy.layers.inet import ICMP

from topos.kernel.namespaces import inside
from topos.plan import FabricPlan, HostPort


def answers(plan: FabricPlan, netns_fds: Sequence[int], quiet_s: float, longest_s: float) -> frozenset[tuple[int, int]]:
    """(rank, rank that answered its echo), for echoes from lane 0 to lane 0 of all other ranks of a rail.

    It is over when no packet has come for ``quiet_s`` seconds, after ``longest_s`` at the latest.
    """
    token = os.urandom(8)
    found: set[tuple[int, int]] = set()
    with ExitStack() as stack:
        rank_of: dict[str, int] = {}
        asking: dict[socket.socket, int] = {}
        for switch in plan.network("rail"):
            ports = [port for port in switch.ports if port.lane == 0]
            rank_of |= {_address(port): port.rank for port in ports}
            for port in ports:
                asker = stack.enter_context(_open(netns_fds[port.rank], port))
                asking[asker] = port.rank
                for to in ports:
                    if to.rank != port.rank:
                        asker.sendto(bytes(ICMP(id=port.rank) / token), (_address(to), 0))
        end = time.monotonic() + longest_s
        while ready := select.select(list(asking), [], [], max(0.0, min(quiet_s, end - time.monotonic())))[0]:
            for asker in ready:
                packet = asker.recv(2048)
                start = (packet[0] & 15) * 4
                reply = ICMP(packet[start:])
                if reply.type == 0 and reply.id == asking[asker] and bytes(reply.payload) == token:
                    found.add((asking[asker], rank_of[socket.inet_ntoa(packet[12:16])]))
    return frozenset(found)


def _open(netns_fd: int, port: HostPort) -> socket.socket:
    """A raw ICMP socket bound to ``port``, in its namespace."""
    with inside(netns_fd):
        opened = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port.interface.encode() + b"\0")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return opened


def _address(port: HostPort) -> str:
    return port.ip.split("/")[0]
