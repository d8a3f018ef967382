"""Streams of numbered packets, which measure the delay and the loss of a path.

A packet is a UDP datagram with its number and the time at which it was sent. The kernel stamps its arrival, and all
namespaces of a machine have the same clocks, so the difference is the one-way delay. Missing numbers were lost.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import NamedTuple

from railyard.errors import MachineError
from railyard.priority import set_priority
from railyard.process.child import Child
from railyard.process.parent import Parent
from topos.kernel.namespaces import inside

PORT = 7410
_HEAD = struct.Struct("!Qq")
"""Start of the payload: number and time of sending (monotonic ns)."""
_NICE = -10
_LONGEST_S = 120.0
_TICK_S = 0.001
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _SO_RXQ_OVFL = 33, 35, 40
_TIMESPEC, _COUNT = struct.Struct("=qq"), struct.Struct("=I")
_CONTROL_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(_COUNT.size)


@dataclass(frozen=True)
class Stream:
    """A stream from the namespace ``netns_fd`` to address ``ip``: ``count`` packets of ``payload_bytes`` bytes.

    ``interval_s`` lies between two packets (0: sent as fast as possible).
    """

    netns_fd: int
    ip: str
    count: int
    payload_bytes: int
    interval_s: float = 0.0


class NumberedStreams(Child):
    """Streams that a process of its own sends at the same time. They begin when ``start`` returns."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        settings = {"streams": [asdict(stream) for stream in streams]}
        fds = {stream.netns_fd for stream in streams}
        super().__init__("measure.live.numbered", settings, fds, "the sender of numbered packets")

    def sent(self) -> list[int]:
        """Wait for the end, and return how many packets of each stream have left their host."""
        found: list[int] = self.answer(_LONGEST_S, stop=False)["sent"]
        return found


class Arrival(NamedTuple):
    """A packet that arrived: its number in its stream and its one-way delay in seconds."""

    number: int
    delay_s: float


class NumberedReceiver:
    """Receives a stream at address ``ip`` in namespace ``netns_fd``; up to ``room_bytes`` may wait to be read."""

    def __init__(self, netns_fd: int, ip: str, room_bytes: int = 64 << 20) -> None:
        with inside(netns_fd):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option, value in ((_SO_RCVBUFFORCE, room_bytes), (_SO_TIMESTAMPNS, 1), (_SO_RXQ_OVFL, 1)):
            self._socket.setsockopt(socket.SOL_SOCKET, option, value)
        self._socket.bind((ip, PORT))
        self._socket.setblocking(False)
        self._buffer = bytearray(_HEAD.size)

    def read(self) -> list[Arrival]:
        """The packets that have arrived since the last call; ``MachineError`` if there was no room for some."""
        found: list[Arrival] = []
        real_ns, now_ns = time.time_ns(), time.monotonic_ns()
        while True:
            try:
                _, control, _, _ = self._socket.recvmsg_into([self._buffer], _CONTROL_BYTES)
            except BlockingIOError:
                return found
            number, sent_ns = _HEAD.unpack(self._buffer)
            for _, kind, data in control:
                if kind == _SO_TIMESTAMPNS:
                    seconds, ns = _TIMESPEC.unpack_from(data)
                    arrived_ns = seconds * 1_000_000_000 + ns - real_ns + now_ns
                    found.append(Arrival(number, (arrived_ns - sent_ns) / 1e9))
                elif kind == _SO_RXQ_OVFL and _COUNT.unpack_from(data)[0]:
                    raise MachineError("the receiver of numbered packets had no room for all of them")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> NumberedReceiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _send(streams: Sequence[Stream], stack: ExitStack) -> list[int]:
    """Send all streams; returns how many packets of each one the host's queue has taken."""
    sockets = []
    for stream in streams:
        with inside(stream.netns_fd):
            sockets.append(stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        sockets[-1].connect((stream.ip, PORT))
    rests = [bytes(stream.payload_bytes - _HEAD.size) for stream in streams]
    numbers, sent, start = [0] * len(streams), [0] * len(streams), time.monotonic()
    while any(number < stream.count for number, stream in zip(numbers, streams, strict=True)):
        passed = time.monotonic() - start
        for place, stream in enumerate(streams):
            due = int(passed / stream.interval_s) + 1 if stream.interval_s else numbers[place] + 100
            while numbers[place] < min(due, stream.count):
                try:
                    sockets[place].send(_HEAD.pack(numbers[place], time.monotonic_ns()) + rests[place])
                    sent[place] += 1
                except OSError as error:
                    if error.errno not in (errno.ENOBUFS, errno.ECONNREFUSED):
                        raise
                numbers[place] += 1
        if all(stream.interval_s for stream in streams):
            time.sleep(_TICK_S)
    return sent


def main() -> None:
    """Run the sender."""
    parent = Parent()
    set_priority(_NICE)
    streams = [Stream(**stream) for stream in parent.settings["streams"]]
    with ExitStack() as stack:
        parent.ready()
        sent = _send(streams, stack)
    parent.tell("result", sent=sent)
