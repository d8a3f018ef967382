"""The far end of a probe of the network between two machines: sends datagrams back and measures the rate of TCP.

A process of its own (``measure.live.underlay.probe.Echo``), on a port that the kernel chooses, for UDP and TCP alike.
It answers only to what begins with the token of the probe, one datagram for each that came and of the same length, and
ends when its time is over, when it is told to, or with the process that started it.
"""

from __future__ import annotations

import errno
import hmac
import select
import socket
import struct
import threading
import time
from contextlib import suppress

from railyard.process.parent import Parent

TOKEN_BYTES = 16
WARM_UP_S, RATE_S = 0.1, 0.3
"""The rate of TCP is that of ``RATE_S`` seconds, counted where bytes arrive, from ``WARM_UP_S`` after the first."""
HERE, BACK = b"h", b"b"
"""What follows the token on a connection: whether bytes come to the echo, or from it."""
MBPS = struct.Struct("!d")
_CHUNK_BYTES = 1 << 18
_LONGEST_PACKET = 1 << 16
_STALL_S = 2.0
_TOKEN_S = 1.0
_MOST_CONNECTIONS = 16
_PORT_TRIES = 32
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PROBE = 10, 23, 3


def forbid_splitting(sock: socket.socket) -> None:
    """Send each packet of a UDP socket whole or not at all, whatever the kernel believes about the way."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PROBE)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)


def is_ready(sock: socket.socket, longest_s: float, event: int = select.POLLIN) -> bool:
    """Wait up to ``longest_s`` seconds until ``sock`` can be read, or written with ``POLLOUT``."""
    waiting = select.poll()  # select() has no room for descriptors above 1023
    waiting.register(sock, event)
    return bool(waiting.poll(max(0.0, longest_s) * 1e3))


def send(sock: socket.socket) -> None:
    """Send as fast as the network takes it, until the other end answers or closes, or its time must be over."""
    chunk, end = bytes(_CHUNK_BYTES), time.monotonic() + WARM_UP_S + RATE_S + _STALL_S
    waiting = select.poll()
    waiting.register(sock, select.POLLIN | select.POLLOUT)
    while (left := end - time.monotonic()) > 0:
        if any(event & ~select.POLLOUT for _, event in waiting.poll(left * 1e3)):
            return
        with suppress(BlockingIOError):
            sock.send(chunk, socket.MSG_DONTWAIT)


def arriving_mbps(sock: socket.socket) -> float:
    """The rate at which bytes arrive, Mb/s, for ``RATE_S`` seconds after the warm-up."""
    buffer, counted = bytearray(_CHUNK_BYTES), 0
    if not is_ready(sock, _STALL_S):
        return 0.0
    begin = time.monotonic() + WARM_UP_S
    while (now := time.monotonic()) < begin + RATE_S:
        if is_ready(sock, begin + RATE_S - now):
            got = sock.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            if not got:
                break
            counted += got if time.monotonic() >= begin else 0
    return counted * 8 / 1e6 / RATE_S


def hang_up(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _serve(connection: socket.socket, token: bytes, free: threading.Semaphore) -> None:
    """Answer one connection; whoever has not sent the token within a second is hung up on."""
    try:
        connection.settimeout(_TOKEN_S)
        said = connection.recv(TOKEN_BYTES + 1, socket.MSG_WAITALL)
        if not hmac.compare_digest(said[:TOKEN_BYTES], token):
            return
        if said[TOKEN_BYTES:] == HERE:
            connection.sendall(MBPS.pack(arriving_mbps(connection)))
            is_ready(connection, _STALL_S, select.POLLHUP)  # the other end hangs up once it has read that
        else:
            send(connection)
    except OSError:
        pass
    finally:
        hang_up(connection)
        free.release()


def _send_back(sock: socket.socket, token: bytes) -> None:
    """Send a datagram back if it has the token; one that is too long for the way back is lost there."""
    with suppress(OSError):
        data, sender = sock.recvfrom(_LONGEST_PACKET, socket.MSG_DONTWAIT)
        if hmac.compare_digest(data[:TOKEN_BYTES], token):
            with suppress(OSError):
                sock.sendto(data, sender)


def _listen(address: str) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on the same port of ``address``; ``OSError`` if there is none."""
    family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    for _ in range(_PORT_TRIES):
        tcp, udp = socket.socket(family, socket.SOCK_STREAM), socket.socket(family, socket.SOCK_DGRAM)
        try:
            tcp.bind(place)
            udp.bind((place[0], tcp.getsockname()[1], *place[2:]))
        except OSError as error:
            tcp.close()
            udp.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            forbid_splitting(udp)
            tcp.listen(_MOST_CONNECTIONS)
            return udp, tcp
    raise OSError(errno.EADDRINUSE, "no port is free for both UDP and TCP")


def _accept(tcp: socket.socket, token: bytes) -> None:
    """Answer each connection in a thread of its own; those that find too many others wait."""
    free = threading.Semaphore(_MOST_CONNECTIONS)
    while True:
        free.acquire()
        threading.Thread(target=_serve, args=(tcp.accept()[0], token, free), daemon=True).start()


def _run(udp: socket.socket, tcp: socket.socket, parent: Parent, end: float) -> None:
    token = bytes.fromhex(parent.settings["token"])
    threading.Thread(target=_accept, args=(tcp, token), daemon=True).start()
    while (left := end - time.monotonic()) > 0 and not parent.stopping:
        if parent.wait(left, udp):
            _send_back(udp, token)


def main() -> None:
    """Run the echo; it tells its port when it is ready, or why there is none."""
    parent = Parent()
    end = time.monotonic() + parent.settings["seconds"]
    try:
        udp, tcp = _listen(parent.settings["address"])
    except OSError as error:
        parent.tell("error", error=f"no echo can listen on {parent.settings['address']}: {error.strerror or error}")
        return
    parent.ready(port=tcp.getsockname()[1])
    _run(udp, tcp, parent, end)
