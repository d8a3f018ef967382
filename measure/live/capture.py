"""Captures the packets at chosen ports of the hosts, in a process of its own, with the kernel's timestamps.

Packet sockets in the hosts' namespaces are emptied fifty times a second into a spool file. Outgoing packets are seen
behind the port's shaper, as they go on the wire; a packet between two captured hosts is captured at both. Capturing
costs processor time: an all-reduce over 16 hosts of 50 Mb/s took 4 to 16 % longer on two cores while it was captured.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from measure.live.packets import Packet, pack_record, read_spool
from railyard.errors import ConfigError
from railyard.ownership import open_binary
from railyard.process.child import Child
from railyard.process.parent import Parent, writing
from topos.kernel.packet_sockets import ETH_P_ALL, Tap, missed, open_packets, received
from topos.plan import FabricPlan

MAX_BYTES = 256 << 20
_INTERVAL_S = 0.02
_ROOM_BYTES = 16 << 20
"""Receive buffer of a packet socket: a tenth of a second at more than 1 Gb/s."""
_LONGEST_FRAME = 1 << 17
_PATIENCE_S = 10.0
_FLUSH_S = 0.5
"""Packets are in the spool file at most this long after they came."""
_NICENESS = 10
"""The agents have priority: packets wait in the sockets until this process runs."""


@dataclass(frozen=True)
class Captured:
    """The captured packets in order of time.

    ``missed`` counts the packets that found a full socket buffer. ``full``: the capture reached its ``max_bytes`` and
    stopped before the run ended.
    """

    packets: tuple[Packet, ...]
    missed: int
    full: bool


def taps_of(plan: FabricPlan, netns_fds: Mapping[int, int]) -> list[Tap]:
    """Taps on all rail ports of some hosts; ``netns_fds``: rank -> descriptor of its namespace."""
    return [Tap(fd, port.interface) for rank, fd in netns_fds.items() for port in plan.rail_ports(rank)]


class Capture(Child):
    """A running capture. Needs root. ``spool`` is a new file, which the caller removes.

    ``start`` returns when every further packet is captured; packets captured before a crash are in the spool.
    Raises ``ConfigError`` without taps or for a ``max_bytes`` below 1.

    >>> with Capture(folder / "packets.spool", taps_of(plan, fds)) as capture:   # doctest: +SKIP
    ...     run()
    ...     captured = capture.stop()
    """

    def __init__(self, spool: Path, taps: Sequence[Tap], max_bytes: int = MAX_BYTES) -> None:
        if not taps:
            raise ConfigError("a capture needs at least one port", key="capture")
        if max_bytes < 1:
            raise ConfigError(f"must be at least 1 byte, not {max_bytes}", key="max_bytes")
        self._spool = spool
        self._interfaces = [tap.interface for tap in taps]
        settings = {
            "taps": [asdict(tap) for tap in taps],
            "spool": str(spool.absolute()),
            "max_bytes": max_bytes,
        }
        fds = {tap.netns_fd for tap in taps}
        super().__init__("measure.live.capture", settings, fds, "the capture", patience_s=_PATIENCE_S)

    def stop(self) -> Captured:
        """End the capture and return its packets. Raises ``MachineError`` if the process ended without a result."""
        answer = self.answer(_PATIENCE_S)
        packets = sorted(read_spool(self._spool, self._interfaces), key=lambda p: p.t_ns)
        return Captured(tuple(packets), answer["missed"], answer["full"])


class _Spool:
    """Writes captured packets to the spool file, up to ``room`` bytes."""

    def __init__(self, out: BinaryIO, room: int) -> None:
        self._out = out
        self._room = room
        self._buffer = memoryview(bytearray(_LONGEST_FRAME))
        self.full = False

    def empty(self, number: int, tapped: socket.socket) -> None:
        if self.full:
            return
        for kept, t_ns, outgoing, _ in received(tapped, self._buffer):
            self._room -= kept
            if self._room < 0:
                self.full = True
                return
            self._out.write(pack_record(t_ns, number, outgoing, kept, kept) + self._buffer[:kept])


def main() -> None:
    parent = Parent()
    settings = parent.settings
    os.nice(_NICENESS)
    with writing(settings["spool"]), ExitStack() as stack:
        out = stack.enter_context(open_binary(settings["spool"], "wb"))
        taps = [
            stack.enter_context(open_packets(Tap(**tap), ETH_P_ALL, _ROOM_BYTES, outgoing=True))
            for tap in settings["taps"]
        ]
        spool = _Spool(out, settings["max_bytes"])
        parent.ready()
        ended, lost, flushed = False, 0, time.monotonic()
        while not ended:
            ended = parent.stops(_INTERVAL_S)
            if not spool.full:
                for number, tapped in enumerate(taps):
                    spool.empty(number, tapped)
                lost += sum(map(missed, taps))
            if time.monotonic() - flushed > _FLUSH_S:
                out.flush()
                flushed = time.monotonic()
    parent.tell("result", missed=lost, full=spool.full)
