"""Sends a train of probes over a circuit and records which of them arrive at the possible receivers.

A probe is a raw Ethernet frame with a number. A process of its own sends one every 0.3 ms from a host's namespace; it
busy-waits between probes. Packet sockets on the receivers' interfaces are read when the train is over.

A dark port drops probes; the first one to be received again shows that the circuit is up. The dark time is measured by
send times, so queues on the path do not affect it: the error is at most one interval of the train on each side.
"""

from __future__ import annotations

import errno
import math
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby

from measure.live.packets import ETHERTYPE, Tap, ethernet_frame, frame_payload, open_packets
from railyard.errors import ConfigError
from railyard.priority import set_priority
from railyard.process.child import Child
from railyard.process.parent import Parent


@dataclass(frozen=True)
class DarkTime:
    """The dark time that a train measured. Times are send times of probes, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no probe was lost; ``up_t`` is None (and ``seconds`` infinite) if no
    circuit came up within the train. ``lost`` counts the probes of the dark interval, ``strays`` those lost at other
    times, ``misdelivered`` those received at the old receiver after the new one had received a probe, or at both.
    """

    first_lost_t: float | None
    up_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


def dark_time(sent: Sequence[float], received: Mapping[str, Iterable[int]], old: str = "", new: str = "") -> DarkTime:
    """The dark interval of a train: the longest sequence of consecutive probes that no receiver got.

    ``sent[k]`` is the send time of probe k in monotonic seconds, ``received`` the numbers of the probes that each
    receiver got. ``old`` and ``new`` name the receivers before and after the change. If they are equal or empty (the
    circuit returns to the same port), no probe counts as misdelivered.
    """
    at = {name: frozenset(numbers) for name, numbers in received.items()}
    arrived = frozenset().union(*at.values())
    lost = [number for number in range(len(sent)) if number not in arrived]
    gaps = [[number for _, number in gap] for _, gap in groupby(enumerate(lost), key=lambda pair: pair[1] - pair[0])]
    longest = max(gaps, key=len, default=[])
    wrong = 0
    if old and new and old != new:
        moved = min(at.get(new, ()), default=len(sent))
        wrong = sum(number >= moved for number in at.get(old, ()))
    if not longest:
        return DarkTime(None, None, 0.0, 0, 0, wrong)
    began, after = sent[longest[0]], longest[-1] + 1
    up_t = sent[after] if after < len(sent) else None
    seconds = math.inf if up_t is None else up_t - began
    return DarkTime(began, up_t, seconds, len(longest), len(lost) - len(longest), wrong)


INTERVAL_S = 0.0003
LEAST_INTERVAL_S = 0.00005
MAX_TRAIN_S = 30.0
_START_S = 10.0
_SETTLE_S = 0.1
_NICE = -10
"""Priority of the process, the same as for agents: a probe that is sent late measures nothing."""
_BUFFER_BYTES = 256 << 20
PROBE = struct.Struct("!4sI")
"""Payload of a probe: ``MAGIC`` and its number."""
MAGIC = b"RYpb"
"""The first bytes of the payload of a probe."""


class ProbeTrain(Child):
    """A probe train that is being sent from ``sender``, for ``seconds``. It begins when ``start`` returns.

    ``mac`` is the address to send to; that of any receiver works, since a circuit carries all packets. ``receivers``
    may receive probes; the caller chooses their names.

    >>> with ProbeTrain(sender, mac, {"left": left, "right": right}, seconds=0.3) as train:   # doctest: +SKIP
    ...     time.sleep(0.1)
    ...     rewire()
    ...     print(train.dark_time("left", "right").seconds)
    """

    def __init__(
        self,
        sender: Tap,
        mac: str,
        receivers: Mapping[str, Tap],
        *,
        seconds: float,
        interval_s: float = INTERVAL_S,
    ) -> None:
        if not 0 < seconds <= MAX_TRAIN_S:
            raise ConfigError(f"must be above 0 and at most {MAX_TRAIN_S:g}, not {seconds:g}", key="seconds")
        if interval_s < LEAST_INTERVAL_S:
            raise ConfigError(f"must be at least {LEAST_INTERVAL_S:g}, not {interval_s:g}", key="interval_s")
        self._seconds = seconds
        settings = {
            "sender": asdict(sender),
            "mac": mac,
            "receivers": {name: asdict(receiver) for name, receiver in receivers.items()},
            "count": max(2, round(seconds / interval_s)),
            "interval_s": interval_s,
        }
        fds = {sender.netns_fd, *(receiver.netns_fd for receiver in receivers.values())}
        super().__init__("measure.live.probe", settings, fds, "the probe train")

    def dark_time(self, old: str = "", new: str = "") -> DarkTime:
        """Wait for the end of the train and return the dark time (``old``, ``new``: ``measure.live.probe``).

        Raises ``MachineError`` if the process ended without a result.
        """
        return dark_time(*self.probes(), old, new)

    def probes(self) -> tuple[list[float], dict[str, list[int]]]:
        """Wait for the end of the train and return the send times (monotonic s) and the numbers that each receiver got.

        Raises ``MachineError`` if the process ended without a result.
        """
        answer = self.answer(self._seconds + _START_S, stop=False)
        return [ns / 1e9 for ns in answer["sent_ns"]], answer["received"]


def _send_train(sender: Tap, mac: str, count: int, interval_s: float) -> list[int]:
    """Send ``count`` probes and return their send times (monotonic ns); a late probe does not delay the next."""
    clock, sent, interval_ns = time.monotonic_ns, [], round(interval_s * 1e9)
    with open_packets(sender, ETHERTYPE, 0) as out:
        own_mac = out.getsockname()[4].hex()
        start = clock()
        for number in range(count):
            due = start + number * interval_ns
            now = clock()
            while now < due:
                now = clock()
            try:
                out.send(ethernet_frame(mac, own_mac, PROBE.pack(MAGIC, number)))
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the port dropped it: the probe is lost like one on the way
                    raise
            sent.append(now)
    return sent


def received_numbers(receiver: socket.socket) -> list[int]:
    numbers: list[int] = []
    while True:
        try:
            payload = frame_payload(receiver.recv(64, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return numbers
        if payload.startswith(MAGIC) and len(payload) >= PROBE.size:
            numbers.append(PROBE.unpack_from(payload)[1])


def main() -> None:
    """Run the probe process."""
    parent = Parent()
    settings = parent.settings
    set_priority(_NICE)
    with ExitStack() as stack:
        receivers = {
            name: stack.enter_context(open_packets(Tap(**receiver), ETHERTYPE, _BUFFER_BYTES))
            for name, receiver in settings["receivers"].items()
        }
        parent.ready()
        sent = _send_train(Tap(**settings["sender"]), settings["mac"], settings["count"], settings["interval_s"])
        time.sleep(_SETTLE_S)
        received = {name: received_numbers(receiver) for name, receiver in receivers.items()}
    parent.tell("result", sent_ns=sent, received=received)
