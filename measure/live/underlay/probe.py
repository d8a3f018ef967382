"""Probes the network between two machines before a run, or between its points: round trip, loss, size, rate.

One machine runs an ``Echo`` on its address in that network, the other calls ``probe``. The echo answers only to packets
with the token of this probe, each by itself and never by more bytes than came, and ends by itself. Numbers and text
alone go in and come out, so that both can be operations of a remote agent.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from measure.live.underlay import echo
from measure.live.underlay.echo import TOKEN_BYTES
from measure.metrics.quantiles import quantiles
from measure.metrics.underlay import Underlay
from railyard.errors import MachineError
from railyard.process.child import Child

DATAGRAMS = 200
PACE_S = 0.001
"""Between two datagrams, so that they do not queue behind one another."""
_SMALL_BYTES = 64
_LEAST_PACKET_BYTES = 576
_HEADER = {socket.AF_INET: 28, socket.AF_INET6: 48}
"""Bytes of the IP and UDP headers."""
_LATE_S, _TRIES = 0.5, 3
_FIRST_WAIT_S, _FIRST_TRIES = 0.1, 30
"""For the first datagram: the kernel resolves addresses before it passes, and asks again 1 s after a lost reply."""
_CONNECT_S = 5.0
_NUMBER = struct.Struct("!I")


class Echo(Child):
    """The echo that a probe of ``address`` needs, a process of its own; it ends after ``seconds`` at the latest.

    >>> with Echo("192.0.2.7", token, 20) as there:   # doctest: +SKIP
    ...     answer(there.port)
    """

    def __init__(self, address: str, token: bytes, seconds: float) -> None:
        settings = {"address": address, "token": token.hex(), "seconds": seconds}
        super().__init__(echo.__name__, settings, (), f"the echo on {address}")

    @property
    def port(self) -> int:
        """UDP and TCP port, once started."""
        return int(self.told["port"])


def probe(address: str, port: int, token: bytes, packet_bytes: int) -> Underlay:
    """Properties of the network between this machine and the echo on ``address``; takes 1.1 s and a few round trips.

    ``packet_bytes``: the largest IP packet that is wanted to pass whole. Raises ``MachineError`` if nothing comes back.
    """
    with _datagrams(address, port) as sock:
        first = _passes(sock, token, DATAGRAMS, _SMALL_BYTES, _FIRST_WAIT_S, _FIRST_TRIES)
        trips = _round_trips(sock, token) if first else []
        found = quantiles(trips)
        if found is None:
            raise MachineError(f"no packet came back from {address} (UDP port {port}); let UDP and TCP pass there")
        late_s = min(_LATE_S, max(0.02, 4 * found.high))
        largest = _largest(sock, token, packet_bytes, late_s)
    differences = [abs(after - before) for before, after in pairwise(trips)]
    return Underlay(
        round_trip_ms=found.p50 * 1e3,
        round_trip_p99_ms=found.p99 * 1e3,
        jitter_ms=sum(differences) / max(1, len(differences)) * 1e3,
        loss_share=1 - found.count / DATAGRAMS,
        datagrams=DATAGRAMS,
        packet_bytes=largest,
        tcp_mbps=_rate_mbps(address, port, token),
    )


@contextmanager
def _datagrams(address: str, port: int) -> Iterator[socket.socket]:
    """A UDP socket connected to the echo, whose packets are never split on the way."""
    with _reporting(address, port):
        family, kind, _, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind) as sock:
            echo.forbid_splitting(sock)
            sock.connect(place)
            yield sock


@contextmanager
def _reporting(address: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error) or type(error).__name__
        raise MachineError(f"{address} (port {port}) does not answer the probe of the network: {said}") from None


def _packet(token: bytes, number: int, size: int) -> bytes:
    return (token + _NUMBER.pack(number)).ljust(size, b"\0")


def _round_trips(sock: socket.socket, token: bytes) -> list[float]:
    """Round trips in seconds of those of ``DATAGRAMS`` paced datagrams that came back, in the order of sending."""
    sent: dict[int, float] = {}
    trips: dict[int, float] = {}
    start = time.monotonic()
    for number in range(DATAGRAMS):
        _collect(sock, token, sent, trips, start + number * PACE_S)
        sent[number] = time.monotonic()
        with _ignoring(errno.ECONNREFUSED):  # about an earlier one; if all are refused, none comes back
            sock.send(_packet(token, number, _SMALL_BYTES))
    _collect(sock, token, sent, trips, time.monotonic() + _LATE_S)
    return [trips[number] for number in sorted(trips)]


def _collect(sock: socket.socket, token: bytes, sent: dict[int, float], trips: dict[int, float], end: float) -> None:
    """Take answers until the monotonic time ``end``, or until there is one to everything of the last round."""
    while (left := end - time.monotonic()) > 0 and len(trips) < DATAGRAMS:
        number = _answer(sock, token, left)
        if number in sent and number not in trips:
            trips[number] = time.monotonic() - sent[number]


def _answer(sock: socket.socket, token: bytes, longest_s: float, size: int | None = None) -> int | None:
    """The number in the next datagram of the echo (with ``size`` bytes, if given); None without one in that time."""
    if not echo.is_ready(sock, longest_s):
        return None
    with _ignoring(errno.ECONNREFUSED, errno.EMSGSIZE, errno.EAGAIN):
        data = sock.recv(1 << 16, socket.MSG_DONTWAIT)
        if data[:TOKEN_BYTES] == token and len(data) >= _SMALL_BYTES and size in (None, len(data)):
            return int(_NUMBER.unpack_from(data, TOKEN_BYTES)[0])
    return None


def _largest(sock: socket.socket, token: bytes, wanted: int, late_s: float) -> int:
    """The largest IP packet up to ``wanted`` bytes that passes both ways; by bisection unless ``wanted`` does.

    Packets of 576 bytes are taken to pass, as every network of IP must let them.
    """
    header, number = _HEADER[socket.AddressFamily(sock.family)], DATAGRAMS
    low, high = _LEAST_PACKET_BYTES, wanted
    size = wanted
    while True:
        number += 1
        passes = _passes(sock, token, number, size - header, late_s)
        low, high = (size, high) if passes else (low, size - 1)
        if low >= high:
            return low
        size = (low + high + 1) // 2


def _passes(sock: socket.socket, token: bytes, number: int, size: int, late_s: float, tries: int = _TRIES) -> bool:
    for _ in range(tries):
        end = time.monotonic()
        # about an earlier one, or too long for the interface here or one on the way
        with _ignoring(errno.ECONNREFUSED, errno.EMSGSIZE):
            sock.send(_packet(token, number, size))
            end += late_s
        while (left := end - time.monotonic()) > 0:
            if _answer(sock, token, left, size) == number:
                return True
    return False


@contextmanager
def _ignoring(*numbers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise


def _rate_mbps(address: str, port: int, token: bytes) -> float:
    """The rate of TCP to the echo and back, Mb/s: the lower one."""
    rates = []
    for way in (echo.HERE, echo.BACK):
        with _reporting(address, port), socket.create_connection((address, port), _CONNECT_S) as sock:
            sock.settimeout(_CONNECT_S)
            sock.sendall(token + way)
            if way == echo.BACK:
                rates.append(echo.arriving_mbps(sock))
            else:
                echo.send(sock)
                rates.append(_told(sock))
            echo.hang_up(sock)
    return min(rates)


def _told(sock: socket.socket) -> float:
    """The rate that the echo says it has seen; ``OSError`` if it says nothing."""
    said = sock.recv(echo.MBPS.size, socket.MSG_WAITALL)
    if len(said) < echo.MBPS.size:
        raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
    return float(echo.MBPS.unpack(said)[0])
