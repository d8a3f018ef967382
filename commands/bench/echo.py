"""Round-trip times of ICMP echo requests, from the call that sends a request to the kernel's stamp of the reply."""

from __future__ import annotations

import os
import select
import socket
import struct
import time

from commands.bench import NotMeasured
from topos.kernel.namespaces import inside

COUNT, INTERVAL_S = 300, 0.01
WARM_UP = 20
_PAYLOAD_BYTES = 56
"""With the eight bytes of the ICMP header: 64 bytes, the default of ``ping``."""
_HEAD = struct.Struct("!BBHHH")
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_PATIENCE_S = 1.0
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")


def echo_times(netns_fd: int, ip: str, count: int = COUNT, interval_s: float = INTERVAL_S) -> list[float]:
    """Round-trip times in seconds of ``count`` echo requests to ``ip``; those of a warm-up before them are left out.

    Needs root. ``NotMeasured`` if ``ip`` cannot be reached or does not answer within a second.
    """
    with inside(netns_fd):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with raw:
        raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        times = []
        try:
            raw.connect((ip, 0))
            for number in range(WARM_UP + count):
                times.append(_echo(raw, number, ip))
                time.sleep(interval_s)
        except OSError as error:
            raise NotMeasured(f"the round-trip time: {ip} cannot be reached ({error.strerror})") from None
    return times[WARM_UP:]


def _echo(raw: socket.socket, number: int, ip: str) -> float:
    identity = os.getpid() & 0xFFFF
    request = echo_request(identity, number)
    began_ns = time.time_ns()
    raw.send(request)
    deadline = time.monotonic() + _PATIENCE_S
    answered = select.poll()
    answered.register(raw, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and answered.poll(left * 1e3):
        packet, control, _, _ = raw.recvmsg(2048, socket.CMSG_SPACE(_TIMESPEC.size))
        kind, _, _, ident, sequence = _HEAD.unpack_from(packet, (packet[0] & 15) * 4)
        if (kind, ident, sequence) == (_ECHO_REPLY, identity, number):
            seconds, ns = _TIMESPEC.unpack(control[0][2])
            return float(seconds * 1_000_000_000 + ns - began_ns) / 1e9
    raise NotMeasured(f"the round-trip time: {ip} did not answer echo request {number} within {_PATIENCE_S:g} s")


def echo_request(identity: int, number: int) -> bytes:
    """An ICMP echo request of 64 bytes (RFC 792)."""
    payload = bytes(_PAYLOAD_BYTES)
    return _HEAD.pack(_ECHO_REQUEST, 0, _checksum(identity, number), identity, number) + payload


def _checksum(identity: int, number: int) -> int:
    """The checksum of an echo request whose payload is zero (RFC 1071)."""
    total = (_ECHO_REQUEST << 8) + identity + number
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
