"""Sends a train of probes over a circuit and captures it at the possible receivers.

A process of its own sends a probe every 0.3 ms from a host's namespace; it busy-waits between probes. Captures are
packet sockets on the receivers' interfaces that are read when the train is over and written as pcap files.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from measure.live.darktime import MAGIC, PAYLOAD, DarkTime, Probe, dark_time, read_probes
from railyard.child import end_child, start_child
from railyard.errors import ConfigError, MachineError
from topos.kernel.namespaces import inside

INTERVAL_S = 0.0003
MAX_TRAIN_S = 30.0
UDP_PORT = 7667
_START_S = 10.0
_SETTLE_S = 0.1
_BUFFER_BYTES = 256 << 20
_PCAP_NANOSECONDS = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
_SO_TIMESTAMPNS = 35
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SOCK_FILTER = struct.Struct("=HBBI")


@dataclass(frozen=True)
class Sender:
    """The sender of a train: its namespace, the interface to send from, and the destination address.

    The address must have a neighbour entry on that interface (rails have permanent ones). The address of any receiver
    works, since a circuit carries all packets.
    """

    netns_fd: int
    interface: str
    destination_ip: str


@dataclass(frozen=True)
class Receiver:
    """An interface that may receive probes, with a name that the caller chooses."""

    name: str
    netns_fd: int
    interface: str


@dataclass(frozen=True)
class Train:
    """The probes that were sent, the capture file of each receiver, and the longest gap between probes (s)."""

    sent: tuple[Probe, ...]
    captures: Mapping[str, Path]
    worst_gap_s: float

    def dark_time(self, old: str = "", new: str = "") -> DarkTime:
        """The dark time that this train measured; ``old``, ``new`` as in ``measure.live.darktime.dark_time``."""
        received = [r for name, path in self.captures.items() for r in read_probes(path, name)]
        return dark_time(self.sent, received, old, new)


class ProbeTrain:
    """A probe train that is being sent, for ``seconds``, with captures as files in ``folder``.

    >>> with ProbeTrain(sender, [left, right], seconds=0.3, folder=path) as train:   # doctest: +SKIP
    ...     time.sleep(0.1)
    ...     rewire()
    ...     print(train.result().dark_time("left", "right").seconds)
    """

    def __init__(
        self,
        sender: Sender,
        receivers: Sequence[Receiver],
        *,
        seconds: float,
        folder: Path,
        interval_s: float = INTERVAL_S,
    ) -> None:
        if not 0 < seconds <= MAX_TRAIN_S:
            raise ConfigError(f"must be above 0 and at most {MAX_TRAIN_S:g}, not {seconds:g}", key="seconds")
        if interval_s < 0.0001:
            raise ConfigError(f"must be at least 0.0001, not {interval_s:g}", key="interval_s")
        self._receivers = tuple(receivers)
        self._captures = {r.name: folder / f"probe-{number}-{r.interface}.pcap" for number, r in enumerate(receivers)}
        self._seconds = seconds
        self._fds = {sender.netns_fd, *(r.netns_fd for r in receivers)}
        self._settings = {
            "sender": asdict(sender),
            "receivers": [{**asdict(r), "path": str(self._captures[r.name].absolute())} for r in receivers],
            "count": max(2, round(seconds / interval_s)),
            "interval_s": interval_s,
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> ProbeTrain:
        """Start the train; returns when the captures are open and the first probe is about to be sent."""
        self._process = start_child("measure.live.probe", self._settings, self._fds, "the probe train")
        return self

    def result(self) -> Train:
        """Wait for the end of the train. Raises ``MachineError`` if the process ended without a result."""
        process = self._process
        if process is None:
            raise MachineError("the probe train was not started")
        try:
            out, _ = process.communicate(timeout=self._seconds + _START_S)
            answer = json.loads(out.splitlines()[-1]) if process.returncode == 0 else None
        except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
            answer = None
        finally:
            self.close()
        if answer is None:
            raise MachineError("the probe train ended without a result; its message is above")
        sent = tuple(Probe(number, ns / 1e9) for number, ns in enumerate(answer["sent_ns"]))
        gaps = [b - a for a, b in zip(answer["sent_ns"], answer["sent_ns"][1:], strict=False)]
        return Train(sent, dict(self._captures), max(gaps) / 1e9)

    def close(self) -> None:
        """End the process if it still runs."""
        process, self._process = self._process, None
        if process is not None:
            end_child(process)

    def __enter__(self) -> ProbeTrain:
        return self if self._process else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _udp_filter(port: int) -> bytes:
    """A classic BPF program that accepts IPv4 UDP to ``port`` (Ethernet frames, any IP header length)."""
    program = (
        (0x28, 0, 0, 12),  # EtherType
        (0x15, 0, 6, 0x0800),  # is IPv4, else drop
        (0x30, 0, 0, 23),  # protocol
        (0x15, 0, 4, 17),  # is UDP, else drop
        (0xB1, 0, 0, 14),  # X = IP header length
        (0x48, 0, 0, 16),  # destination port
        (0x15, 0, 1, port),  # is that of the probes, else drop
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    )
    return b"".join(_SOCK_FILTER.pack(*step) for step in program)


def _open_capture(netns_fd: int, interface: str) -> socket.socket:
    """A packet socket that receives only probes, with buffer space for a whole train."""
    code = _udp_filter(UDP_PORT)
    with inside(netns_fd):
        capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: nothing comes in before the filter
        memory = (len(code) // 8).to_bytes(2, sys.byteorder) + bytes(6)
        keep = _Buffer(code)
        capture.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, memory + struct.pack("=Q", keep.address))
        capture.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        capture.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        capture.bind((interface, 0x0003))
    capture.setblocking(False)
    return capture


class _Buffer:
    """Bytes at an address, for a socket option that holds a pointer."""

    def __init__(self, data: bytes) -> None:

        self._buffer = ctypes.create_string_buffer(data, len(data))
        self.address = ctypes.addressof(self._buffer)


def _send_train(sender: Mapping[str, Any], count: int, interval_s: float) -> list[int]:
    """Send ``count`` probes and return their send times (monotonic ns); a late probe does not delay the next."""
    with inside(sender["netns_fd"]):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sender["interface"].encode() + b"\0")
    out.connect((sender["destination_ip"], UDP_PORT))
    clock, sent, interval_ns = time.monotonic_ns, [], round(interval_s * 1e9)
    start = clock()
    for number in range(count):
        due = start + number * interval_ns
        now = clock()
        while now < due:
            now = clock()
        while True:
            try:
                out.send(PAYLOAD.pack(MAGIC, number, now))
                break
            except ConnectionRefusedError:  # an ICMP error answers an earlier probe: send again
                continue
        sent.append(now)
    out.close()
    return sent


def _write_capture(capture: socket.socket, path: Path) -> None:
    """Write a capture to a pcap file with nanosecond times, without packets that this host sent itself."""
    with path.open("wb") as out:
        out.write(_PCAP_NANOSECONDS)
        while True:
            try:
                data, ancillary, _, address = capture.recvmsg(65535, 64)
            except BlockingIOError:
                return
            if address[2] == 4:  # PACKET_OUTGOING
                continue
            seconds = nanoseconds = 0
            for level, kind, value in ancillary:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("=qq", value[:16])
            out.write(struct.pack("=IIII", seconds & 0xFFFFFFFF, nanoseconds, len(data), len(data)) + data)


def main() -> None:
    """Run the probe process: read settings as one line of JSON, send and capture, print the send times."""
    settings = json.loads(sys.stdin.readline())
    with ExitStack() as stack:
        captures = [
            (stack.enter_context(_open_capture(r["netns_fd"], r["interface"])), Path(r["path"]))
            for r in settings["receivers"]
        ]
        print("ready", flush=True)
        sent = _send_train(settings["sender"], settings["count"], settings["interval_s"])
        time.sleep(_SETTLE_S)
        for capture, path in captures:
            _write_capture(capture, path)
    print(json.dumps({"sent_ns": sent}), flush=True)


if __name__ == "__main__":
    main()
