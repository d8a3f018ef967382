"""Captures the packets at chosen ports of the hosts, in a process of its own, with the kernel's timestamps.

Packet sockets in the hosts' namespaces are emptied fifty times a second into a spool file. Outgoing packets are seen
behind the port's shaper, as they go on the wire; a packet between two captured hosts is captured at both. Capturing
costs processor time: an all-reduce over 16 hosts of 50 Mb/s took 4 to 16 % longer on two cores while it was captured.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from measure.live.packets import Packet, pack_record, read_spool
from railyard.child import end_child, request_stop, start_child
from railyard.errors import ConfigError, MachineError
from topos.kernel.namespaces import inside
from topos.plan import FabricPlan, Network

MAX_BYTES = 256 << 20
_INTERVAL_S = 0.02
_ROOM_BYTES = 16 << 20
"""Receive buffer of a packet socket: a tenth of a second at more than 1 Gb/s."""
_LONGEST_FRAME = 1 << 17
_PATIENCE_S = 10.0
_ETH_P_ALL = 0x0003
_PACKET_OUTGOING = 4
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_NICENESS = 10
"""The agents have priority: packets wait in the sockets until this process runs."""


@dataclass(frozen=True)
class Tap:
    """A port to capture at: an interface and the descriptor of its namespace."""

    netns_fd: int
    interface: str


@dataclass(frozen=True)
class Captured:
    """The captured packets in order of time.

    ``missed`` counts the packets that found a full socket buffer. ``full``: the capture reached its ``max_bytes`` and
    stopped before the run ended.
    """

    packets: tuple[Packet, ...]
    missed: int
    full: bool


def taps_of(plan: FabricPlan, netns_fds: Mapping[int, int], networks: Sequence[Network] = ("rail",)) -> list[Tap]:
    """Taps on all ports of some hosts on ``networks``; ``netns_fds``: rank -> descriptor of its namespace."""
    return [
        Tap(fd, port.interface)
        for rank, fd in netns_fds.items()
        for switch, port in plan.host_ports(rank)
        if switch.network in networks
    ]


class Capture:
    """A running capture. Needs root. ``spool`` is a new file, which the caller removes.

    ``received``: capture incoming packets only, so that every packet that arrives is captured once and no lost one is.
    Raises ``ConfigError`` without taps or for a ``max_bytes`` below 1.

    >>> with Capture(folder / "packets.spool", taps_of(plan, fds)) as capture:   # doctest: +SKIP
    ...     run()
    ...     captured = capture.stop()
    """

    def __init__(self, spool: Path, taps: Sequence[Tap], max_bytes: int = MAX_BYTES, *, received: bool = False) -> None:
        if not taps:
            raise ConfigError("a capture needs at least one port", key="capture")
        if max_bytes < 1:
            raise ConfigError(f"must be at least 1 byte, not {max_bytes}", key="max_bytes")
        self._spool = spool
        self._taps = tuple(taps)
        self._settings = {
            "taps": [asdict(tap) for tap in taps],
            "spool": str(spool.absolute()),
            "max_bytes": max_bytes,
            "received": received,
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Capture:
        """Start the capture; every packet from the return of this method on is captured."""
        fds = {tap.netns_fd for tap in self._taps}
        self._process = start_child("measure.live.capture", self._settings, fds, "the capture", own_session=True)
        return self

    def stop(self) -> Captured:
        """End the capture and return its packets. Raises ``MachineError`` if the process ended without a result."""
        process, self._process = self._process, None
        if process is None:
            raise MachineError("the capture was not started")
        request_stop(process)
        answer: dict[str, Any] | None = None
        try:
            assert process.stdout
            if select.select([process.stdout], [], [], _PATIENCE_S)[0]:
                answer = json.loads(process.stdout.readline())
        except json.JSONDecodeError:
            pass
        finally:
            end_child(process, 1.0)
        if answer is None:
            raise MachineError("the capture ended without a result; its message is above")
        packets = read_spool(self._spool, [tap.interface for tap in self._taps])
        return Captured(tuple(sorted(packets, key=lambda p: p.t_ns)), answer["missed"], answer["full"])

    def close(self) -> None:
        """End the process if it still runs; the packets captured so far are in the spool."""
        process, self._process = self._process, None
        if process is not None:
            request_stop(process)
            end_child(process, _PATIENCE_S)

    def __enter__(self) -> Capture:
        return self if self._process else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(tap: Mapping[str, Any], received: bool) -> socket.socket:
    with inside(tap["netns_fd"]):
        tapped = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: no packet comes in before the bind
        tapped.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
        tapped.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        tapped.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, int(received))
        tapped.bind((tap["interface"], _ETH_P_ALL))
    tapped.setblocking(False)
    return tapped


class _Spool:
    """Writes captured packets to the spool file, up to ``room`` bytes."""

    def __init__(self, out: BinaryIO, room: int) -> None:
        self._out = out
        self._room = room
        self._buffer = memoryview(bytearray(_LONGEST_FRAME))
        self.full = False

    def empty(self, number: int, tapped: socket.socket) -> None:
        """Write the packets waiting in the socket of tap ``number``."""
        while not self.full:
            try:
                kept, ancillary, _, address = tapped.recvmsg_into([self._buffer], 64)
            except BlockingIOError:
                return
            self._room -= kept
            if self._room < 0:
                self.full = True
                return
            t_ns = next((_nanoseconds(value) for _, kind, value in ancillary if kind == _SO_TIMESTAMPNS), 0)
            outgoing = address[2] == _PACKET_OUTGOING
            self._out.write(pack_record(t_ns, number, outgoing, kept, kept) + self._buffer[:kept])


def _nanoseconds(value: bytes) -> int:
    seconds, nanoseconds = struct.unpack("=qq", value[:16])
    return int(seconds * 10**9 + nanoseconds)


def _missed(tapped: socket.socket) -> int:
    """Packets dropped for lack of buffer space since the last call."""
    counters = tapped.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
    return int(struct.unpack("=II", counters)[1])


def main() -> None:
    """Run the capture process: read settings as one line of JSON, capture until the next line, print a summary."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    settings = json.loads(sys.stdin.readline())
    with ExitStack() as stack:
        out = stack.enter_context(open(settings["spool"], "wb"))
        taps = [stack.enter_context(_open(tap, settings["received"])) for tap in settings["taps"]]
        spool = _Spool(out, settings["max_bytes"])
        print("ready", flush=True)
        parent, ended, missed = os.getppid(), False, 0
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], _INTERVAL_S)[0]) or os.getppid() != parent
            if not spool.full:
                for number, tapped in enumerate(taps):
                    spool.empty(number, tapped)
                missed += sum(_missed(tapped) for tapped in taps)
    print(json.dumps({"missed": missed, "full": spool.full}), flush=True)


if __name__ == "__main__":
    main()
