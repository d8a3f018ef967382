"""Streams of numbered frames from many ports at once, in turn, each of which records where it arrived.

A process of its own sends ``batch`` frames every ``interval_s`` seconds, from the next senders in turn. Where frames
arrive is read when all are sent. In contrast to ``measure.live.probe`` the process sleeps between frames, so that it
leaves the processors to what is measured; a frame has the time at which it was sent.
"""

from __future__ import annotations

import ctypes
import errno
import json
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import NamedTuple

from measure.live.packets import ETHERTYPE, Tap, ethernet_frame, open_packets
from measure.live.probe import MAGIC, PROBE, received_numbers
from railyard.child import Child, read_settings
from railyard.priority import set_priority

INTERVAL_S, BATCH = 0.00025, 4
_SETTLE_S = 0.1
_PATIENCE_S = 20.0
_NICE = -10
_BUFFER_BYTES = 64 << 20
_MOST_NS = 200_000
"""Longest time that the sending of a frame may take."""
_PR_SET_TIMERSLACK = 29


class Probe(NamedTuple):
    """One frame: its time of sending (monotonic s), the number of its sender, and that of its receiver (-1: lost)."""

    sent: float
    sender: int
    receiver: int


class ProbeStreams(Child):
    """Frames from each of ``senders`` to any of ``receivers``, for ``seconds``. They begin when ``start`` returns."""

    def __init__(self, senders: Sequence[Tap], receivers: Sequence[Tap], mac: str, seconds: float) -> None:
        self._seconds, self._senders = seconds, len(senders)
        settings = {
            "senders": [asdict(tap) for tap in senders],
            "receivers": [asdict(tap) for tap in receivers],
            "mac": mac,
            "rounds": round(seconds / INTERVAL_S),
        }
        fds = {tap.netns_fd for tap in (*senders, *receivers)}
        super().__init__("commands.bench.probe_streams", settings, fds, "the probe streams")

    def probes(self) -> list[Probe]:
        """Wait for the end, and return the frames in the order of sending; ``MachineError`` if there is no result.

        Those whose sending took so long that its time is not known are left out.
        """
        answer = self.answer(self._seconds + _PATIENCE_S, stop=False)
        at = [-1] * len(answer["sent_ns"])
        for receiver, numbers in enumerate(answer["received"]):
            for number in numbers:
                at[number] = receiver
        return [
            Probe(began / 1e9, number % self._senders, at[number])
            for number, (began, ended) in enumerate(answer["sent_ns"])
            if ended - began <= _MOST_NS
        ]


def _send(senders: Sequence[socket.socket], mac: str, rounds: int) -> list[tuple[int, int]]:
    """Send ``BATCH`` frames in each of ``rounds``; returns when the sending of each began and ended (monotonic ns)."""
    own = [each.getsockname()[4].hex() for each in senders]
    clock = time.monotonic
    sent: list[tuple[int, int]] = []
    start = clock()
    for turn in range(rounds):
        left = start + turn * INTERVAL_S - clock()
        if left > 0:
            time.sleep(left)
        for _ in range(BATCH):
            number = len(sent)
            place = number % len(senders)
            frame = ethernet_frame(mac, own[place], PROBE.pack(MAGIC, number))
            began = time.monotonic_ns()
            try:
                senders[place].send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the port dropped it: lost like one on the way
                    raise
            sent.append((began, time.monotonic_ns()))
    return sent


def main() -> None:
    """Run the process: read settings as one line of JSON, send and receive, print send times and numbers."""
    settings = read_settings()
    set_priority(_NICE)
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with ExitStack() as stack:
        receivers, senders = (
            [stack.enter_context(open_packets(Tap(**tap), kind, room)) for tap in settings[name]]
            for name, kind, room in (("receivers", ETHERTYPE, _BUFFER_BYTES), ("senders", 0, 0))
        )
        print("ready", flush=True)
        sent = _send(senders, settings["mac"], settings["rounds"])
        time.sleep(_SETTLE_S)
        print(json.dumps({"sent_ns": sent, "received": [received_numbers(each) for each in receivers]}), flush=True)


if __name__ == "__main__":
    main()
