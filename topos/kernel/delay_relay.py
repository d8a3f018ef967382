"""Holds the frames of delayed links in a process of its own, for kernels without netem.

The process reads frames from packet sockets at the inner ends of the links (``link_delays``) and sends each from
the opposite end when it is due. A hold counts from the kernel's time stamp of the arrival, so the time for which
the process waits for a core is part of the hold and not added to it. Frames are not split or checked on the way: each
is passed on with the kernel's notes about it (segments to be split, checksum to be filled in: ``PACKET_VNET_HDR``).

The process has real-time priority. On two cores with 8 links of 20 Mb/s and four busy processes beside it, frames left
within 0.13 ms of their time at the p95 and 0.4 ms at worst; with the highest ordinary priority (``nice``) within 0.35
and 4.5 ms.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from railyard.errors import MachineError
from railyard.loop import READ, Poller
from railyard.priority import set_priority, set_real_time
from railyard.process.child import Child
from railyard.process.parent import Parent
from topos.kernel.holding import Holding, Lateness, Line
from topos.kernel.packet_sockets import ETH_P_ALL, Tap, missed, open_packets, received

_PATIENCE_S = 1.0
_ANSWER_S = 10.0
_NICE = -20
_BUFFER_BYTES = 8 << 20
_LARGEST_FRAME = (1 << 16) + 64
_PARENT_S = 1.0
"""Time between two looks at whether the parent still runs."""
_SCAN_NS = 500_000
_OLDEST_NS = 1_000_000_000
_EARLY_NS = 30_000
"""A frame may leave so much before it is due: waking up for it takes longer."""


class DelayRelay(Child):
    """The relay process; ``passages`` is ``topos.kernel.link_delays.Passage.for_relay`` of each way that it holds."""

    def __init__(self, netns_fd: int, passages: list[dict[str, Any]]) -> None:
        settings = {"netns_fd": netns_fd, "passages": passages}
        super().__init__("topos.kernel.delay_relay", settings, [netns_fd], "the relay of delayed links",
                         patience_s=_PATIENCE_S)  # fmt: skip

    def check(self) -> None:
        if self.has_ended:
            raise MachineError("the relay of delayed links ended during the run, so no packet crosses them any more")

    def change(self, line: int, passage: dict[str, Any]) -> None:
        """Let the frames of passage number ``line`` that come from now on have another delay (``for_relay``)."""
        self.check()
        self.call("change", timeout_s=_ANSWER_S, line=line, **passage)

    def report(self) -> dict[str, Any]:
        """``Lateness.report`` of the frames since the last report; ``MachineError`` if the relay has ended."""
        self.check()
        report: dict[str, Any] = self.call("report", timeout_s=_ANSWER_S)
        return report


def _of_line(passage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Delay and jitter in nanoseconds, and room in bytes."""
    return round(passage["delay_s"] * 1e9), round(passage["jitter_s"] * 1e9), passage["room_bytes"]


class _Relay:
    """The running relay: its sockets, the frames that it holds, and the measured lateness."""

    def __init__(self, parent: Parent) -> None:
        settings = parent.settings
        self._parent = parent
        self._arrived, self._waiting = Poller(), Poller()  # before many sockets are open
        parent.operations = {"report": self._report, "change": self._change}
        passages = settings["passages"]
        names = dict.fromkeys(passage[end] for passage in passages for end in ("enters", "leaves"))
        fd = settings["netns_fd"]
        sockets = {name: open_packets(Tap(fd, name), ETH_P_ALL, _BUFFER_BYTES, whole=True) for name in names}
        for opened in sockets.values():
            opened.setblocking(False)
        os.close(fd)
        uniform = random.Random(1).uniform
        self._lines = [Line(*_of_line(p), uniform) for p in passages]
        self._holding = Holding(self._lines)
        self._into = {sockets[p["enters"]].fileno(): (n, sockets[p["enters"]]) for n, p in enumerate(passages)}
        self._out = [sockets[p["leaves"]] for p in passages]
        self._choose_scan()
        self._late = Lateness()
        self._buffer = memoryview(bytearray(_LARGEST_FRAME))

    def _choose_scan(self) -> None:
        self._scan_ns = min(_SCAN_NS, max(min(line.shortest_ns for line in self._lines) // 2, _EARLY_NS))

    def _change(self, line: int, **passage: Any) -> None:
        self._lines[line].change(*_of_line(passage))
        self._choose_scan()

    def run(self) -> None:
        """Relay frames until the parent asks for the end, or has ended."""
        for fd in self._into:
            self._arrived.watch(fd, READ)
        self._waiting.watch(self._parent, READ)
        while True:
            self._wait()
            if self._parent.stopping:
                return
            for fd, _ in self._arrived.wait(0.0):
                self._read(*self._into[fd])
            self._send()

    def _wait(self) -> None:
        """Wait until there may be something to do, and do what the parent asks for.

        While frames are held, arrivals alone do not wake the process: it reads them when it sends, but at least every
        ``_scan_ns``.
        """
        next_ns = self._holding.next_ns
        self._waiting.watch(self._arrived, READ if next_ns is None else 0)
        if next_ns is None:
            at = time.monotonic() + _PARENT_S
        else:
            at = min(next_ns - _EARLY_NS, time.monotonic_ns() + self._scan_ns) / 1e9
        ready = [owner for owner, _ in self._waiting.wait(at)]
        if self._parent in ready or (not ready and next_ns is None):
            self._parent.take()

    def _read(self, line: int, source: socket.socket) -> None:
        real_ns, now_ns = time.time_ns(), time.monotonic_ns()
        with suppress(OSError):  # the interface is down, or the kernel cannot describe the frame
            for size, stamped_ns, *_ in received(source, self._buffer):
                age_ns = real_ns - stamped_ns
                arrived_ns = now_ns - age_ns if 0 <= age_ns < _OLDEST_NS else now_ns
                if not self._holding.take(line, bytes(self._buffer[:size]), arrived_ns):
                    self._late.overflowed += 1

    def _send(self) -> None:
        now_ns = time.monotonic_ns()
        for line, due_ns, frame in self._holding.due(now_ns + _EARLY_NS):
            try:
                self._out[line].send(frame)
            except BlockingIOError:
                self._late.overflowed += 1
            except OSError:  # lost at random behind the socket, or the link is down
                continue
            self._late.add(time.monotonic_ns() - due_ns)

    def _report(self) -> dict[str, Any]:
        """The report since the last one; frames that the sockets had no room for count as overflowed."""
        self._late.overflowed += sum(missed(source) for _, source in self._into.values())
        report, self._late = self._late.report(), Lateness()
        return report


def main() -> None:
    parent = Parent()
    set_priority(_NICE)
    set_real_time()
    gc.disable()  # nothing here refers to itself, and a collection would make frames late
    try:
        relay = _Relay(parent)
    except OSError as error:
        sys.exit(f"delayed links cannot be relayed: {error.strerror or error}")
    parent.ready()
    relay.run()
